"""A rank that made a collective fewer, or one more, than its peers (design §4 f).

Whom it concerns is a question of majority, never of who waits. There are three moments at which it shows:

- *At a place where fingerprints disagree* (``mismatch``): the minority is known, and ``alignment`` tells
  whether it called something else or is one place off.
- *At the end of the program* nothing comes that could disagree: some ranks are through, others wait at a
  place to which nobody will come. Exact C3 over "entered this sequence": a rank that left early is in the
  minority that did not enter; one that made an extra call is in the minority that did.
- *In a circle* of ranks that wait for each other in several groups: one of them is in a later step than
  those who wait for it, so it has passed by a collective that they had to make before that step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from scoutd.agent import alignment
from scoutd.agent.alignment import Shift
from scoutd.agent.consensus import Consensus, exact
from scoutd.agent.evidence import Phase
from scoutd.agent.mismatch import Mismatch
from scoutd.agent.snapshot import Rendezvous, Snapshot
from scoutd.agent.verdict import Status
from scoutd.agent.waitfor import Place, WaitGraph


@dataclass(frozen=True, slots=True)
class Missing:
    """``minority`` is empty where C3 cannot judge; ``added``: they made a collective more; ``passed``: they
    went on to a later step, else they are through."""

    place: Place
    members: tuple[int, ...]
    minority: tuple[int, ...]
    added: bool
    passed: bool
    consensus: Consensus


def shifts(snapshot: Snapshot, found: Mismatch) -> dict[int, Shift]:
    """What shows that the ranks of the minority are off by some collectives; empty if one of them is not
    proven to be."""
    steps = alignment.by_steps(snapshot, found.at, found.members)
    seen: dict[int, Shift] = {}
    for rank in found.minority:
        told = steps.get(rank) or alignment.by_history(snapshot, found.at[0], rank)
        if told is None:
            return {}
        seen[rank] = told
    return seen


def finished(snapshot: Snapshot, rank: int) -> bool:
    """The rank went through its end: it left its process groups or the interpreter, without an error."""
    report = snapshot.ranks.get(rank)
    if report is None or report.coordinate is None or report.coordinate.phase is not Phase.EXITING:
        return False
    return report.process.exit_code in (0, None) and report.process.signal is None and not report.notes


def find(snapshot: Snapshot, graph: WaitGraph) -> Missing | None:
    """The first place whose absent members have all finished."""
    for place in graph.places.values():
        if place.absent and not place.unknown and all(finished(snapshot, r) for r in place.absent):
            absent = dict.fromkeys(place.absent, False)
            return _judge(snapshot, place, absent, passed=False)
    return None


def parted(snapshot: Snapshot, well: Mapping[int, bool]) -> Missing | None:
    """Some ranks ended well, and then the collective of the others failed, which no public call shows.

    ``well``: by rank, False for those whose collective failed. None where C3 names nobody: a strict majority
    says who belongs to the other side, those who left one out or those who made one more.
    """
    failed = [rank for rank, ended in well.items() if not ended]
    gone = [rank for rank, ended in well.items() if ended and finished(snapshot, rank)]
    at = _last_place(snapshot, failed, gone)
    if at is None or not gone:
        return None
    place = Place(at, tuple(sorted(failed)), frozenset(), tuple(sorted(gone)), ())
    found = _judge(snapshot, place, dict.fromkeys(gone, False), passed=False)
    return found if found is not None and found.minority else None


def _last_place(snapshot: Snapshot, failed: Collection[int], gone: Collection[int]) -> Rendezvous | None:
    """Where the ranks that failed stood, in a group that they share with those who are gone."""
    for group, facts in snapshot.groups.items():
        if facts.members is not None and all(r in facts.members for r in (*failed, *gone)):
            views = snapshot.views(group)
            reached = [views[r].enqueued for r in failed if r in views]
            if len(reached) == len(failed) and reached:
                return group, max(reached)
    return None


def passed(snapshot: Snapshot, graph: WaitGraph, ranks: Collection[int]) -> Missing | None:
    """Among ranks that wait for each other: those who passed by a place that the others had to enter before
    that step, or those who entered one that all others passed by. None where C3 names nobody."""
    circle = frozenset(ranks)
    for place in graph.places.values():
        inside = place.blocked & circle
        steps = [s for r in inside if (s := alignment.step_at(snapshot.ranks.get(r), place.at)) is not None]
        last = max(steps, default=None)
        later = [r for r in place.absent if last is not None and r in circle and _step(snapshot, r) > last]
        found = _judge(snapshot, place, dict.fromkeys(later, False), passed=True) if later else None
        if found is not None and found.minority:
            return found
    return None


def _step(snapshot: Snapshot, rank: int) -> int:
    report = snapshot.ranks.get(rank)
    return report.coordinate.step if report is not None and report.coordinate is not None else 0


def _judge(snapshot: Snapshot, place: Place, never: Mapping[int, bool], passed: bool) -> Missing | None:
    """``never``: False for the members who will not come. Those who may still come have no say."""
    facts = snapshot.groups.get(place.at[0])
    if facts is None or facts.members is None:
        return None
    members = tuple(facts.members)
    undecided = set(place.absent) | set(place.unknown)
    came = [never.get(rank, None if rank in undecided else True) for rank in members]
    consensus = exact(came)
    named = consensus.status is Status.ATTRIBUTED
    minority = tuple(r for r, out in zip(members, consensus.outliers, strict=True) if out and named)
    return Missing(place, members, minority, bool(minority) and minority[0] not in never, passed, consensus)
