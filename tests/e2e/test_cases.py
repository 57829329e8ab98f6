"""Small scripts made after public reports: plain collectives, no module, no optimizer, no DataLoader."""

from __future__ import annotations

from tests.e2e import expect
from tests.e2e.harness import Site, forked, torchrun

CASES = "../cases/"


def test_killed_rank(site: Site) -> None:
    outcome = site.run(torchrun(script=CASES + "killed_rank.py"))
    expect.blames(outcome, "PROCESS_DEAD", [1])
    expect.stopped(outcome)
    site.assert_clean()


def test_smaller_shape(site: Site) -> None:
    outcome = site.run(torchrun("7", script=CASES + "shape_mismatch.py"))
    verdict = expect.blames(outcome, "COLLECTIVE_MISMATCH", [2])
    expect.fingerprints(verdict, "[7, 16]", "[8, 16]")
    site.assert_clean()


def test_larger_shape(site: Site) -> None:
    outcome = site.run(forked("9", script=CASES + "shape_mismatch.py"))
    verdict = expect.blames(outcome, "COLLECTIVE_MISMATCH", [2])
    expect.fingerprints(verdict, "[9, 16]", "[8, 16]")
    site.assert_clean()


def test_input_stall(site: Site) -> None:
    outcome = site.run(forked(script=CASES + "input_stall.py"))
    expect.blames(outcome, "RANK_STALLED", [0])
    expect.waits(outcome, 0)
    site.assert_clean()


def test_slow_checkpoint(site: Site) -> None:
    outcome = site.run(forked(script=CASES + "slow_checkpoint.py"))
    expect.no_fault(outcome)
    expect.suppressed(outcome, "writing", "busy")
    site.assert_clean()


def test_interpreter_held(site: Site) -> None:
    outcome = site.run(forked(script=CASES + "gil_held.py"))
    expect.blames(outcome, "RANK_STALLED", [1])
    expect.waits(outcome, 1)
    site.assert_clean()
