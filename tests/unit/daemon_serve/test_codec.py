"""Core to wire: same names, wall times, JSON that programs can rely on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from scoutd.agent import evidence, verdict
from scoutd.agent.evidence import CallKind, DeathNote, Frame, Phase, ProcessStatus, Stack
from scoutd.agent.verdict import Cleared, EvidenceItem, RankNote, RankStack, State
from scoutd.daemon import codec
from scoutd.daemon.clock import Stamps, rfc3339
from scoutd.daemon.jobs import Job
from scoutd.daemon.serve import layout as layout_of
from scoutd.daemon.serve import status as status_of
from scoutd.proto.v1 import verdict_pb2 as pb
from tests.unit.daemon_serve import fakes
from tests.unit.daemon_serve.fakes import S

EPOCH_S = 1_700_000_000
STAMPS = Stamps(monotonic=1000 * S, wall=EPOCH_S * S)


@pytest.mark.parametrize(
    ("wire", "core", "unset"),
    [
        (pb.Symptom, verdict.Symptom, "SYMPTOM_UNSPECIFIED"),
        (pb.Status, verdict.Status, "STATUS_UNSPECIFIED"),
        (pb.State, verdict.State, "STATE_UNSPECIFIED"),
        (pb.Cause, verdict.Cause, "CAUSE_UNSPECIFIED"),
        (pb.Scope, verdict.Scope, "SCOPE_UNSPECIFIED"),
        (pb.Action, verdict.Action, "ACTION_UNSPECIFIED"),
        (pb.Phase, evidence.Phase, "PHASE_UNSPECIFIED"),
    ],
)
def test_wire_and_core_enums_have_the_same_names(wire: type, core: type, unset: str) -> None:
    names = {member.value for member in core} - {"NONE"}  # type: ignore[attr-defined]
    extra = {"NONE"} if wire is pb.Action else set()
    assert set(wire.keys()) == names | extra | {unset}  # type: ignore[attr-defined]


def full() -> verdict.Verdict:
    stack = Stack((Frame("forward", "train.py", 12), Frame("nanosleep", "", -1, True)), S, True)
    note = DeathNote("EXCEPTION", "ValueError", "bad", "a.py:1 in f", "", S)
    return fakes.verdict(
        cleared=(Cleared(0, (2,), "waits for rank 2"), Cleared(1, (), "")),
        peer_group=(0, 1, 2, 3),
        evidence=(EvidenceItem(None, "consensus", "x"), EvidenceItem(0, "y", "z")),
        stacks=(RankStack(2, stack),),
        death_notes=(RankNote(3, note),),
    )


def test_json_has_names_numbers_and_every_key() -> None:
    fields = json.loads(codec.to_json(codec.encode_verdict(full(), STAMPS)))
    assert (fields["cause"], fields["state"], fields["phase"]) == ("RANK_STALLED", "CONFIRMED", "FORWARD")
    assert fields["implicated"][0] == {
        "rank": 2,
        "node": "n0",
        "pid": "102",
        "device": "cpu",
        "reason": "silent for 5 s",
    }
    assert [each["waits_for"] for each in fields["cleared"]] == [[2], []]
    assert "rank" not in fields["evidence"][0]
    assert fields["evidence"][1]["rank"] == 0
    assert fields["stacks"][0]["frames"][0]["line"] == 12
    assert fields["death_notes"][0]["type"] == "ValueError"
    assert fields["suppressed_because"] == ""
    assert fields["closed_at"] == ""
    assert fields["detection_latency_ms"] == 6000.0


def test_times_are_wall_times() -> None:
    message = codec.encode_verdict(full(), STAMPS)
    assert message.opened_at == "2023-11-14T22:13:20.000Z"
    assert message.confirmed_at == "2023-11-14T22:13:25.000Z"
    assert message.onset_at == "2023-11-14T22:13:19.000Z"
    assert rfc3339(EPOCH_S * S + 250_999_999) == "2023-11-14T22:13:20.250Z"


def test_json_is_one_line_and_keeps_letters() -> None:
    text = codec.to_json(codec.encode_verdict(fakes.verdict(summary="ränk\n2"), STAMPS))
    assert "\n" not in text
    assert "ränk" in text


def test_bytes_round_trip() -> None:
    message = codec.encode_verdict(full(), STAMPS)
    assert codec.verdict_from_bytes(codec.to_bytes(message)) == message


def test_lists_of_the_verdict_before_change_no_word_of_the_next() -> None:
    confirmed = full()
    opened = replace(confirmed, state=State.OPEN, confirmed_ns=None)
    other = replace(confirmed, id="other", cleared=(Cleared(1, (2,), "waits for rank 2"),), evidence=())
    lists = codec.Lists()
    for each in (opened, confirmed, other, fakes.verdict("bare"), confirmed):
        told = codec.to_bytes(codec.encode_verdict(each, STAMPS, lists))
        assert told == codec.to_bytes(codec.encode_verdict(each, STAMPS))


def test_lines_that_differ_in_the_rank_alone_are_told_each_with_its_own() -> None:
    lines = [EvidenceItem(None, "y", "z"), EvidenceItem(0, "y", "z"), EvidenceItem(3, "y", "z")]
    ranks = [Cleared(0, (2,), "waits"), Cleared(1, (2,), "waits"), Cleared(3, (), "waits")]
    message = codec.encode_verdict(replace(full(), cleared=tuple(ranks), evidence=(*lines, lines[0])), STAMPS)
    told = [(each.rank, tuple(each.waits_for), each.reason) for each in message.cleared]
    assert told == ranks
    assert [each.rank if each.HasField("rank") else None for each in message.evidence] == [None, 0, 3, None]


def test_phase_none_is_unset() -> None:
    message = codec.encode_verdict(fakes.verdict(phase=Phase.NONE), STAMPS)
    assert message.phase == pb.PHASE_UNSPECIFIED


def job() -> Job:
    core = fakes.FakeCore()
    core.verdicts = (
        fakes.verdict("aa"),
        fakes.verdict("bb", State.SUPPRESSED),
        fakes.verdict("cc", State.RESOLVED),
        fakes.verdict("dd", State.OPEN),
    )
    seen = fakes.observation(disabled={1: "recorder"}, topology={0: {"coordinates": {"d": 1, "t": "x"}}})
    return Job(seen, core, 1000 * S)


def test_status_counts_ages_on_and_names_what_is_pending() -> None:
    status = status_of.encode_job(job(), STAMPS, 1003 * S)
    rank = status.ranks[1]
    assert (rank.silent_s, rank.heartbeat_age_s) == (5.0, 3.5)
    assert rank.pending == "all_reduce #7 of default_pg"
    assert (rank.step, rank.phase, rank.shim_disabled) == (12, pb.COLLECTIVE, "recorder")
    assert [each.id for each in status.open] == ["aa", "dd"]
    assert status.suppressed == 1
    assert not status.ended


def test_unknown_heartbeat_and_coordinate_stay_unset() -> None:
    made = job()
    bare = fakes.rank_report(0, ProcessStatus.UNKNOWN, heartbeat_age_ns=None, coordinates=(), calls=())
    report = replace(made.observation.report, ranks=(bare,))
    made.observation = replace(made.observation, report=report)  # type: ignore[type-var]
    rank = status_of.encode_job(made, STAMPS, 1000 * S).ranks[0]
    assert not rank.HasField("heartbeat_age_s")
    assert (rank.phase, rank.pending, rank.process) == (0, "", "UNKNOWN")


def test_pending_prefers_the_call_that_the_host_waits_in() -> None:
    base = fakes.rank_report(0)
    call = base.calls[0]
    old = replace(call, sequence=3, waiting=False, age_ns=9 * S)
    assert status_of.pending_text(replace(base, calls=(old, call))) == "all_reduce #7 of default_pg"
    recv = replace(call, kind=CallKind.P2P_RECV, peer=3, group=0xB2)
    assert status_of.pending_text(replace(base, calls=(recv,))) == "all_reduce #7 with rank 3 of b2"


def test_topology_takes_only_known_axes_and_each_group_once() -> None:
    topology = layout_of.encode_topology(job())
    assert dict(topology.ranks[0].coordinates) == {"d": 1}
    assert len(topology.groups) == 1
    assert (topology.groups[0].id, list(topology.groups[0].ranks)) == ("a1", [0, 1, 2, 3])
