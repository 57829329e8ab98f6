"""A rank that made a collective fewer, or one more, than its peers (design §4 f), seen at the end.

While all ranks run, such a rank shows up elsewhere: it waits at the same sequence with another fingerprint
(``mismatch``), or it hangs in its own code (``waitfor``). At the end of the program nothing comes that could
disagree: some ranks are through, others wait at a place to which nobody will come. Who is right is a
question of majority, not of who waits: exact C3 over "entered this sequence". A rank that left early is in
the minority that did not enter; one that made an extra call is in the minority that did.
"""

from __future__ import annotations

from dataclasses import dataclass

from scoutd.agent.consensus import Consensus, exact
from scoutd.agent.evidence import Phase
from scoutd.agent.snapshot import Snapshot
from scoutd.agent.verdict import Status
from scoutd.agent.waitfor import Place, WaitGraph


@dataclass(frozen=True, slots=True)
class Missing:
    """``minority`` is empty where C3 cannot judge; ``added``: they made a collective more."""

    place: Place
    members: tuple[int, ...]
    minority: tuple[int, ...]
    added: bool
    consensus: Consensus


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
            return _judge(snapshot, place)
    return None


def _judge(snapshot: Snapshot, place: Place) -> Missing | None:
    facts = snapshot.groups.get(place.at[0])
    if facts is None or facts.members is None:
        return None
    members = tuple(facts.members)
    absent = set(place.absent)
    consensus = exact([rank not in absent for rank in members])
    named = consensus.status is Status.ATTRIBUTED
    minority = tuple(r for r, out in zip(members, consensus.outliers, strict=True) if out and named)
    return Missing(place, members, minority, bool(minority) and minority[0] not in absent, consensus)
