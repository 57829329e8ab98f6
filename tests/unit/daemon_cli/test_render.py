from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from scoutd.daemon.cli.render import explanation, panel, title
from scoutd.proto.v1 import verdict_pb2 as pb

from .verdicts import death, hang, mismatch


def draw(renderable: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get().splitlines()


def flat(lines: list[str]) -> str:
    return " ".join(" ".join(line.strip("│ ").split()) for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_the_panel_tells_all_at_a_glance(width: int) -> None:
    lines = draw(panel(hang(), "scoutd explain 0a1b2c3d4e5f"), width)
    text = flat(lines)
    assert all(len(line) == width for line in lines)
    assert len(lines) <= 16
    for part in (
        "HANG · RANK_STALLED · rank 2",
        "rank 2 on node-a, pid 4711, cpu",
        "FORWARD blocks.2 (Block)",
        "/train/model.py:88 in forward",
        "5.3 s before this verdict",
        "ranks 0, 1, 3 wait for rank 2 in all_reduce #7 of default_pg",
        "Restart the job",
        "scoutd explain 0a1b2c3d4e5f",
    ):
        assert part in text


def test_both_fingerprints_of_a_mismatch_are_shown() -> None:
    text = flat(draw(panel(mismatch()), 100))
    assert "rank 2: broadcast float32 [4] root=0" in text
    assert "ranks 0, 1, 3: all_reduce float32 [4] SUM" in text


def test_a_death_shows_the_exception_and_its_line() -> None:
    text = flat(draw(panel(death()), 100))
    assert "ValueError: bad batch" in text
    assert "/train/model.py:90 in load" in text


def test_a_refused_stack_says_why() -> None:
    verdict = hang()
    del verdict.stacks[:]
    verdict.stacks.add(rank=2, refused="no permission (ptrace_scope 1)")
    assert "no permission (ptrace_scope 1)" in flat(draw(panel(verdict), 80))


def test_nobody_named_is_said_in_words() -> None:
    verdict = pb.Verdict(id="x", symptom=pb.HANG, cause=pb.GROUP_STALL, status=pb.INCONCLUSIVE)
    assert "nobody is named: the evidence does not single out a rank" in flat(draw(panel(verdict), 80))


def test_a_text_in_brackets_is_no_markup() -> None:
    assert "sizes [8, 16] [red]" in flat(draw(panel(hang(operation="sizes [8, 16] [red]")), 120))


def test_an_unknown_cause_of_a_newer_agent_is_shown_by_number() -> None:
    verdict = hang()
    verdict.cause = 999  # type: ignore[assignment]
    assert "999" in title(verdict)


@pytest.mark.parametrize("width", [80, 120])
def test_thousands_of_ranks_fit_on_a_screen(width: int) -> None:
    verdict = hang()
    for rank in range(4, 4096):
        verdict.cleared.add(rank=rank, waits_for=[2], reason="waits in all_reduce #7 of default_pg")
        verdict.evidence.add(rank=rank, kind="coordinate", text=f"step 12, silent for {rank / 100:.1f} s")
    assert len(draw(panel(verdict), width)) < 20
    assert len(draw(explanation(verdict), width)) < 60


def test_the_explanation_has_the_whole_stack_with_the_own_line_marked() -> None:
    lines = draw(explanation(hang()), 100)
    assert any(line.startswith("→ /train/model.py:88 in forward") for line in lines)
    assert any("module.py:1750 in _call_impl" in line for line in lines)


def test_the_explanation_has_evidence_once_per_text() -> None:
    verdict = hang()
    for rank in range(8):
        verdict.evidence.add(rank=rank, kind="coordinate", text="step 12")
    verdict.evidence.add(kind="consensus", text="7 of 8 agree")
    text = flat(draw(explanation(verdict), 100))
    assert "coordinate ranks 0–7: step 12" in text
    assert "consensus 7 of 8 agree" in text
