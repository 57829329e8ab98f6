"""Commands that go wrong, worlds that are too small, ports that are taken: clear words, never a traceback."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.e2e import expect
from tests.e2e.harness import PATIENT, SCOUTD, Outcome, Site, forked, named


def clear(outcome: Outcome, code: int) -> None:
    assert outcome.code == code, str(outcome)
    assert "Traceback" not in outcome.err, str(outcome)


def test_a_command_that_does_not_exist(site: Site) -> None:
    outcome = site.run(["no-such-program-here"])
    clear(outcome, 127)
    assert "no-such-program-here" in outcome.err
    site.assert_clean()


def test_a_file_that_is_no_program(site: Site) -> None:
    file = site.folder / "text"
    file.write_text("hello\n")
    outcome = site.run([str(file)])
    clear(outcome, 126)
    assert str(file) in outcome.err
    site.assert_clean()


@pytest.mark.parametrize("code", [0, 5])
def test_the_exit_code_of_the_command(site: Site, code: int) -> None:
    outcome = site.run(["sh", "-c", f"exit {code}"])
    clear(outcome, code)
    assert outcome.verdicts == []
    site.assert_clean()


def test_the_signal_that_ends_the_command(site: Site) -> None:
    clear(site.run(["sh", "-c", "kill -TERM $$"]), 143)
    site.assert_clean()


def test_a_script_that_fails_at_once(site: Site) -> None:
    outcome = site.run([sys.executable, "-c", "import no_such_module_here"])
    assert outcome.code == 1, str(outcome)
    assert outcome.err.count("Traceback") == 1, "only the script's own"
    assert outcome.verdicts == []
    site.assert_clean()


def test_ranks_that_fail_before_they_meet(site: Site) -> None:
    outcome = site.run(forked("--no-such-option"))
    assert outcome.code == 1, str(outcome)
    assert outcome.faults == [], str(outcome)
    site.assert_clean()


@pytest.mark.parametrize("flag", ["--port", "--http-port"])
def test_a_port_that_is_taken(site: Site, flag: str) -> None:
    """The job runs on, unobserved, and one line says why; an agent of its own says it and ends."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        job = site.run(forked("--progress", str(site.progress)), flag, port)
        agent = site.start(SCOUTD, "agent", flag, port, "--state-dir", "%DIR%").finish(30.0)
    clear(job, 0)
    assert site.steps() == 12
    assert port in job.err, str(job)
    clear(agent, 2)
    assert port in agent.err, str(agent)
    site.assert_clean()


def test_a_verdict_file_that_cannot_be_written(site: Site) -> None:
    outcome = site.start(SCOUTD, "run", "--verdicts", "/proc/none/verdicts", "--", "true").finish()
    clear(outcome, 2)
    assert "/proc/none/verdicts" in outcome.err
    site.assert_clean()


def test_a_configuration_with_a_wrong_key(site: Site) -> None:
    file = site.folder / "scoutd.toml"
    file.write_text("[stall]\ntimeout = 3\n")
    outcome = site.start(SCOUTD, "agent", "--config", str(file), "--state-dir", "%DIR%").finish()
    clear(outcome, 2)
    assert "timeout_s" in outcome.err, "the right key is suggested"
    site.assert_clean()


@pytest.mark.parametrize("question", ["status", "watch", "verdicts", "topology"])
def test_questions_without_an_agent(site: Site, question: str) -> None:
    outcome = site.start(SCOUTD, question).finish(30.0)
    clear(outcome, 2)
    assert "agent" in outcome.err, str(outcome)


@pytest.mark.parametrize("world", [1, 2])
def test_a_healthy_job_of_few_ranks(site: Site, world: int) -> None:
    outcome = site.run(forked(ranks=world), *PATIENT)
    expect.no_fault(outcome)
    assert outcome.verdicts == [], str(outcome)
    site.assert_clean()


def test_two_ranks_one_hangs(site: Site) -> None:
    """Two can disagree but not be judged by consensus; who waits for whom is known all the same."""
    outcome = site.run(forked("--fault", "sleep-forward", "--rank", "1", ranks=2))
    expect.blames(outcome, "RANK_STALLED", [1], world=2, phase="FORWARD")
    expect.waits(outcome, 1, world=2)
    site.assert_clean()


def test_two_ranks_disagree(site: Site) -> None:
    """Nobody can say which of two is right: the mismatch is reported, both fingerprints, no rank named."""
    outcome = site.run(forked("--fault", "metric-broadcast", "--rank", "1", ranks=2))
    verdict = outcome.fault
    assert (verdict["cause"], verdict["status"]) == ("COLLECTIVE_MISMATCH", "INCONCLUSIVE"), str(outcome)
    assert named(verdict) == [], str(outcome)
    expect.fingerprints(verdict, "broadcast", "all_reduce")
    site.assert_clean()


def test_one_rank_is_killed(site: Site) -> None:
    outcome = site.run(forked("--fault", "kill", "--rank", "0", ranks=1))
    expect.blames(outcome, "PROCESS_DEAD", [0], world=1)
    site.assert_clean()
