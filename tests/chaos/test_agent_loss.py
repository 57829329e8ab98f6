"""The agent is killed, stopped or restarted while a job trains: the job is unharmed and found again."""

from __future__ import annotations

import os
import signal

from tests.e2e import expect
from tests.e2e.harness import SCOUTD, Running, Site, forked, named, until

STEPS = "150"


def training(site: Site, *arguments: str, stop: bool = True) -> Running:
    running = site.watch(forked("--progress", str(site.progress), *arguments), stop=stop)
    until(lambda: site.steps() > 3, "four steps")
    until(lambda: status_of(site), "an agent that sees the job")
    return running


def status_of(site: Site) -> dict[str, object]:
    """The first job with all of its ranks, empty while there is none."""
    jobs = (site.ask("status") or {}).get("jobs", [])
    return next((job for job in jobs if len(job["ranks"]) == int(job["world_size"])), {})


def test_the_agent_is_killed(site: Site) -> None:
    running = training(site, "--steps", STEPS)
    (agent,) = site.agents()
    before = site.steps()
    os.kill(agent, signal.SIGKILL)
    outcome = running.finish()
    assert before < int(STEPS)
    assert site.steps() == int(STEPS), str(outcome)
    expect.no_fault(outcome)
    assert outcome.verdicts == [], str(outcome)
    site.assert_clean()


def test_a_new_agent_takes_over_and_finds_the_fault(site: Site) -> None:
    go = site.folder / "go"
    running = training(
        site, "--steps", "100000", "--fault", "sleep-forward", "--rank", "2", "--when", str(go)
    )
    (agent,) = site.agents()
    os.kill(agent, signal.SIGKILL)
    until(lambda: [pid for pid in site.agents() if pid != agent], "a new agent")
    until(lambda: status_of(site), "the job in the new agent's status")
    go.touch()
    outcome = running.finish()
    expect.blames(outcome, "RANK_STALLED", [2], phase="FORWARD", operation="blocks.1")
    expect.waits(outcome, 2)
    expect.stopped(outcome)
    site.assert_clean()


def test_the_agent_is_stopped(site: Site) -> None:
    running = training(site, "--steps", STEPS)
    (agent,) = site.agents()
    os.kill(agent, signal.SIGSTOP)
    outcome = running.finish()
    assert site.steps() == int(STEPS), str(outcome)
    expect.no_fault(outcome)
    site.assert_clean()


def test_an_agent_that_stood_still_charges_nobody(site: Site) -> None:
    """It wakes up after more than the stall timeout: that time was its own, not a rank's silence."""
    running = training(site, "--steps", "400")
    (agent,) = site.agents()
    os.kill(agent, signal.SIGSTOP)
    mark = site.steps()
    until(lambda: site.steps() > mark + 250, "more than five seconds of training")
    os.kill(agent, signal.SIGCONT)
    outcome = running.finish()
    expect.no_fault(outcome)
    assert outcome.verdicts == [], str(outcome)
    site.assert_clean()


def node_agent(site: Site) -> Running:
    state = str(site.folder / "state")
    agent = site.start(
        SCOUTD, "agent", "--port", "0", "--http-port", "0", "--stall-timeout", "5", "--state-dir", state
    )
    until(lambda: site.ask("status") is not None, "an agent that answers")
    return agent


def test_a_restarted_node_agent_picks_the_job_up(site: Site) -> None:
    """Without `scoutd run`: the trainer attaches by itself, agents come and go."""
    go = site.folder / "go"
    fault = ["--fault", "sleep-forward", "--rank", "1", "--when", str(go), "--steps", "100000"]
    python, launcher, ranks, *script = forked("--progress", str(site.progress), *fault)
    first = node_agent(site)
    job = site.start(python, "-m", "scoutd.shim", launcher, ranks, *script)
    seen = until(lambda: status_of(site), "the job in the first agent's status")
    first.process.kill()
    first.process.wait(10.0)
    mark = site.steps()
    second = node_agent(site)
    again = until(lambda: status_of(site), "the job in the second agent's status")
    until(lambda: site.steps() > mark, "training that goes on")
    assert again["job"] == seen["job"]
    go.touch()
    answer = until(lambda: [v for v in verdicts_of(site) if v["state"] == "CONFIRMED"], "a verdict")
    assert [(v["cause"], named(v)) for v in answer] == [("RANK_STALLED", [1])]
    job.process.kill()
    assert second.end().code == 0


def verdicts_of(site: Site) -> list[dict[str, object]]:
    answer = site.ask("verdicts") or {}
    found: list[dict[str, object]] = answer.get("verdicts", [])
    return found
