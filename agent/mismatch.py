"""Fingerprints that disagree (design §4 c): exact C3 at one (group, sequence).

Members that meet at one place must agree on operation, element type, size, and reduce operation or root.
Public calls tell all of it; the Flight Recorder tells operation, type and size only, so members are
compared on what every one of them knows. Gloo aborts or fails *some* rank when sizes differ, often an
innocent one; what was published before the call survives it and is judged here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from scoutd.agent.census import census
from scoutd.agent.consensus import Consensus, exact
from scoutd.agent.evidence import Call, Fingerprint
from scoutd.agent.snapshot import Rendezvous, Snapshot
from scoutd.agent.verdict import Status

SIZES_MAY_DIFFER: Final = frozenset({"all_to_all", "all_to_all_single"})
"""Operations whose splits may legally differ between members."""

_words: Final = attrgetter("operation", "dtype", "numel", "argument")
"""All of a fingerprint, quicker to compare than the fingerprint itself."""

COUNTED_ALIKE: Final = frozenset({"all_reduce", "broadcast"})
"""Operations on one tensor, whose elements the public call and the recorder count alike."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Members disagree at ``at``. ``minority`` is empty where C3 cannot judge."""

    at: Rendezvous
    members: tuple[int, ...]
    calls: dict[int, Call]
    consensus: Consensus
    minority: tuple[int, ...]


def find(snapshot: Snapshot) -> Mismatch | None:
    """The first mismatch among the places at which somebody waits or failed, oldest place first.

    One with a minority is preferred to one that C3 cannot judge.
    """
    return snapshot.once(_find, lasting=True)


def _find(snapshot: Snapshot) -> Mismatch | None:
    found = [m for at in _open_places(snapshot) if (m := judge(snapshot, at)) is not None]
    return next((m for m in found if m.minority), found[0] if found else None)


def judge(snapshot: Snapshot, at: Rendezvous) -> Mismatch | None:
    """None if everybody who arrived there agrees."""
    facts = snapshot.groups.get(at[0])
    if facts is None or facts.members is None:
        return None
    calls = {r: c for r in facts.members if r in snapshot.ranks and (c := snapshot.call_at(r, at))}
    if len(calls) < 2 or any(call.fingerprint.operation == "" for call in calls.values()):
        return None
    members = tuple(facts.members)
    comparable = _comparable(calls)
    consensus = exact([comparable.get(rank) for rank in members])
    if len(set(comparable.values())) < 2:
        return None
    attributed = consensus.status is Status.ATTRIBUTED
    minority = tuple(r for r, out in zip(members, consensus.outliers, strict=True) if out and attributed)
    return Mismatch(at, members, calls, consensus, minority)


def _comparable(calls: dict[int, Call]) -> dict[int, Fingerprint]:
    """The part of each fingerprint that every member's source knows and that must agree.

    The recorder does not know reduce operations and roots, and counts the elements of most operations
    differently from the public call, so mixed sources are compared by operation, type and size where they
    count alike, and by operation alone elsewhere.
    """
    mixed = len({call.source for call in calls.values()}) > 1
    return {rank: _essence(call.fingerprint, mixed) for rank, call in calls.items()}


def _essence(fingerprint: Fingerprint, mixed: bool) -> Fingerprint:
    if mixed and fingerprint.operation in COUNTED_ALIKE:
        return replace(fingerprint, argument=None)
    if mixed:
        return Fingerprint(fingerprint.operation, "", None, None)
    sized = fingerprint.operation not in SIZES_MAY_DIFFER
    return fingerprint if sized else replace(fingerprint, numel=None)


def _open_places(snapshot: Snapshot) -> Iterable[Rendezvous]:
    """Those at which the calls are not all known to be equal."""
    seen = census(snapshot)
    doubtful = [
        (at, own)
        for at, own in seen.unfinished.items()
        if at in seen.finished or len({_words(call.fingerprint) for _, call in own}) > 1
    ]
    oldest = {at: max(c.age_ns + snapshot.age_ns(r) for r, c in own) for at, own in doubtful}
    return sorted(oldest, key=lambda at: (-oldest[at], at))


def describe(call: Call) -> str:
    """ "all_reduce float32 [8, 16] SUM": one side of the disagreement, for people."""
    fingerprint = call.fingerprint
    words = [fingerprint.operation, fingerprint.dtype, call.shape, fingerprint.argument or ""]
    if not call.shape and fingerprint.numel is not None:
        words[2] = f"{fingerprint.numel} elements"
    return " ".join(word for word in words if word)
