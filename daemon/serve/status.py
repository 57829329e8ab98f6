"""The wire form of an agent's status. Topology is ``layout``'s business, verdicts are ``codec``'s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scoutd.agent.evidence import Call, CallKind, CallState, RankReport
from scoutd.agent.verdict import State
from scoutd.daemon.clock import Stamps
from scoutd.daemon.codec import encode_verdict, seconds, wire_enum
from scoutd.daemon.jobs import Job
from scoutd.daemon.peer.parties import Member
from scoutd.daemon.seams import UnobservedPort
from scoutd.daemon.serve.replay_status import encode_replays
from scoutd.proto.v1 import query_pb2 as pb


def encode_job(job: Job, stamps: Stamps, now_ns: int, members: Iterable[Member] = ()) -> pb.JobStatus:
    """A job's status; ages are counted on to ``now_ns``."""
    report = job.observation.report
    since_ns = max(0, now_ns - job.observed_ns)
    return pb.JobStatus(
        job=job.name,
        generation=job.generation,
        world_size=report.world_size,
        run=job.run,
        ranks=[_rank(rank, job, report.node, since_ns) for rank in report.ranks],
        open=[encode_verdict(verdict, stamps) for verdict in job.open_verdicts()],
        ended=job.gone,
        members=[_member(each) for each in members],
        suppressed=sum(verdict.state is State.SUPPRESSED for verdict in job.core.verdicts),
        replay=encode_replays(job),
    )


def encode_unobserved(processes: Iterable[UnobservedPort]) -> list[pb.Unobserved]:
    return [pb.Unobserved(rank=max(each.rank, 0), pid=each.pid, reason=each.reason) for each in processes]


def _member(member: Member) -> pb.Member:
    return pb.Member(
        node=member.node,
        address=member.address,
        state=member.state,
        incarnation=member.incarnation,
        heard_ago_s=seconds(member.heard_ago_ns),
        me=member.me,
    )


def _rank(rank: RankReport, job: Job, node: str, since_ns: int) -> pb.RankStatus:
    message = pb.RankStatus(
        rank=rank.rank,
        pid=max(rank.pid, 0),
        local_rank=rank.local_rank,
        device=rank.device,
        process=rank.process.status.value,
        silent_s=seconds(rank.silent_ns + since_ns),
        pending=pending_text(rank),
        shim_disabled=job.observation.disabled.get(rank.rank, ""),
        node=node,
    )
    if rank.heartbeat_age_ns is not None:
        message.heartbeat_age_s = seconds(rank.heartbeat_age_ns + since_ns)
    if (coordinate := rank.coordinate) is not None:
        message.step = coordinate.step
        message.phase = wire_enum("phase", coordinate.phase.value)
        message.operation = coordinate.operation
    return message


def pending_text(rank: RankReport) -> str:
    """The call that a rank is in, "all_reduce #7 of default_pg"; empty if none is pending.

    Of several the one that its host waits in, else the oldest.
    """
    pending = [call for call in rank.calls if call.state is CallState.PENDING]
    if not pending:
        return ""
    call = max(pending, key=lambda each: (each.waiting, each.age_ns))
    return _call_text(call, {group.group: group.name for group in rank.groups})


def _call_text(call: Call, names: Mapping[int, str]) -> str:
    if call.kind is CallKind.STORE:
        return call.fingerprint.operation
    text = f"{call.fingerprint.operation} #{call.sequence}"
    if call.kind is not CallKind.COLLECTIVE and call.peer is not None:
        text += f" with rank {call.peer}"
    return f"{text} of {names.get(call.group) or format(call.group, 'x')}"
