"""The replicated map is told wild things: it stays bounded and can always be passed on."""

from __future__ import annotations

from scoutd.agent.messages import Blob, Mark
from scoutd.agent.replica import MOST, SPARE_NODES, Replica

LARGEST = (1 << 64) - 1
"""What a uint64 of the wire holds."""


def replica() -> Replica:
    made = Replica("a", "a:1", 1)
    made.publish(b"mine", 0)
    return made


def test_an_incarnation_of_mine_that_cannot_be_outdone() -> None:
    mine = replica()
    for _ in range(2):
        mine.merge_marks([Mark("a", "a:1", LARGEST, LARGEST, LARGEST, LARGEST)], 0)
    assert mine.mine.incarnation == MOST
    mine.publish(b"again", 0)
    assert mine.mine.held == mine.mine.version


def test_a_report_that_claims_to_be_older_than_time() -> None:
    mine = replica()
    mine.merge_blobs([Blob(Mark("b", "b:1", 1, 1, 1, 1), b"report", LARGEST)], 0)
    (blob,) = mine.blobs(["b"], 1 << 60)
    assert 0 <= blob.age_ns <= LARGEST


def test_a_job_has_no_more_nodes_than_ranks() -> None:
    """A few more are kept: a node that was replaced has another name."""
    mine = replica()
    mine.expect(4)
    mine.merge_marks([Mark(f"n{k}", "n:1", 1, 1, 1) for k in range(100)], 0)
    mine.merge_blobs([Blob(Mark(f"m{k}", "m:1", 1, 1, 1, 1), b"", 0) for k in range(100)], 0)
    assert len(mine.entries) == 2 * 4 + SPARE_NODES
    assert "a" in mine.entries
    mine.merge_marks([Mark("n3", "n:1", 1, 1, 2)], 0)
    assert mine.entries["n3"].mark.beat == 2
