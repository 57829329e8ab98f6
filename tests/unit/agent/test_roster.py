"""Columns say what marks say, to whoever knows the same nodes, and nothing to anybody else."""

from __future__ import annotations

import pytest

from scoutd.agent.messages import LAST_BEAT, Blob, Columns, Mark
from scoutd.agent.replica import MOST, Replica

NAMES = ("c", "a", "d", "b")


def cluster() -> dict[str, Replica]:
    """All know all; each has published once and heard of no report yet."""
    made = {name: Replica(name, f"{name}:1", 1) for name in NAMES}
    for one in made.values():
        one.publish(one.me.encode(), 0)
    marks = [one.mine for one in made.values()]
    for one in made.values():
        one.merge_marks(marks, 0)
    return made


def test_who_knows_the_same_nodes_has_the_same_digest_whatever_the_order() -> None:
    made = cluster()
    assert len({one.roster for one in made.values()}) == 1
    other = Replica("e", "e:1", 1)
    assert other.roster not in {0, made["a"].roster}


@pytest.mark.parametrize(
    "news",
    [Mark("e", "e:1", 1, 1, 1), Mark("b", "b:1", 2, 1, 1), Mark("b", "elsewhere:1", 1, 1, 99)],
    ids=["another node", "another life", "another address"],
)
def test_a_node_that_only_one_knows_makes_columns_strange(news: Mark) -> None:
    made = cluster()
    made["a"].merge_marks([news], 1)
    assert made["a"].roster != made["d"].roster
    assert made["d"].compare(made["a"].columns(), 1) is None
    made["d"].merge_marks([news], 1)
    assert made["a"].roster == made["d"].roster


def test_columns_find_what_marks_find() -> None:
    made = cluster()
    one, other = made["a"], made["d"]
    one.merge_blobs(made["b"].blobs(["b"], 0), 0)
    other.merge_blobs(made["c"].blobs(["c"], 0), 0)
    one.merge_marks([made["b"].mine._replace(beat=7)], 1)
    other.merge_marks([made["c"].mine._replace(version=5, beat=6)], 1)
    by_marks = other.difference(one.marks())
    found = other.compare(one.columns(), 5)
    assert found is not None
    assert found.grown == ["b"]
    assert other.entries["b"].heard_ns == 5
    lacks, wanted, newer = by_marks
    assert (sorted(found.lacks), sorted(found.wanted)) == (sorted(lacks), sorted(wanted))
    assert sorted(lacks) == ["c", "d"]
    assert sorted(wanted) == ["a", "b"]
    reply = one.compare(found.newer, 6)
    assert reply is not None
    assert reply.grown == [mark.node for mark in newer] == ["c"]
    assert one.entries["c"].version == 5
    assert one.roster == other.roster
    settled = other.compare(one.columns(), 7)
    assert settled is not None
    assert settled.grown == []
    assert settled.newer.at == ()


def test_an_earlier_life_of_mine_with_my_incarnation_is_outdone() -> None:
    made = cluster()
    one, other = made["a"], made["d"]
    other.merge_marks([one.mine._replace(beat=90)], 1)
    assert one.compare(other.columns(), 1) is None
    assert one.mine.incarnation == 2
    assert one.conflict == ""


def test_a_leave_is_told_by_columns_too() -> None:
    made = cluster()
    made["a"].depart(1)
    found = made["d"].compare(made["a"].columns(), 1)
    assert found is not None
    assert found.grown == ["a"]
    assert made["d"].entries["a"].left
    assert made["d"].mark_of("a").beat == LAST_BEAT
    assert set(made["d"].others) == {"b", "c"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c._replace(version=c.version[1:]),
        lambda c: c._replace(held=(*c.held, 1)),
        lambda c: c._replace(at=(0, 1, 2, 4)),
        lambda c: c._replace(at=(0,)),
        lambda c: c._replace(roster=0),
    ],
)
def test_unsound_columns_say_nothing(damage: object) -> None:
    made = cluster()
    told: Columns = damage(made["a"].columns())  # type: ignore[operator]
    before = made["d"].marks()
    assert made["d"].compare(told, 1) is None
    assert made["d"].marks() == before


def test_a_new_life_begins_with_nothing_held() -> None:
    made = cluster()
    one = made["a"]
    one.merge_blobs(made["b"].blobs(["b"], 0), 0)
    assert "b" in one.reports()
    one.merge_blobs([Blob(Mark("b", "b:9", 2, 3, 3, 0), b"", 0)], 1)
    assert "b" not in one.reports()
    assert one.missing
    assert one.mark_of("b") == Mark("b", "b:9", 2, 3, 3, 0)


LARGEST = (1 << 64) - 1


def test_no_columns_can_change_what_a_node_knows_of_itself() -> None:
    """Its own position twice; or an incarnation that cannot be outdone any more."""
    made = cluster()
    one = made["a"]
    before = one.mine
    twice = Columns(one.roster, (0, LARGEST), (0, LARGEST), (0, 0), (0, 0))
    assert one.compare(twice, 1) is None
    assert one.mine == before
    one.merge_marks([before._replace(incarnation=MOST - 1)], 1)
    assert one.mine.incarnation == MOST
    mine = one.mine
    wild = one.columns()._replace(version=(LARGEST,) * 4, beat=(LARGEST,) * 4)
    assert one.compare(wild, 2) is None
    assert (one.mine.version, one.mine.beat) == (mine.version + 1, mine.beat + 1)
    one.publish(b"again", 3)


def test_who_moves_tells_so_by_its_beat() -> None:
    made = cluster()
    made["a"].move("a:2")
    made["d"].merge_marks([made["a"].mine], 1)
    assert made["d"].mark_of("a").address == "a:2"
    assert made["a"].roster == made["d"].roster
