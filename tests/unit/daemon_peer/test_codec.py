"""Reports and messages survive the wire; garbage is a ValueError and nothing else."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoutd.agent import messages as m
from scoutd.agent.evidence import NodeReport, SeenDeath
from scoutd.agent.firsts import MOST_SEEN
from scoutd.agent.tally import Tallies
from scoutd.daemon.peer import messagecodec, reportcodec, tallycodec
from scoutd.proto.v1 import evidence_pb2, peer_pb2
from tests.unit.agent import replaying
from tests.unit.agent.job import Job
from tests.unit.daemon_peer import reports


def healthy(ranks: int) -> NodeReport:
    return NodeReport("job", 1, "node", 1, 1, ranks, tuple(Job(ranks).ranks.values()))


REPLY_OF = {
    m.ProbeReply: "Probe",
    m.RelayReply: "Relay",
    m.SyncReply: "Sync",
    m.PushReply: "Push",
    m.OrderReply: "Order",
    m.LayoutReply: "Layout",
}


@settings(max_examples=30, deadline=None)
@given(reports.reports)
def test_a_report_survives(report: NodeReport) -> None:
    assert reportcodec.decode_report(reportcodec.encode_report(report)) == report


def test_a_report_of_too_many_deaths_elsewhere_is_refused() -> None:
    seen = tuple(SeenDeath(rank, 0) for rank in range(MOST_SEEN + 1))
    with pytest.raises(ValueError, match="deaths elsewhere"):
        reportcodec.decode_report(reportcodec.encode_report(replace(healthy(2), seen=seen)))


@settings(max_examples=30, deadline=None)
@given(reports.requests)
def test_a_request_survives(request: m.Request) -> None:
    kind = messagecodec.kind_of(request)
    assert messagecodec.decode_request(kind, messagecodec.encode(request)) == request


@settings(max_examples=30, deadline=None)
@given(reports.replies)
def test_a_reply_survives(reply: m.Reply) -> None:
    assert messagecodec.decode_reply(REPLY_OF[type(reply)], messagecodec.encode(reply)) == reply


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200), reports.reports, st.data())
def test_mutated_bytes_are_a_report_or_a_value_error(
    noise: bytes, report: NodeReport, data: st.DataObject
) -> None:
    whole = reportcodec.encode_report(report)
    at = data.draw(st.integers(0, len(whole)))
    for mutated in (noise, whole[:at], whole[:at] + noise + whole[at:], whole[:at] + noise):
        try:
            found = reportcodec.decode_report(mutated)
        except ValueError:
            continue
        assert isinstance(found, NodeReport)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(messagecodec.KINDS.values())), st.binary(max_size=120))
def test_noise_is_a_message_or_a_value_error(kind: str, noise: bytes) -> None:
    for decode in (messagecodec.decode_request, messagecodec.decode_reply):
        try:
            decode(kind, noise)
        except ValueError:
            continue


def test_an_index_outside_its_table_is_refused() -> None:
    whole = evidence_pb2.NodeEvidence.FromString(reportcodec.encode_report(healthy(2)))
    whole.ranks[0].device = len(whole.texts)
    with pytest.raises(ValueError, match="index"):
        reportcodec.decode_report(whole.SerializeToString())


def test_a_group_of_the_whole_world_and_more_is_refused() -> None:
    whole = evidence_pb2.NodeEvidence.FromString(reportcodec.encode_report(healthy(2)))
    whole.groups[0].runs[:] = [0, 1, 1 << 31]
    with pytest.raises(ValueError, match="members"):
        reportcodec.decode_report(whole.SerializeToString())


def test_groups_and_texts_stand_once_for_all_ranks() -> None:
    small, large = (len(reportcodec.encode_report(healthy(size))) for size in (1, 16))
    whole = evidence_pb2.NodeEvidence.FromString(reportcodec.encode_report(healthy(16)))
    assert len(whole.groups) == 1
    assert len(set(whole.texts)) == len(whole.texts)
    assert large < 16 * small / 2


def test_a_body_is_bounded_and_what_does_not_fit_is_left_out() -> None:
    mark = m.Mark("n", "a:1", 1, 1, 1, 1)
    blobs = tuple(m.Blob(mark, bytes(300_000), 0) for _ in range(20))
    body = messagecodec.encode(m.Push(blobs))
    assert len(body) <= messagecodec.MAX_BODY_BYTES
    taken = messagecodec.decode_request("Push", body)
    assert isinstance(taken, m.Push)
    assert 0 < len(taken.blobs) < 20


def test_a_body_or_report_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        messagecodec.decode_request("Sync", bytes(messagecodec.MAX_BODY_BYTES + 1))
    with pytest.raises(ValueError, match="bytes"):
        reportcodec.decode_report(bytes(reportcodec.MAX_REPORT_BYTES + 1))


@pytest.mark.parametrize("node", ["", "x" * 200, "a\nb"])
def test_names_are_checked(node: str) -> None:
    marks = peer_pb2.Marks(node=[node], address=["a:1"], incarnation=[1], version=[1], beat=[1], held=[1])
    body = peer_pb2.SyncRequest(marks=marks).SerializeToString()
    with pytest.raises(ValueError, match="a node"):
        messagecodec.decode_request("Sync", body)


def test_columns_of_different_length_are_no_marks() -> None:
    marks = peer_pb2.Marks(
        node=["a", "b"], address=["", ""], incarnation=[1], version=[1], beat=[1], held=[1]
    )
    with pytest.raises(ValueError, match="differ in length"):
        messagecodec.decode_request("Sync", peer_pb2.SyncRequest(marks=marks).SerializeToString())


@pytest.mark.parametrize(
    "fields",
    [
        {"version": [1, 2], "beat": [1, 2], "held": [1]},
        {"version": [1, 2], "beat": [1, 2], "held": [1, 2], "position": [0]},
        {"version": [1], "beat": [1], "held": [1], "position": [0, 1]},
        {"position": [0]},
        {"version": [1, 2], "beat": [1, 2], "held": [1, 2], "position": [3, 3]},
        {column: [1] * (messagecodec.MAX_MARKS + 1) for column in ("version", "beat", "held")},
    ],
    ids=["held", "position", "more positions", "only positions", "twice", "too many"],
)
def test_columns_that_do_not_fit_together_are_refused(fields: dict[str, list[int]]) -> None:
    columns = peer_pb2.Columns(roster=1, **fields)
    with pytest.raises(ValueError, match="versions|positions"):
        messagecodec.decode_request("Sync", peer_pb2.SyncRequest(columns=columns).SerializeToString())
    with pytest.raises(ValueError, match="versions|positions"):
        messagecodec.decode_reply("Sync", peer_pb2.SyncResponse(columns=columns).SerializeToString())


def test_a_node_costs_a_few_bytes_in_columns() -> None:
    told = m.Columns(1 << 63, (40_000,) * 1000, (40_000,) * 1000, (40_000,) * 1000)
    assert len(messagecodec.encode(m.Sync((), 1, (), told))) < 10_000


def test_reports_without_a_mark_each_are_no_blobs() -> None:
    marks = peer_pb2.Marks(node=["a"], address=["a:1"], incarnation=[1], version=[1], beat=[1], held=[1])
    blobs = peer_pb2.Blobs(mark=marks, data=[b"x", b"y"], age_ns=[1])
    with pytest.raises(ValueError, match="longer"):
        messagecodec.decode_request("Push", peer_pb2.PushRequest(blobs=blobs).SerializeToString())


def test_ranks_that_agree_cost_little() -> None:
    """Eight ranks with four rounds each: what they signed stands in the report once."""
    plain, told = healthy(8), healthy(8)
    views = tuple(replaying.view(recipe=r) for r in range(4))
    results = tuple(replaying.result(50, recipe=r) for r in range(4))
    told = replace(told, ranks=tuple(replace(r, recipes=views, replays=results) for r in told.ranks))
    cost = len(reportcodec.encode_report(told)) - len(reportcodec.encode_report(plain))
    assert cost < 4 * (90 + 60) + 8 * 4 * 20


@pytest.mark.parametrize(
    "runs", [[], [0], [0, 0], [4, 1, 0, 1], [0, 4, 2, 1], [0, 1 << 21], [0, 1] * 600], ids=str
)
def test_ranks_of_a_tally_that_make_no_sense_are_refused(runs: list[int]) -> None:
    tally = peer_pb2.Tally(group=1, camps=[peer_pb2.Camp(value=2, runs=runs)])
    with pytest.raises(ValueError, match="ranks of a tally"):
        tallycodec.read_tallies([tally])


@pytest.mark.parametrize(
    "times", [[0], [0, 0], [0, 1 << 13], [4, 1, 0, 1], [3, 1, 3, 2], [1 << 20, 1], [0, 1] * 13], ids=str
)
def test_times_of_a_tally_that_make_no_sense_are_refused(times: list[int]) -> None:
    tally = peer_pb2.Tally(group=1, camps=[peer_pb2.Camp(value=2, runs=[0, 4])], times=times)
    with pytest.raises(ValueError, match="times of a tally"):
        tallycodec.read_tallies([tally])


@pytest.mark.parametrize(("timed", "most"), [(False, 60), (True, 120)])
def test_four_rounds_in_which_all_agree_add_little_to_a_probe(timed: bool, most: int) -> None:
    """Bytes a round, however many ranks agree; how long they took doubles it at most."""
    tallies, dice = Tallies(), random.Random(1)
    for recipe in range(4):
        for rank in range(512):
            time = int(5e6 * dice.gauss(1, 0.05)) if timed else 0
            tallies.add(rank, replaying.result(50, recipe=recipe, module_ns=time), 512)
    plain = m.Probe((m.Mark("node", "host:1", 1, 1, 1),), 0)
    told = m.Probe(plain.marks, 0, tallies.told())
    assert len(messagecodec.encode(told)) - len(messagecodec.encode(plain)) <= 4 * most


@pytest.mark.parametrize("fields", [{}, {"request": 1 << 63}, {"variants": 0}, {"expires_ns": 0}], ids=str)
def test_an_order_that_makes_no_sense_is_refused(fields: dict[str, int]) -> None:
    body = peer_pb2.OrderRequest(**({"request": 0, "variants": 1, "expires_ns": 1} | fields))
    with pytest.raises(ValueError, match="an order"):
        messagecodec.decode_request("Order", body.SerializeToString())
