"""Streams of collectives that are shifted against each other (design §4 f).

A rank that left a collective out, or made one more, is from then on one place off: its call ``k`` meets the
others' call ``k`` although it is their ``k ± 1``. Where sizes fit nobody notices, until some day they do not,
and what is seen then looks like a wrong call. Two things tell a shift from a wrong call:

- *Histories.* The reference is what a strict majority of the members called at each sequence. If the rank's
  calls from the first difference on equal the reference at a distance, and not where they stand, one event
  explains all of them, and as many wrong calls would be needed instead. One difference at the very end is no
  proof: either reading needs one event.
- *Steps.* At one place, in one program, everybody is in one step of the loop. Who is there in a later step
  has made fewer collectives per step: it left some out. In an earlier step: it made more.

A shift says what kind of fault it is, and in which direction. Whom it concerns is a matter of majority.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from scoutd.agent.consensus import exact
from scoutd.agent.evidence import RankReport
from scoutd.agent.snapshot import Rendezvous, Snapshot, collectives
from scoutd.agent.verdict import Status

FARTHEST: Final = 8
"""Half of a history: a longer shift leaves too little to compare."""

DISTANCES: Final = (*range(1, FARTHEST + 1), *range(-1, -FARTHEST - 1, -1))

RECORDED: Final = 1 << 63
"""Marks hashes of the recorder (``Fingerprints``)."""

Stream = Mapping[int, int]
"""Hashes by sequence."""


@dataclass(frozen=True, slots=True)
class Shift:
    """``by`` > 0: so many collectives were left out, < 0: made more, None: either; ``first``: the sequence
    from which the calls differ, None where steps tell; ``text``: what was seen, for people."""

    by: int | None
    first: int | None
    text: str

    @property
    def what(self) -> str:
        if self.by is None:
            return "left out a collective or made one more"
        many = "a collective" if abs(self.by) == 1 and self.first is not None else "collectives"
        return (
            f"left out {many}" if self.by > 0 else f"made {'one' if many == 'a collective' else 'some'} more"
        )


def shift(own: Stream, reference: Stream) -> Shift | None:
    """How the stream is shifted against the reference, None where that is not proven."""
    both = sorted(k for k in own if _comparable(own.get(k), reference.get(k)))
    differ = [k for k in both if own[k] != reference[k]]
    if len(differ) < 2 or _swapped(own, reference, differ):
        return None
    first = differ[0]
    fits = {d: m for d in DISTANCES if (m := _misfits(own, reference, first, d)) is not None}
    least = min(fits.items(), key=lambda fit: (fit[1], abs(fit[0])), default=None)
    if least is None or 1 + least[1] >= len(differ):
        return None
    both_ways = fits.get(-least[0]) == least[1]
    text = f"its calls from #{first} on are those that the others make {_distance(least[0], both_ways)}"
    return Shift(None if both_ways else least[0], first, text)


def _misfits(own: Stream, reference: Stream, first: int, by: int) -> int | None:
    """How many calls differ if the stream is ``by`` behind; None where nothing can be compared."""
    start = first if by > 0 else first - by
    pairs = [
        (own[k], reference[k + by]) for k in own if k >= start and _comparable(own[k], reference.get(k + by))
    ]
    return sum(a != b for a, b in pairs) if pairs else None


def _comparable(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and not (one ^ other) & RECORDED


def _swapped(own: Stream, reference: Stream, differ: list[int]) -> bool:
    """Two neighbours in the other order, and nothing else: one event, too."""
    one, two = differ[0], differ[-1]
    return two == one + 1 and own[one] == reference[two] and own[two] == reference[one]


def _distance(by: int, both_ways: bool) -> str:
    many = "one place" if abs(by) == 1 else f"{abs(by)} places"
    return f"{many} {'away' if both_ways else 'later' if by > 0 else 'earlier'}"


def reference(snapshot: Snapshot, group: int) -> dict[int, int]:
    """What a strict majority of the group's members called, by sequence."""
    facts = snapshot.groups.get(group)
    if facts is None or facts.members is None:
        return {}
    histories = (view.history.by_sequence() for view in snapshot.views(group).values() if view.history)
    return majority(histories, len(facts.members))


def majority(streams: Iterable[Stream], size: int) -> dict[int, int]:
    """What more than half of ``size`` members called, by sequence."""
    told: dict[int, Counter[int]] = {}
    for stream in streams:
        for sequence, value in stream.items():
            told.setdefault(sequence, Counter())[value] += 1
    common = ((sequence, counts.most_common(1)[0]) for sequence, counts in told.items())
    return {sequence: value for sequence, (value, count) in common if 2 * count > size}


def by_history(snapshot: Snapshot, group: int, rank: int) -> Shift | None:
    """The shift of this rank's calls against those of the group's majority."""
    view = snapshot.view(rank, group)
    if view is None or view.history is None:
        return None
    return shift(view.history.by_sequence(), reference(snapshot, group))


def by_steps(snapshot: Snapshot, at: Rendezvous, members: Iterable[int]) -> dict[int, Shift]:
    """The members that are at the place in another step than the majority."""
    ranks = tuple(members)
    steps = [step_at(snapshot.ranks.get(rank), at) for rank in ranks]
    result = exact(steps)
    if result.status is not Status.ATTRIBUTED or not isinstance(result.majority, int):
        return {}
    found = {}
    for rank, step, out in zip(ranks, steps, result.outliers, strict=True):
        if out and step is not None:
            by = 1 if step > result.majority else -1
            found[rank] = Shift(by, None, f"it is there in step {step}, the others in step {result.majority}")
    return found


def step_at(report: RankReport | None, at: Rendezvous) -> int | None:
    """The rank's step when it entered the place: known while that is the last collective it entered."""
    if report is None or report.coordinate is None:
        return None
    newest = min(collectives(report), key=lambda c: (c.age_ns, -c.sequence), default=None)
    return report.coordinate.step if newest is not None and (newest.group, newest.sequence) == at else None
