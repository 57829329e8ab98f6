"""What one moment makes of a finding: the verdict in its words, and whether what it was about is over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from scoutd.agent.census import census
from scoutd.agent.evidence import ProcessStatus
from scoutd.agent.finding import Finding
from scoutd.agent.settings import NS_PER_S
from scoutd.agent.snapshot import Snapshot
from scoutd.agent.verdict import RankNote, RankStack, State, Verdict


def is_back(snapshot: Snapshot, verdict: Verdict) -> bool:
    """None of its ranks is out of reach; where it named nobody: this side has a majority again."""
    if not verdict.implicated:
        return snapshot.majority
    return not {i.rank for i in verdict.implicated} & snapshot.lost


def moves(snapshot: Snapshot, ranks: Iterable[int], since_ns: int) -> bool:
    """Every one of these ranks lives and has shown progress after the verdict was confirmed."""
    reports = [snapshot.ranks.get(r) for r in ranks]
    return all(
        report is not None
        and report.process.status is ProcessStatus.RUNNING
        and snapshot.silence_ns(report.rank) < min(since_ns, NS_PER_S)
        for report in reports
    )


def verdict(
    finding: Finding,
    identity: str,
    job: str,
    generation: int,
    snapshot: Snapshot,
    now_ns: int,
    old: Verdict | None,
) -> Verdict:
    """The finding as a verdict under this identity, with the stacks and notes of its moment. ``old`` is the
    same event's verdict until now: it began when that began."""
    about = [r for r in finding.ranks if r in snapshot.ranks]
    stacks = ((r, snapshot.ranks[r].stack) for r in about)
    return replace(
        stated(finding, identity, job, generation, now_ns),
        opened_ns=old.opened_ns if old else now_ns,
        stacks=tuple(RankStack(r, stack) for r, stack in stacks if stack is not None),
        death_notes=tuple(
            RankNote(report.rank, note)
            for report in sorted(census(snapshot).ended, key=lambda r: r.rank)
            for note in report.notes
        ),
    )


def stated(finding: Finding, identity: str, job: str, generation: int, now_ns: int) -> Verdict:
    """What the finding alone says, as a verdict under this identity that begins now."""
    confirmed = finding.hold is None
    return Verdict(
        id=identity,
        job=job,
        generation=generation,
        symptom=finding.symptom,
        status=finding.status,
        state=finding.hold or State.CONFIRMED,
        cause=finding.cause,
        scope=finding.scope,
        phase=finding.phase,
        operation=finding.operation,
        summary=finding.summary,
        action=finding.action,
        opened_ns=now_ns,
        implicated=finding.implicated,
        cleared=finding.cleared,
        peer_group=finding.peer_group,
        evidence=finding.evidence,
        suppressed_because=finding.held,
        confirmed_ns=now_ns if confirmed else None,
        closed_ns=now_ns if finding.hold is State.SUPPRESSED else None,
        detection_latency_ns=finding.onset_age_ns if confirmed else None,
        onset_ns=now_ns - finding.onset_age_ns,
    )
