from __future__ import annotations

import os

import pytest

from scoutd.daemon.cli import launch, words
from scoutd.proto.v1 import verdict_pb2 as pb

from .verdicts import hang, mismatch


def test_ranks_with_one_story_share_a_line() -> None:
    assert words.cleared(hang()) == ["ranks 0, 1, 3 wait for rank 2 in all_reduce #7 of default_pg"]


def test_a_rank_that_waits_for_nobody_says_what_it_does() -> None:
    verdict = pb.Verdict(cleared=[pb.Cleared(rank=1, reason="makes progress (FORWARD)"), pb.Cleared(rank=4)])
    assert words.cleared(verdict) == ["rank 1: makes progress (FORWARD)", "rank 4: not involved"]


def test_too_many_stories_shrink_to_who_waits_for_whom() -> None:
    cleared = [pb.Cleared(rank=r, waits_for=[0], reason=f"in step {r}") for r in range(1, 4096)]
    assert words.cleared(pb.Verdict(cleared=cleared)) == ["4095 ranks 1–4095 wait for rank 0"]


def test_the_own_frame_is_the_innermost_outside_libraries() -> None:
    frames = words.own_frames(hang().stacks[0].frames)
    assert [words.place(frame) for frame in frames] == ["/train/model.py:88 in forward"]


def test_a_stack_without_user_code_gives_its_innermost_python_frame() -> None:
    frames = [
        pb.Frame(function="poll", file="libc.so.6", native=True),
        pb.Frame(function="wait", file="/usr/lib/python3.11/threading.py", line=3),
    ]
    assert [frame.function for frame in words.own_frames(frames)] == ["wait"]


def test_the_shims_frames_are_not_the_users() -> None:
    frames = [
        pb.Frame(function="wait", file=f"{launch.PACKAGE}/shim/works.py", line=100),
        pb.Frame(function="main", file="/train/train.py", line=7),
    ]
    assert [frame.function for frame in words.own_frames(frames)] == ["main"]


def test_a_path_below_the_working_directory_is_relative() -> None:
    assert words.short_path(f"{os.getcwd()}/src/train.py") == "src/train.py"
    assert words.short_path("/data/train.py") == "/data/train.py"


def test_a_path_of_a_package_begins_with_the_package() -> None:
    assert words.short_path("/e/lib/python3.11/site-packages/torch/nn/x.py") == "torch/nn/x.py"


def test_the_implicated_side_of_a_mismatch_comes_first() -> None:
    assert words.fingerprints(mismatch()) == [
        "rank 2: broadcast float32 [4] root=0",
        "ranks 0, 1, 3: all_reduce float32 [4] SUM",
    ]


@pytest.mark.parametrize("value", pb.Action.values())
def test_every_action_has_its_sentence(value: int) -> None:
    sentence = words.action(hang(action=value))
    assert sentence.endswith(".")
    assert "{" not in sentence


def test_a_newer_agents_words_are_shown_by_number() -> None:
    verdict = pb.Verdict()
    verdict.cause = verdict.action = 999  # type: ignore[assignment]
    assert words.sentence(verdict) == "999 of nobody"
    assert words.action(verdict) == "No action was decided."


@pytest.mark.parametrize(
    ("phase", "operation", "text"),
    [
        (pb.FORWARD, "blocks.2 (Block)", "FORWARD blocks.2 (Block)"),
        (pb.BETWEEN, "after all_reduce", "the script's own code, after all_reduce"),
        (pb.BETWEEN, "", "the script's own code"),
        (pb.PHASE_UNSPECIFIED, "barrier", "barrier"),
    ],
)
def test_what_a_rank_does(phase: int, operation: str, text: str) -> None:
    assert words.doing(phase, operation) == text


def test_replacing_names_the_node() -> None:
    assert "node-a" in words.action(hang(action=pb.REPLACE_NODE))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5.34, "5.3 s"),
        (59.99, "60.0 s"),
        (245, "4 min 5 s"),
        (7380, "2 h 3 min"),
        (-1, "0.0 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_since_tells_clock_and_distance() -> None:
    assert words.since(hang()).endswith("5.3 s before this verdict")
    assert words.since(pb.Verdict()) == ""
