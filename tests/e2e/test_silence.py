"""A rank that cannot speak: stopped by a signal, or its interpreter is held."""

from __future__ import annotations

from tests.e2e import expect
from tests.e2e.harness import Site, forked, torchrun


def test_stopped_by_a_signal(site: Site) -> None:
    outcome = site.run(torchrun("--fault", "stop", "--rank", "0"))
    expect.blames(outcome, "PROCESS_STOPPED", [0])
    expect.waits(outcome, 0)
    expect.stopped(outcome)
    site.assert_clean()


def test_interpreter_held_in_native_code(site: Site) -> None:
    outcome = site.run(forked("--fault", "gil", "--rank", "0"))
    verdict = expect.blames(outcome, "RANK_STALLED", [0], phase="FORWARD", operation="blocks.1")
    expect.waits(outcome, 0)
    expect.stopped(outcome)
    beats = [e for e in verdict["evidence"] if e["kind"] == "heartbeat" and e.get("rank") == 0]
    assert beats, verdict["evidence"]
    site.assert_clean()
