"""Silent corruption through the whole of ``scoutd run``, and a slice of its campaign."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.e2e.harness import PATIENT, SCOUTD, Site, Verdict, cleared, forked, named, until

CAMPAIGN = Path(__file__).parents[1] / "campaign" / "sdc.py"
FAULT = "target=output rank=2 module=blocks.2* bit=0 first=20"
OFTEN = ("--replay-every", "5", "--replay-variants", "8")


def job(*more: str) -> list[str]:
    """The second block of this job holds objects of the script's own and may not be replayable."""
    return forked("--steps", "100000", *more, ranks=4)


def test_an_unmodified_script_whose_rank_computes_wrongly_is_stopped(site: Site) -> None:
    """Two agents see two ranks each: none of them could tell alone who is wrong."""
    slow = job("--pace", "0.2")
    running = site.watch(slow, *PATIENT, *OFTEN, "--nodes", "2", SCOUTD_FAULTS="1", SCOUTD_FAULT=FAULT)
    outcome = running.finish(120.0)
    assert outcome.code == 3, str(outcome)
    verdict = outcome.fault
    assert (verdict["symptom"], verdict["cause"], named(verdict)) == ("SDC", "SDC_OUTPUT", [2]), str(outcome)
    assert sorted(cleared(verdict)) == [0, 1, 3]
    assert verdict["implicated"][0]["node"] == "node-1"
    assert "blocks.2" in verdict["operation"]
    assert any("majority" in item["text"] for item in verdict["evidence"])


def test_a_request_is_carried_out_on_all_nodes_and_status_tells(site: Site) -> None:
    """Without a cadence; the weights of rank 1 are wrong in replays. One of two agents is asked."""
    running = site.watch(
        job("--pace", "0.05"),
        *PATIENT,
        "--replay-every",
        "0",
        "--nodes",
        "2",
        stop=False,
        SCOUTD_FAULTS="1",
        SCOUTD_FAULT="target=weights rank=1 module=blocks.0*",
    )

    def second() -> tuple[str, str]:
        return "--address", f"unix:{next(site.runtime.glob('run-*-1.sock'))}"

    def ready() -> bool:
        told = (site.ask("status", *second()) or {}).get("jobs", [])
        recipes = told[0].get("replay", {}).get("recipes", []) if told else []
        states = [each["state"] for each in recipes]
        return states.count("READY") > 3 and "LEARNING" not in states

    until(lambda: list(site.runtime.glob("run-*-1.sock")), "two agents", 30.0)
    until(ready, "recipes are ready", 60.0)
    answer = site.start(SCOUTD, "replay", "--wait", *second()).finish(90.0)
    assert answer.code == 3, str(answer)
    assert ": 4 ranks replay" in answer.out, str(answer)
    until(lambda: any(v["state"] == "CONFIRMED" for v in running.verdicts()), "a verdict", 30.0)
    file = site.folder / "bundle.tar.gz"
    saved = site.start(SCOUTD, "bundle", running.verdicts()[0]["id"], "-o", str(file), *second()).finish(30.0)
    assert saved.code == 0, str(saved)
    outcome = running.end()
    assert (outcome.fault["cause"], named(outcome.fault)) == ("SDC_PARAMETER", [1]), str(outcome)
    assert sorted(cleared(outcome.fault)) == [0, 2, 3], "both nodes have replayed"
    again = site.start(SCOUTD, "analyze", str(file), "--json").finish(30.0)
    assert (again.code, again.err) == (0, ""), str(again)
    told = json.loads(again.out)
    for key in ("id", "job", "cause", "state", "implicated", "cleared", "summary", "evidence"):
        assert told[key] == outcome.fault[key], key


def test_a_slice_of_the_campaign() -> None:
    few = ["--singles", "4", "--cleans", "1", "--extras", "1", "--layouts", "ddp", "hsdp", "--json"]
    done = subprocess.run(
        [sys.executable, str(CAMPAIGN), *few], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    score = json.loads(done.stdout.splitlines()[-1])
    assert score["localized"] == score["injected"] >= 12, done.stderr[-4000:]
    assert (score["wrong_rank"], score["false_alarms"]) == (0, 0), done.stderr[-4000:]
    assert score["ties_named_nobody"] == score["ties"] == 2
    assert 0 not in score["straggler_rounds_to_name"], "a rank that was not slow was named"


def test_a_rank_that_is_slow_is_named_alike_by_the_agents_of_four_nodes(site: Site) -> None:
    """One rank on each: nobody has the times of two."""
    often = ("--replay-every", "5", "--replay-variants", "2")
    fault = {"SCOUTD_FAULTS": "1", "SCOUTD_FAULT": "target=time rank=2 delay_s=0.004"}
    paced = job("--pace", "0.1")
    running = site.watch(paced, *PATIENT, *often, "--nodes", "4", stop=False, **fault)
    until(lambda: any(v["state"] == "CONFIRMED" for v in running.verdicts()), "a verdict", 90.0)

    def told() -> list[Verdict]:
        sockets = [str(path) for path in site.runtime.glob("*.sock")]
        answers = [site.ask("verdicts", "--address", f"unix:{each}") for each in sockets]
        found = [v for answer in answers if answer for v in answer.get("verdicts", [])]
        return found if len(found) >= 4 else []

    verdicts = until(told, "a verdict of every agent", 30.0)
    running.end()
    assert [(v["cause"], named(v)) for v in verdicts] == [("COMPUTE_STRAGGLER", [2])] * 4
    same = ("id", "summary", "implicated", "cleared", "evidence")
    assert len({json.dumps([v[name] for name in same]) for v in verdicts}) == 1


def test_a_slice_of_the_campaign_with_real_inputs() -> None:
    few = [
        "--singles",
        "6",
        "--cleans",
        "1",
        "--extras",
        "0",
        "--layouts",
        "ddp",
        "--mode",
        "broadcast",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, str(CAMPAIGN), *few], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    score = json.loads(done.stdout.splitlines()[-1])
    assert score["localized"] == score["injected"] >= 4, done.stderr[-4000:]
    assert (score["wrong_rank"], score["false_alarms"], score["clean_runs"]) == (0, 0, 1), done.stderr[-4000:]
