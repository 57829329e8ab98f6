"""Findings from silence: nobody died, and the job does not go on.

The order matters. A stopped process needs no graph. Fingerprints that disagree explain why ranks that all
arrived do not leave. Roots of the wait-for graph are judged one by one by phase and activity. Devices and
transport come last, and if nothing at all is waited for, the job is at most paused.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from scoutd.agent import device, making, mismatch, missing, node_loss, order, program, silence, storewait
from scoutd.agent.census import census
from scoutd.agent.consensus import exact
from scoutd.agent.evidence import Phase, ProcessStatus
from scoutd.agent.finding import Finding
from scoutd.agent.narrative import (
    cleared,
    group_of,
    implicate,
    nodes_text,
    rank_evidence,
    ranks_text,
    waiters_text,
    where,
)
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.silence import Level, phase_of
from scoutd.agent.snapshot import Snapshot
from scoutd.agent.unnamed import group_stall, nobody_waits, progressing, unresolved
from scoutd.agent.verdict import Action, Cause, EvidenceItem, Implicated, Scope, State, Status
from scoutd.agent.waitfor import WaitGraph, build, host_waits

TOGETHER_NS: Final = NS_PER_S
"""Roots that fall silent within this time are one event, and one verdict."""

LEVELS: Final = (Level.QUIET, Level.LONG_PHASE, Level.BUSY, Level.ALARM)
HOLDS: Final = {Level.LONG_PHASE: State.SUPPRESSED, Level.BUSY: State.OPEN, Level.ALARM: None}


def find(snapshot: Snapshot, settings: Settings) -> tuple[list[Finding], tuple[int, ...]]:
    """Findings, and the ranks whose stack would decide more."""
    timeout = int(settings.stall_timeout_s * NS_PER_S)
    silent = _silent(snapshot, timeout)
    graph = build(snapshot)
    if not silent:
        return [], graph.undecided
    if snapshot.unreachable and not snapshot.majority and (graph.waits_for or graph.excused):
        return [node_loss.minority(snapshot, graph)], ()
    if stopped := [r for r in census(snapshot).stopped if r not in snapshot.unheard]:
        return _stopped_findings(snapshot, graph, sorted(stopped), timeout), ()
    if (skipped := making.find(snapshot, graph)) is not None:
        return [making.finding(snapshot, graph, skipped)], ()
    disagreement = mismatch.find(snapshot)
    if disagreement is not None and set(disagreement.calls) & set(silent):
        found = [program.mismatch_finding(snapshot, graph, disagreement)]
        # Who waits at the place that differs, or anywhere, is its victim.
        apart = (r for r in graph.roots if r not in disagreement.calls and not host_waits(snapshot.ranks[r]))
        others = replace(graph, roots=tuple(apart))
        return _acquit(found + _root_findings(snapshot, others, settings, timeout)), graph.undecided
    if (left := missing.find(snapshot, graph)) is not None:
        return [program.missing_finding(snapshot, graph, left)], ()
    stuck = device.find(snapshot, graph, silent)
    ailing = [s for s in stuck if s.devices and device.on_accelerator(snapshot.ranks[s.devices[0]])]
    if graph.roots or ailing:
        return _roots_and_devices(snapshot, graph, ailing, settings, timeout), graph.undecided
    if cycles := order.find(snapshot, graph):
        return [program.cycle_finding(snapshot, graph, cycle) for cycle in cycles], ()
    if not graph.undecided and (awaited := node_loss.awaited(snapshot, graph)):
        return [node_loss.finding(snapshot, graph, awaited)], ()
    if stuck and not any(place.unknown for place in graph.places.values()):
        return _stuck_findings(snapshot, graph, stuck), ()
    if not graph.undecided and (late := storewait.find(snapshot, graph)) is not None:
        found_late = storewait.finding(snapshot, graph, late, settings)
        return [found_late] if found_late is not None else [], ()
    if graph.blocked or graph.undecided or graph.excused & set(silent):
        return [unresolved(snapshot, graph, silent, timeout)], graph.undecided
    return nobody_waits(snapshot, silent, settings), ()


def _silent(snapshot: Snapshot, timeout: int) -> list[int]:
    """Living ranks in reach that have shown no progress for so long."""
    silences, unheard, gone = snapshot.silences, snapshot.unheard, ProcessStatus.GONE
    return [
        rank
        for rank, report in snapshot.ranks.items()
        if silences[rank] >= timeout
        and report.observed
        and report.process.status is not gone
        and rank not in unheard
    ]


def _stopped_findings(
    snapshot: Snapshot, graph: WaitGraph, stopped: list[int], timeout: int
) -> list[Finding]:
    """Some stopped: they are the cause, those that stopped together in one verdict. All: somebody suspended
    the job."""
    everybody = set(stopped) >= {r for r in snapshot.ranks if snapshot.alive(r)}
    groups = [tuple(stopped)] if everybody else together(snapshot, dict.fromkeys(stopped, timeout))
    old = [ranks for ranks in groups if all(snapshot.silence_ns(r) >= timeout for r in ranks)]
    return [_stopped_finding(snapshot, graph, ranks, stopped, everybody) for ranks in old]


def _stopped_finding(
    snapshot: Snapshot, graph: WaitGraph, ranks: tuple[int, ...], stopped: list[int], everybody: bool
) -> Finding:
    first = snapshot.ranks[ranks[0]]
    verb = "is" if len(ranks) == 1 else "are"
    summary = f"{ranks_text(ranks)}{nodes_text(snapshot, ranks)} {verb} stopped (SIGSTOP or job control)"
    return Finding(
        cause=Cause.PROCESS_STOPPED,
        status=Status.AGREE if everybody else Status.ATTRIBUTED,
        scope=Scope.JOB if everybody else Scope.RANK,
        summary=summary + waiters_text(graph, ranks),
        action=Action.OBSERVE if everybody else Action.RESTART_IN_PLACE,
        anchor=f"stopped at {_ordinals(snapshot, ranks)}",
        onset_age_ns=_stopped_age(snapshot, ranks[0]),
        implicated=() if everybody else tuple(_stop_reason(snapshot, r) for r in ranks),
        suspects=ranks,
        cleared=() if everybody else cleared(snapshot, graph, stopped),
        phase=phase_of(first),
        operation=first.coordinate.operation if first.coordinate else "",
        peer_group=snapshot.numbers,
        evidence=tuple(e for r in ranks for e in rank_evidence(snapshot, r)),
        hold=State.SUPPRESSED if everybody else None,
        held="every rank is stopped: the job was suspended" if everybody else "",
    )


def _stopped_age(snapshot: Snapshot, rank: int) -> int:
    age = snapshot.ranks[rank].process.stopped_age_ns
    return snapshot.silence_ns(rank) if age is None else age + snapshot.age_ns(rank)


def _stop_reason(snapshot: Snapshot, rank: int) -> Implicated:
    return implicate(snapshot, rank, f"process is in state T (stopped); was in {where(snapshot.ranks[rank])}")


def stalled_finding(
    snapshot: Snapshot, graph: WaitGraph, roots: tuple[int, ...], hold: State | None = None, held: str = ""
) -> Finding:
    """RANK_STALLED: these ranks are waited for and wait for nobody."""
    report = snapshot.ranks[roots[0]]
    gone = not snapshot.alive(roots[0])
    is_, has, was = ("is", "has", "was") if len(roots) == 1 else ("are", "have", "were")
    what = f"{has} not moved in {where(report)}" if hold else f"{is_} stuck in {where(report)}"
    if snapshot.heartbeat_silent(roots[0]):
        what += ", with the interpreter lock held (heartbeat silent, process alive)"
    if gone:
        what = f"{was} stuck in {where(report)} until it was ended"
    return Finding(
        cause=Cause.RANK_STALLED,
        status=Status.ATTRIBUTED,
        scope=Scope.RANK,
        summary=f"{ranks_text(roots)}{nodes_text(snapshot, roots)} {what}{waiters_text(graph, roots)}",
        action=Action.OBSERVE if hold else Action.RESTART_IN_PLACE,
        anchor=_ordinals(snapshot, roots),
        onset_age_ns=snapshot.silence_ns(roots[0]) + snapshot.gone_age_ns(roots[0]),
        implicated=tuple(implicate(snapshot, r, _root_reason(snapshot, graph, r)) for r in roots),
        cleared=cleared(snapshot, graph, (*roots, *graph.roots)),
        phase=phase_of(report),
        operation=report.coordinate.operation if report.coordinate else "",
        peer_group=group_of(snapshot, graph, roots),
        evidence=(*(e for r in roots for e in rank_evidence(snapshot, r)), _coordinates(snapshot)),
        hold=hold,
        held=held,
    )


def _root_findings(snapshot: Snapshot, graph: WaitGraph, settings: Settings, timeout: int) -> list[Finding]:
    judged = {r: silence.judge(snapshot, r, settings) for r in graph.roots}
    gone = tuple(r for r in graph.roots if not snapshot.alive(r))
    findings = [program.exited_finding(snapshot, graph, gone)] if gone else []
    for ranks in together(snapshot, {r: j.limit_ns for r, j in judged.items() if r not in gone}):
        least = min((judged[r] for r in ranks), key=lambda j: LEVELS.index(j.level))
        if least.level is not Level.QUIET:
            findings.append(stalled_finding(snapshot, graph, ranks, HOLDS[least.level], least.reason))
    quiet = (r for r, judgement in judged.items() if judgement.level is Level.QUIET)
    if moving := tuple(r for r in quiet if snapshot.silence_ns(r) < min(NS_PER_S, timeout // 4)):
        findings.append(progressing(snapshot, graph, moving))
    return findings


def together(snapshot: Snapshot, limits: Mapping[int, int]) -> list[tuple[int, ...]]:
    """Roots with one limit that fell silent within ``TOGETHER_NS``: one verdict each.

    ``limits``: by rank, in ns. A group is judged by its latest member. So what belongs together depends on
    the evidence alone, and not on the moment at which an agent happens to look.
    """
    groups: list[list[int]] = []
    limit, first = 0, 0
    for rank in sorted(limits, key=lambda r: (limits[r], -snapshot.still_ns(r), r)):
        still = snapshot.still_ns(rank)
        if groups and limits[rank] == limit and first - still <= TOGETHER_NS:
            groups[-1].append(rank)
        else:
            groups.append([rank])
            limit, first = limits[rank], still
    return [tuple(sorted(group)) for group in groups]


def _roots_and_devices(
    snapshot: Snapshot, graph: WaitGraph, ailing: list[device.Stuck], settings: Settings, timeout: int
) -> list[Finding]:
    """Roots that the graph names, and stuck devices, which explain a root better than its host does.

    A device on which nothing is seen to finish does not tell what its transfers still wait for.
    """
    if not ailing:
        return _root_findings(snapshot, graph, settings, timeout)
    devices = {rank for stuck in ailing for rank in stuck.devices}
    believed = {r for place in graph.places.values() for r in place.absent}
    believed |= {r for rank, peers in graph.peers.items() if rank not in devices for r in peers}
    others = replace(graph, roots=tuple(r for r in graph.roots if r in believed - devices))
    return _acquit(
        _stuck_findings(snapshot, graph, ailing) + _root_findings(snapshot, others, settings, timeout)
    )


def _acquit(findings: list[Finding]) -> list[Finding]:
    """No finding clears whom another one implicates."""
    guilty = {i.rank for f in findings if f.hold is None for i in f.implicated}
    return [replace(f, cleared=tuple(c for c in f.cleared if c.rank not in guilty)) for f in findings]


def _stuck_findings(snapshot: Snapshot, graph: WaitGraph, found: list[device.Stuck]) -> list[Finding]:
    """One finding for all stuck devices, or one per stalled group."""
    if found[0].devices:
        return [_device_finding(snapshot, graph, found)]
    return [group_stall(snapshot, graph, stuck) for stuck in found]


def _device_finding(snapshot: Snapshot, graph: WaitGraph, found: list[device.Stuck]) -> Finding:
    """DEVICE_STALL of every rank that is behind in some group; the others of that group have finished."""
    places = {rank: stuck for stuck in reversed(found) for rank in stuck.devices}
    ranks = tuple(sorted(places))
    stuck = places[ranks[0]]
    first = snapshot.ranks[ranks[0]]
    others = ", which others have" if len(stuck.members) > 1 else ""
    return Finding(
        cause=Cause.DEVICE_STALL,
        status=Status.ATTRIBUTED,
        scope=Scope.RANK,
        summary=f"the device of {ranks_text(ranks)}{nodes_text(snapshot, ranks)} has not finished "
        f"{_stuck_text(snapshot, stuck)}{others}{waiters_text(graph, ranks)}",
        action=Action.DIAGNOSE_HARDWARE,
        anchor=f"group {stuck.at[0]:016x} sequence {stuck.at[1]}",
        onset_age_ns=snapshot.silence_ns(ranks[0]),
        implicated=tuple(
            implicate(snapshot, r, f"enqueued {_stuck_text(snapshot, places[r])}, did not retire it")
            for r in ranks
        ),
        cleared=cleared(snapshot, graph, ranks),
        phase=phase_of(first),
        operation=_stuck_text(snapshot, stuck),
        peer_group=stuck.members,
        evidence=tuple(e for r in ranks for e in rank_evidence(snapshot, r)),
    )


def _stuck_text(snapshot: Snapshot, stuck: device.Stuck) -> str:
    return f"{stuck.operation} #{stuck.at[1]} of {snapshot.group_name(stuck.at[0])}"


def _root_reason(snapshot: Snapshot, graph: WaitGraph, rank: int) -> str:
    text = f"in {where(snapshot.ranks[rank])}; waits for nobody"
    if rank in graph.eliminated:
        return text + "; its counter is stale, but everybody else has arrived"
    return text


def _ordinals(snapshot: Snapshot, ranks: Iterable[int]) -> str:
    """Names the event: the coordinate at which each rank stopped."""
    coordinates = [(r, snapshot.ranks[r].coordinate) for r in ranks]
    return ", ".join(f"{r}@{c.ordinal if c else 0}" for r, c in coordinates)


def _coordinates(snapshot: Snapshot) -> EvidenceItem:
    return snapshot.once(_coordinate_consensus, lasting=True)


def _coordinate_consensus(snapshot: Snapshot) -> EvidenceItem:
    """C3 over progress coordinates: supports the graph or does not, never decides alone."""
    ranks, none = snapshot.numbers, Phase.NONE
    spoken = (snapshot.ranks[r].coordinate for r in ranks)
    told = ((c.step, c.phase, c.operation) if c and c.phase is not none else None for c in spoken)
    # Few are distinct. Kept for each rank, they would set off full garbage collections.
    distinct: dict[Hashable, Hashable] = {}
    values = [distinct.setdefault(each, each) for each in told]
    result = exact(values)
    outliers = [r for r, out in zip(ranks, result.outliers, strict=True) if out]
    text = f"C3 over progress coordinates: {result.status.value}"
    if outliers:
        text += f", {ranks_text(outliers)} {'differs' if len(outliers) == 1 else 'differ'}"
    return EvidenceItem(None, "consensus", text + (f" ({result.reason})" if result.reason else ""))
