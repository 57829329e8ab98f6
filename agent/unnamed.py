"""Findings that name nobody: honest answers where the evidence implicates no rank."""

from __future__ import annotations

from typing import Final

from scoutd.agent.device import Stuck
from scoutd.agent.finding import Finding
from scoutd.agent.narrative import cleared, implicate, pending_text, rank_evidence, ranks_text, where
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.silence import busy_reason, limit_ns, phase_of
from scoutd.agent.snapshot import Snapshot
from scoutd.agent.verdict import Action, Cause, EvidenceItem, Scope, State, Status
from scoutd.agent.waitfor import WaitGraph


def group_stall(snapshot: Snapshot, graph: WaitGraph, stuck: Stuck) -> Finding:
    """Everybody arrived with one fingerprint and nobody (or one run of neighbours) goes on: transport."""
    place = f"{stuck.operation} #{stuck.at[1]} of {snapshot.group_name(stuck.at[0])}"
    text = f"all members of {snapshot.group_name(stuck.at[0])} are in {place} and it does not finish"
    if stuck.suspects:
        text += f"; it has not finished on {ranks_text(stuck.suspects)}, neighbours in the ring"
    return Finding(
        cause=Cause.GROUP_STALL,
        status=Status.AGREE,
        scope=Scope.GROUP,
        summary=text + ": transport or runtime, nobody is named",
        action=Action.DIAGNOSE_NETWORK,
        anchor=f"group {stuck.at[0]:016x} sequence {stuck.at[1]}",
        onset_age_ns=min(snapshot.silence_ns(r) for r in stuck.members if r in snapshot.ranks),
        suspects=stuck.suspects,
        cleared=cleared(snapshot, graph, ()),
        phase=phase_of(snapshot.ranks[next(r for r in stuck.members if r in snapshot.ranks)]),
        operation=place,
        peer_group=stuck.members,
        evidence=tuple(e for r in stuck.members if r in snapshot.ranks for e in rank_evidence(snapshot, r)),
    )


MOST_EVIDENCE: Final = 64
STACK_PATIENCE: Final = 2
"""Stall timeouts after which a stack that would decide is no longer waited for: reading one with native
frames takes seconds on a busy machine."""


def unresolved(snapshot: Snapshot, graph: WaitGraph, silent: list[int], timeout_ns: int) -> Finding:
    """Ranks wait, and the graph has no root: say what is missing instead of guessing."""
    unknown = sorted({r for place in graph.places.values() for r in place.unknown})
    cause = Cause.GROUP_STALL
    if unknown:
        why = f"nothing is known of {ranks_text(unknown)} (no shim, or its counters are stale)"
    elif graph.undecided:
        why = f"without a stack nobody can tell whether {ranks_text(graph.undecided)} waits or hangs"
    elif graph.excused:
        cause = Cause.STORE_WAIT
        wait = "waits" if len(graph.excused) == 1 else "wait"
        why = f"{ranks_text(sorted(graph.excused))} {wait} for a key of the store"
    else:
        why = f"{ranks_text(sorted(graph.blocked))} wait, and nobody is late"
    suspects = tuple(unknown or graph.undecided or sorted(graph.excused or graph.blocked))
    return Finding(
        cause=cause,
        status=Status.INCONCLUSIVE,
        scope=Scope.GROUP,
        summary=f"{ranks_text(silent)} made no progress, and nobody can be named: {why}",
        action=Action.OBSERVE,
        anchor=f"unresolved {sorted(graph.places)}",
        onset_age_ns=min(snapshot.silence_ns(r) for r in silent),
        suspects=suspects,
        cleared=cleared(snapshot, graph, suspects),
        phase=phase_of(snapshot.ranks[silent[0]]),
        operation=pending_text(snapshot, silent[0]),
        peer_group=snapshot.numbers,
        evidence=_evidence(snapshot, suspects),
        hold=State.OPEN if (pending := _pending_stacks(snapshot, graph, unknown, timeout_ns)) else None,
        held=f"the stack of {ranks_text(pending)} is being read" if pending else "",
    )


def _evidence(snapshot: Snapshot, suspects: tuple[int, ...]) -> tuple[EvidenceItem, ...]:
    """What was seen of the suspects and of others, of at most ``MOST_EVIDENCE`` ranks."""
    ranks = dict.fromkeys((*suspects, *sorted(snapshot.ranks)))
    shown = [r for r in ranks if r in snapshot.ranks][:MOST_EVIDENCE]
    items = [e for r in sorted(shown) for e in rank_evidence(snapshot, r)]
    if len(shown) < len(snapshot.ranks):
        items.append(EvidenceItem(None, "ranks", f"{len(snapshot.ranks) - len(shown)} more are not listed"))
    return tuple(items)


def _pending_stacks(
    snapshot: Snapshot, graph: WaitGraph, unknown: list[int], timeout_ns: int
) -> tuple[int, ...]:
    """Ranks whose stack is still to come and would decide."""
    waited = max((snapshot.silence_ns(r) for r in graph.undecided), default=0)
    if unknown or waited >= STACK_PATIENCE * timeout_ns:
        return ()
    return tuple(r for r in graph.undecided if snapshot.ranks[r].stack is None and snapshot.alive(r))


def progressing(snapshot: Snapshot, graph: WaitGraph, ranks: tuple[int, ...]) -> Finding:
    """Others have waited past the timeout for ranks that move: no fault, but worth a line. One for all of
    them: half of a large job may wait for the other half."""
    report = snapshot.ranks[ranks[0]]
    coordinate = report.coordinate
    waiting = graph.waiting_for(ranks)
    make, first = ("makes", "") if len(ranks) == 1 else ("make", ", the first")
    return Finding(
        cause=Cause.RANK_STALLED,
        status=Status.INCONCLUSIVE,
        scope=Scope.RANK,
        summary=f"{ranks_text(waiting)} wait for {ranks_text(ranks)}, which {make} progress{first} in "
        f"{where(report)}",
        action=Action.OBSERVE,
        anchor=f"progressing at step {coordinate.step if coordinate else 0}",
        onset_age_ns=snapshot.silence_ns(ranks[0]),
        implicated=tuple(
            implicate(snapshot, rank, f"makes progress in {where(snapshot.ranks[rank])}") for rank in ranks
        ),
        cleared=cleared(snapshot, graph, ranks),
        phase=phase_of(report),
        operation=coordinate.operation if coordinate else "",
        hold=State.SUPPRESSED,
        held=f"{ranks_text(ranks)} {make} progress",
    )


def nobody_waits(snapshot: Snapshot, silent: list[int], settings: Settings) -> list[Finding]:
    """Silent ranks that no other rank waits for: a pause. A job of one rank hangs when it is long silent."""
    if snapshot.world_size == 1 and len(silent) == 1:
        return _alone(snapshot, silent[0], settings)
    silent = [r for r in silent if snapshot.silence_ns(r) >= limit_ns(snapshot.ranks[r], settings)]
    if not silent:
        return []
    everybody = len(silent) == len([r for r in snapshot.ranks if snapshot.alive(r)])
    first = snapshot.ranks[silent[0]]
    held = f"no rank waits for {'another' if everybody else ranks_text(silent)}"
    return [
        Finding(
            cause=Cause.RANK_STALLED,
            status=Status.AGREE if everybody else Status.INCONCLUSIVE,
            scope=Scope.JOB if everybody else Scope.RANK,
            summary=f"{ranks_text(silent)} made no progress (in {where(first)}), and {held}",
            action=Action.NONE,
            anchor=f"pause at {[c.ordinal if (c := snapshot.ranks[r].coordinate) else 0 for r in silent]}",
            onset_age_ns=snapshot.silence_ns(silent[0]),
            suspects=tuple(silent),
            phase=phase_of(first),
            operation=first.coordinate.operation if first.coordinate else "",
            peer_group=snapshot.numbers,
            hold=State.SUPPRESSED,
            held=held,
        )
    ]


def _alone(snapshot: Snapshot, rank: int, settings: Settings) -> list[Finding]:
    """With nobody to compare with, only long silence counts: ``busy_factor`` times the limit."""
    report = snapshot.ranks[rank]
    limit = limit_ns(report, settings)
    held = "a job of one rank: nothing to compare with"
    stretched = int(limit * settings.busy_factor)
    how = "is stuck" if snapshot.silence_ns(rank) >= stretched else "has not moved"
    alarm = snapshot.silence_ns(rank) >= stretched and not busy_reason(report.activity, settings)
    return [
        Finding(
            cause=Cause.RANK_STALLED,
            status=Status.INCONCLUSIVE,
            scope=Scope.RANK,
            summary=f"rank {rank}, alone in its job, {how} in {where(report)}",
            action=Action.RESTART_IN_PLACE if alarm else Action.OBSERVE,
            anchor=f"alone at {report.coordinate.ordinal if report.coordinate else 0}",
            onset_age_ns=snapshot.silence_ns(rank),
            implicated=(implicate(snapshot, rank, f"silent for more than {stretched / NS_PER_S:g} s"),),
            phase=phase_of(report),
            operation=report.coordinate.operation if report.coordinate else "",
            peer_group=(rank,),
            evidence=(EvidenceItem(None, "consensus", held), *rank_evidence(snapshot, rank)),
            hold=None if alarm else State.SUPPRESSED,
            held="" if alarm else held,
        )
    ]
