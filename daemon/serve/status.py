"""The wire form of what an agent observes: status and topology. Verdicts are ``codec``'s business."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from scoutd.agent.evidence import Call, CallKind, CallState, GroupView, RankReport
from scoutd.agent.verdict import State
from scoutd.daemon.clock import Stamps
from scoutd.daemon.codec import encode_verdict, seconds, wire_enum
from scoutd.daemon.jobs import Job
from scoutd.daemon.peer.parties import Member
from scoutd.daemon.seams import UnobservedPort
from scoutd.proto.v1 import query_pb2 as pb

AXES: Final = ("d", "s", "t", "p", "c", "e")


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
    )


def encode_unobserved(processes: Iterable[UnobservedPort]) -> list[pb.Unobserved]:
    return [pb.Unobserved(rank=max(each.rank, 0), pid=each.pid, reason=each.reason) for each in processes]


def encode_topology(job: Job) -> pb.JobTopology:
    """Where each rank is and which process groups exist, as far as the ranks of this node tell."""
    report = job.observation.report
    return pb.JobTopology(
        job=job.name,
        generation=job.generation,
        world_size=report.world_size,
        ranks=[_place(rank, report.node, job.observation.topology.get(rank.rank, {}))
               for rank in report.ranks],
        groups=_groups(report.ranks),
        warnings=job.observation.warnings,
    )


def _member(member: Member) -> pb.Member:
    return pb.Member(
        node=member.node,
        address=member.address,
        state="ALIVE" if member.reachable else "UNREACHABLE",
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


def _place(rank: RankReport, node: str, topology: Mapping[str, Any]) -> pb.RankPlace:
    return pb.RankPlace(rank=rank.rank, node=node, local_rank=rank.local_rank, device=rank.device,
                        coordinates=_coordinates(topology))


def _coordinates(topology: Mapping[str, Any]) -> dict[str, int]:
    """The axes that the shim knows; what is not a small whole number is left out, it came from outside."""
    axes = topology.get("coordinates", topology)
    if not isinstance(axes, Mapping):
        return {}
    return {
        axis: axes[axis] for axis in AXES
        if type(axes.get(axis)) is int and 0 <= axes[axis] < 1 << 32
    }


def _groups(ranks: Iterable[RankReport]) -> list[pb.ProcessGroup]:
    """Every group that some rank is in, once, in the order of first mention."""
    seen: dict[int, GroupView] = {}
    for rank in ranks:
        for group in rank.groups:
            if group.group not in seen or seen[group.group].members is None:
                seen[group.group] = group
    return [
        pb.ProcessGroup(id=format(each.group, "x"), name=each.name, description=each.description,
                        backend=each.backend, ranks=list(each.members or ()))
        for each in seen.values()
    ]
