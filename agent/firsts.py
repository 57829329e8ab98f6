"""Which of several deaths on different nodes was first, so that all agents see it alike (design §4 a).

Clocks of two hosts are not compared: a death is as old as its report says, and as that report has been known
here. The way of the report counts for nothing in that. So a death elsewhere looks younger than it is, by some
milliseconds, and to every agent by others: deaths that lie so close together each would put into an order of
its own.

Nodes on which somebody died by itself therefore say in their reports how old they see the death on the other
node. One sees it too young by the way there, the other sees ours too young by the way back; the middle is
right where both ways are as long (so NTP compares clocks). All read it from the same reports, as one order.
Each node compares with one alone, the *reference*, first by name, which compares with all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from scoutd.agent.evidence import SeenDeath
from scoutd.agent.settings import NS_PER_S

MOST_AGE_NS: Final = 1 << 62
MOST_SEEN: Final = 64
"""Deaths on other nodes that one node tells of."""

NEAR_NS: Final = NS_PER_S
"""No report is on its way for so long: whoever died later than that was not the first, whoever looks."""


@dataclass(frozen=True, slots=True)
class Fall:
    """The death of one rank, as old as this agent reckons. ``report_age_ns``: of its node's report."""

    rank: int
    node: str
    age_ns: int
    report_age_ns: int


Seen = Mapping[str, tuple[SeenDeath, ...]]
"""By node: what it tells of deaths elsewhere."""


def first_of_nodes(falls: Iterable[Fall]) -> dict[str, Fall]:
    """The first death on each node."""
    found: dict[str, Fall] = {}
    for fall in sorted(falls, key=lambda f: (-f.age_ns, f.rank)):
        found.setdefault(fall.node, fall)
    return found


def shifts(falls: Iterable[Fall], seen: Seen) -> dict[str, int]:
    """How much older than this agent reckons the deaths on each node are, against those on the reference, in
    ns. Nodes of which nobody tells anything are left out."""
    known = {fall.rank: fall for fall in falls}
    first = first_of_nodes(known.values())
    if len(first) < 2:
        return {}
    reference = first[min(first)]
    found: dict[str, int] = {}
    for node, fall in first.items():
        claims = _claims(reference, fall, known, seen)
        if node != reference.node and claims:
            found[node] = sum(max(-NEAR_NS, min(c, NEAR_NS)) for c in claims) // len(claims)
    return found


def awaited(falls: Iterable[Fall], seen: Seen, silent: Iterable[str]) -> bool:
    """Of deaths near the first, some node has not told yet what it can. ``silent``: nodes that will not."""
    known = {fall.rank: fall for fall in falls}
    first = first_of_nodes(known.values())
    if len(first) < 2:
        return False
    eldest = max(fall.age_ns for fall in first.values())
    reference = first[min(first)]
    near = [f for f in first.values() if eldest - f.age_ns <= NEAR_NS and f is not reference]
    if not near or (len(near) == 1 and eldest - reference.age_ns > NEAR_NS):
        return False
    lost = frozenset(silent)
    told = {s.rank for s in seen.get(reference.node, ())}
    full = len(told) >= MOST_SEEN or reference.node in lost
    return any(
        (not full and _tells(reference.node, fall.node, known, seen) is None)
        or (fall.node not in lost and _tells(fall.node, reference.node, known, seen) is None)
        for fall in near
    )


def _claims(reference: Fall, fall: Fall, known: Mapping[int, Fall], seen: Seen) -> list[int]:
    """What the two nodes say of how much older ``fall`` is than reckoned; less than it is, and more."""
    here = _tells(reference.node, fall.node, known, seen)
    there = _tells(fall.node, reference.node, known, seen)
    claims = []
    if here is not None:
        claims.append(here.age_ns + reference.report_age_ns - known[here.rank].age_ns)
    if there is not None:
        claims.append(known[there.rank].age_ns - there.age_ns - fall.report_age_ns)
    return claims


def _tells(teller: str, of: str, known: Mapping[int, Fall], seen: Seen) -> SeenDeath | None:
    """What ``teller`` says of a death on the other node."""
    return next((s for s in seen.get(teller, ()) if s.rank in known and known[s.rank].node == of), None)


@dataclass
class Sightings:
    """What this node has to tell. What it has told once stands: a later reckoning is not better."""

    _when: dict[int, int] = field(default_factory=dict)
    """By rank, on the local clock."""

    def look(self, me: str, falls: Iterable[Fall], now_ns: int) -> None:
        """These deaths are known now."""
        known = {fall.rank: fall for fall in falls}
        first = first_of_nodes(known.values())
        if me not in first or len(first) < 2:
            return
        reference = min(first)
        told = {known[rank].node for rank in self._when if rank in known}
        for node in first if me == reference else (reference,):
            if node not in told and node != me and len(self._when) < MOST_SEEN:
                self._when[first[node].rank] = now_ns - first[node].age_ns

    def told(self, now_ns: int) -> tuple[SeenDeath, ...]:
        """Bounded: how long ago it was is a peer's word."""
        return tuple(
            SeenDeath(rank, max(0, min(now_ns - when, MOST_AGE_NS))) for rank, when in self._when.items()
        )
