"""The replicated map as a state machine: merged in any order, with duplicates and losses, it converges.

Four agents publish, beat, retract, lose their counters and exchange. After a full exchange all hold equal
digests, every agent holds the newest report of every node, and no older report has ever replaced a newer one.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scoutd.agent.messages import Blob, Mark
from scoutd.agent.replica import Replica

NODES = ("a", "b", "c", "d")
WHO = st.sampled_from(NODES)


class Agents(RuleBasedStateMachine):
    """``sent``: exchanges on their way, delivered in any order, never, or twice."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.replicas = {node: Replica(node, f"{node}:1", 1) for node in NODES}
        self.sent: list[tuple[str, tuple[Mark, ...], tuple[Blob, ...]]] = []
        self.counter = 0
        self.lives = 0
        self.held: dict[tuple[str, str], tuple[int, int]] = {}

    def tick(self) -> int:
        self.now += 1
        return self.now

    @rule(node=WHO)
    def publish(self, node: str) -> None:
        self.counter += 1
        self.replicas[node].publish(f"{node} {self.counter}".encode(), self.tick())

    @rule(node=WHO)
    def beat(self, node: str) -> None:
        self.replicas[node].beat(self.tick())

    @rule(node=WHO)
    def retract(self, node: str) -> None:
        self.replicas[node].retract(self.tick())

    @rule(node=WHO, start=st.integers(0, 20))
    def restart_without_memory(self, node: str, start: int) -> None:
        """The agent lost its persisted incarnation; others still know the old one. It counts from a number
        at which no earlier life began."""
        self.lives += 1
        self.replicas[node] = Replica(node, f"{node}:1", 1)
        self.replicas[node].begin(100_000 * start + 1000 * self.lives)
        self.held = {key: value for key, value in self.held.items() if key[0] != node}

    @rule(source=WHO, receiver=WHO, marks=st.sets(WHO), reports=st.sets(WHO))
    def send(self, source: str, receiver: str, marks: set[str], reports: set[str]) -> None:
        """Any part of what an agent knows is on its way to another."""
        replica = self.replicas[source]
        known = tuple(replica.mark_of(n) for n in sorted(marks) if n in replica.entries)
        self.sent.append((receiver, known, replica.blobs(sorted(reports), self.tick())))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), again=st.booleans())
    def deliver(self, data: st.DataObject, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.sent) - 1))
        target, marks, blobs = self.sent[at] if again else self.sent.pop(at)
        self.replicas[target].merge_marks(marks, self.tick())
        self.replicas[target].merge_blobs(blobs, self.now)

    @precondition(lambda self: self.sent)
    @rule()
    def lose_everything_on_its_way(self) -> None:
        self.sent.clear()

    @rule(columns=st.booleans())
    def exchange_fully(self, columns: bool) -> None:
        """Push-pull between all pairs, until nobody learns anything."""
        for _ in range(3):
            for one in NODES:
                for peer in NODES:
                    if one != peer:
                        self._sync(self.replicas[one], self.replicas[peer], columns)
        assert len({r.digest() for r in self.replicas.values()}) == 1
        for node, replica in self.replicas.items():
            mine = replica.entries[node]
            for other in self.replicas.values():
                copy = other.entries[node]
                assert (copy.data, copy.mark.incarnation) == (mine.data, mine.mark.incarnation)

    def _sync(self, mine: Replica, theirs: Replica, columns: bool) -> None:
        """With columns where they say something, else with marks."""
        now = self.tick()
        compared = theirs.compare(mine.columns(), now) if columns else None
        if compared is not None:
            lacks, wanted = compared.lacks, compared.wanted
            assert mine.compare(compared.newer, now) is not None
        else:
            asked = mine.marks()
            theirs.merge_marks(asked, now)
            lacks, wanted, newer = theirs.difference(asked)
            mine.merge_marks(newer, now)
        mine.merge_blobs(theirs.blobs(lacks, now), now)
        theirs.merge_blobs(mine.blobs(wanted, now), now)

    @invariant()
    def nobody_goes_back(self) -> None:
        """(incarnation, version of the held report) only grows, and the held report is of that version."""
        for me, replica in self.replicas.items():
            for node, entry in replica.entries.items():
                newest = (entry.mark.incarnation, entry.mark.held)
                assert newest >= self.held.get((me, node), (0, 0))
                assert entry.mark.held <= entry.mark.version
                assert (entry.data is None) == (entry.mark.held == 0)
                self.held[(me, node)] = newest


Agents.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestReplica = Agents.TestCase


def test_a_higher_incarnation_of_mine_is_outdone() -> None:
    mine = Replica("a", "a:1", 1)
    mine.publish(b"now", 0)
    mine.merge_marks([Mark("a", "a:1", 7, 40, 90)], 1)
    assert mine.mine.incarnation == 8
    assert mine.blobs(["a"], 1)[0].data == b"now"


def test_an_earlier_life_with_the_same_incarnation_is_outdone() -> None:
    mine = Replica("a", "a:1", 1)
    mine.publish(b"now", 0)
    mine.merge_marks([Mark("a", "a:1", 1, 40, 90)], 1)
    assert (mine.mine.incarnation, mine.conflict) == (2, "")


def test_two_agents_with_one_name_notice() -> None:
    mine = Replica("a", "a:1", 1)
    mine.merge_marks([Mark("a", "elsewhere:1", 1, 3, 3)], 1)
    assert mine.conflict == "elsewhere:1"


def test_a_late_report_never_replaces_a_newer_one() -> None:
    owner, other = Replica("a", "a:1", 1), Replica("b", "b:1", 1)
    owner.publish(b"old", 0)
    old = owner.blobs(["a"], 0)
    owner.publish(b"new", 1)
    other.merge_blobs(owner.blobs(["a"], 1), 1)
    assert other.merge_blobs(old, 2) == 0
    assert other.reports()["a"][0] == b"new"


def test_ages_add_up_over_hops() -> None:
    a, b, c = (Replica(node, f"{node}:1", 1) for node in "abc")
    a.publish(b"x", 1000)
    b.merge_blobs(a.blobs(["a"], 1500), 77_000)
    c.merge_blobs(b.blobs(["a"], 77_300), 5)
    assert 5 - c.reports()["a"][2] == 800
