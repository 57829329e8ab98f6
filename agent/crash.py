"""Findings after a death: the first failure, from the evidence that the dead left in shared memory.

The launcher's order of exits says nothing (torchrun kills the culprit and names an innocent rank first);
``deaths`` sorts ends by their own time and kind. Where every end is a consequence of something else, the
collective in which they died tells: a fingerprint in the minority, or a member that had not come and had
been silent longer than any wait explains.
"""

from __future__ import annotations

from scoutd.agent import mismatch, missing, node_loss, order, program, stall
from scoutd.agent.deaths import TIE_NS, Death, Kind, deaths, primaries
from scoutd.agent.evidence import CallState
from scoutd.agent.finding import Finding
from scoutd.agent.narrative import cleared, implicate, nodes_text, rank_evidence, ranks_text
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.silence import phase_of
from scoutd.agent.snapshot import Snapshot
from scoutd.agent.verdict import Action, Cause, EvidenceItem, Scope, State, Status
from scoutd.agent.waitfor import WaitGraph, build

MOST_TOLD = 4


def find(snapshot: Snapshot, settings: Settings) -> list[Finding]:
    """The finding that explains the deaths so far; empty if they need none (everybody ended well)."""
    found = deaths(snapshot)
    graph = build(snapshot, post_mortem=True)
    if first := primaries(found):
        return [_dead(snapshot, graph, first, found)]
    trouble = [d for d in found if d.kind in (Kind.LOST, Kind.ABORTED)]
    if not trouble:
        return _ended_without_failure(snapshot, found)
    if snapshot.unreachable and not snapshot.majority:
        return [node_loss.minority(snapshot, graph)]
    if (disagreement := mismatch.find(snapshot)) is not None:
        return [program.mismatch_finding(snapshot, graph, disagreement)]
    if (absent := missing.find(snapshot, graph)) is not None:
        return [program.missing_finding(snapshot, graph, absent)]
    if (apart := _parted(snapshot, found)) is not None:
        return [program.missing_finding(snapshot, graph, apart)]
    if left := _left_early(graph, found, trouble[0]):
        return [_dead(snapshot, graph, left, found)]
    if late := _late(snapshot, graph, trouble, settings):
        found_late = [stall.stalled_finding(snapshot, graph, ranks) for ranks in late]
        if snapshot.lost and not _timed_out(trouble[0]):
            # Somebody closed the connections, and those who are late live: a node went, too.
            found_late.append(node_loss.finding(snapshot, graph, tuple(sorted(snapshot.lost))))
        return found_late
    if cycles := order.find(snapshot, graph):
        return [program.cycle_finding(snapshot, graph, cycle) for cycle in cycles]
    if snapshot.lost:
        return [node_loss.finding(snapshot, graph, tuple(sorted(snapshot.lost)))]
    if _died_by_itself(snapshot, trouble[0]):
        return [_dead(snapshot, graph, [trouble[0]], found)]
    return [_nobody(snapshot, graph, trouble)]


def _dead(snapshot: Snapshot, graph: WaitGraph, first: list[Death], found: list[Death]) -> Finding:
    """``first`` in the order of its ranks: which of them died first by milliseconds, agents that heard of it
    in other ways do not see alike."""
    first = sorted(first, key=lambda d: d.rank)
    ranks = [d.rank for d in first]
    report = snapshot.ranks[ranks[0]]
    coordinate = report.coordinate
    one_bug = len(first) > 1 and len(first) == len(snapshot.ranks)
    return Finding(
        cause=Cause.PROCESS_DEAD,
        status=Status.ATTRIBUTED,
        scope=Scope.JOB if one_bug else Scope.RANK,
        summary=_summary(snapshot, first),
        action=_action(first),
        anchor=f"exit of {ranks}",
        onset_age_ns=max(d.age_ns for d in first),
        implicated=tuple(implicate(snapshot, d.rank, d.what) for d in first),
        cleared=cleared(snapshot, graph, ranks),
        phase=phase_of(report),
        operation=coordinate.operation if coordinate else "",
        peer_group=snapshot.numbers,
        evidence=(*_timeline(found), *(e for r in ranks[:MOST_TOLD] for e in rank_evidence(snapshot, r))),
    )


def _summary(snapshot: Snapshot, first: list[Death]) -> str:
    """How each of them ended, those that ended alike in one clause."""
    alike: dict[tuple[str, str], list[int]] = {}
    for death in first:
        coordinate = snapshot.ranks[death.rank].coordinate
        phase = f" in {coordinate.phase.value}" if coordinate is not None else ""
        alike.setdefault((death.what, phase), []).append(death.rank)
    clauses = [
        f"{ranks_text(ranks)}{nodes_text(snapshot, ranks)} {_said_of(ranks, what)}{phase}"
        for (what, phase), ranks in alike.items()
    ]
    text = ", ".join(clauses[:MOST_TOLD])
    if rest := [r for ranks in list(alike.values())[MOST_TOLD:] for r in ranks]:
        text += f", and {ranks_text(rest)}{nodes_text(snapshot, rest)} at the same time"
    others = sorted(set(snapshot.ranks).difference(d.rank for d in first))
    return text + (f"; the end of {ranks_text(others)} only follows" if others else "")


def _said_of(ranks: list[int], what: str) -> str:
    return f"were {what[4:]}" if len(ranks) > 1 and what.startswith("was ") else what


def _action(first: list[Death]) -> Action:
    """An exception is the program's; a signal from outside, or memory, is answered by a restart."""
    return Action.FIX_PROGRAM if any(d.note for d in first) else Action.RESTART_IN_PLACE


def _timeline(found: list[Death]) -> list[EvidenceItem]:
    """Deaths in their order."""
    return [EvidenceItem(d.rank, "death", f"{k}. {d.what} ({d.kind.value})") for k, d in enumerate(found, 1)]


def _died_by_itself(snapshot: Snapshot, first: Death) -> bool:
    """The first end, inside a collective on which nobody disagrees, is a cause where it is an exception of
    its own, an end that nobody saw, or an abort although all members' calls are known to be equal. A plain
    exit code after a failed collective is none: the program swallowed what it was told."""
    process = snapshot.ranks[first.rank].process
    if first.kind is not Kind.ABORTED or first.at is None:
        return False
    if first.note is not None or (process.signal is None and process.exit_code is None):
        return True
    facts = snapshot.groups.get(first.at[0])
    members = facts.members if facts is not None and facts.members is not None else ()
    known = [r in snapshot.ranks and snapshot.call_at(r, first.at) is not None for r in members]
    return process.signal is not None and bool(known) and all(known)


def _left_early(graph: WaitGraph, found: list[Death], trouble: Death) -> list[Death]:
    """Ranks that ended without failing before all others did: one that left while others waited for it,
    or one that alone was told to end (a job that is cancelled ends on many ranks at once)."""
    awaited = {r for place in graph.places.values() for r in place.absent}
    early = [d for d in found if d.age_ns > trouble.age_ns]
    left = [d for d in early if d.kind is Kind.CLEAN and d.rank in awaited]
    told = [d for d in found if d.kind is Kind.POLITE]
    alone = told[:1] if told and told[0] in early and not _at_once(told) else []
    return left or alone


def _parted(snapshot: Snapshot, found: list[Death]) -> missing.Missing | None:
    """Ranks that were through before the collective of all others failed."""
    if found[0].kind is not Kind.CLEAN or any(d.kind not in (Kind.CLEAN, Kind.LOST) for d in found):
        return None
    return missing.parted(snapshot, {d.rank: d.kind is Kind.CLEAN for d in found})


def _at_once(told: list[Death]) -> bool:
    return len(told) > 1 and told[0].age_ns - told[1].age_ns <= TIE_NS


def _late(
    snapshot: Snapshot, graph: WaitGraph, trouble: list[Death], settings: Settings
) -> list[tuple[int, ...]]:
    """Roots that had been silent for as long as the failed collectives had waited, as ``stall.together``.

    A healthy rank that had merely not arrived yet when a connection broke is no root: it had moved.
    """
    timed_out = any(_timed_out(d) for d in trouble)
    failed = [c for r in snapshot.ranks.values() for c in r.calls if c.state is CallState.FAILED]
    waited = max((c.age_ns - (c.left_age_ns or 0) for c in failed), default=0)
    least = int(settings.stall_timeout_s * NS_PER_S)
    if timed_out:
        least = min(least, max(waited // 2, NS_PER_S))
    groups = stall.together(snapshot, dict.fromkeys(graph.roots, least))
    return [ranks for ranks in groups if all(snapshot.silence_ns(r) >= least for r in ranks)]


def _timed_out(death: Death) -> bool:
    return death.note is not None and "time" in death.note.message.lower()


def _nobody(snapshot: Snapshot, graph: WaitGraph, trouble: list[Death]) -> Finding:
    suspects = tuple(d.rank for d in trouble)
    return Finding(
        cause=Cause.GROUP_STALL if trouble[0].kind is Kind.LOST else Cause.PROCESS_DEAD,
        status=Status.INCONCLUSIVE,
        scope=Scope.GROUP,
        summary=f"{ranks_text(suspects)} failed inside collectives, and no evidence tells why: "
        "nobody is named",
        action=Action.DIAGNOSE_NETWORK,
        anchor=f"failure in {trouble[0].at}",
        onset_age_ns=trouble[0].age_ns,
        suspects=suspects,
        cleared=cleared(snapshot, graph, suspects),
        peer_group=snapshot.numbers,
        evidence=tuple(_timeline(trouble)),
    )


def _ended_without_failure(snapshot: Snapshot, found: list[Death]) -> list[Finding]:
    """Told to end by SIGTERM or Ctrl-C, all of them: a cancelled job, not a fault."""
    told = [d for d in found if d.kind is Kind.POLITE]
    if not told or len(found) < len(snapshot.ranks):
        return []
    ranks = tuple(sorted(d.rank for d in told))
    return [
        Finding(
            cause=Cause.PROCESS_DEAD,
            status=Status.AGREE,
            scope=Scope.JOB,
            summary=f"{ranks_text(ranks)} {told[0].what}: the job was cancelled",
            action=Action.NONE,
            anchor="cancelled",
            onset_age_ns=told[0].age_ns,
            suspects=ranks,
            hold=State.SUPPRESSED,
            held="every rank was told to end from outside: the job was cancelled",
        )
    ]
