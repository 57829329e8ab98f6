"""The exposition, compared with a golden file, and the bounds on its labels.

After a wanted change: ``SCOUTD_UPDATE_GOLDEN=1 pytest tests/unit/daemon_serve/test_metrics.py``, then read
the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scoutd.agent.replay import ReplayCost
from scoutd.daemon.jobs import Job
from scoutd.daemon.serve.metrics import Metrics, reason_label
from tests.unit.agent import replaying
from tests.unit.daemon_serve import fakes

GOLDEN = Path(__file__).parent / "metrics.golden.txt"


def metrics(jobs: list[Job], clock: fakes.FakeClock) -> Metrics:
    return Metrics(lambda: jobs, clock, "0.1.0", "3.11.0")


def test_exposition_is_the_golden_file() -> None:
    clock = fakes.FakeClock()
    seen = fakes.observation(ranks=2, shim_cost={0: (2_500_000, 1000), 1: (3_000_000, 1100)})
    cost = ReplayCost(50, 1, False, 200, 4, 20 * fakes.S, fakes.S // 8)
    ranks = tuple(
        fakes.replace(rank, recipes=(replaying.view(),), replay_cost=cost) for rank in seen.report.ranks
    )
    seen = fakes.replace(seen, report=fakes.replace(seen.report, ranks=ranks))
    made = metrics([Job(seen, fakes.FakeCore(), clock())], clock)
    clock.advance(0.25)
    made.count_verdict("HANG", "RANK_STALLED", "OPEN")
    made.count_verdict("HANG", "RANK_STALLED", "CONFIRMED")
    made.count_suppressed("busy: reading or writing 1.0 MB/s; it went on after 7 s")
    made.count_suppressed("phase CHECKPOINT may take 60 s")
    made.count_error("observe")
    made.watch_losses("hook", lambda: 3)
    made.traffic.requests["Probe", "ok"] += 7
    made.traffic.requests["Sync", "timeout"] += 1
    made.traffic.answered["Probe"] += 6
    made.traffic.refused["key"] += 2
    made.traffic.bytes_in, made.traffic.bytes_out = 1000, 2000
    made.peer_states = lambda: {"ALIVE": 3, "UNREACHABLE": 1}
    made.detection_latency.observe(5.5)
    made.observation.observe(0.0015)
    text = made.exposition().decode()
    if os.environ.get("SCOUTD_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_series_of_an_ended_job_vanish() -> None:
    clock = fakes.FakeClock()
    jobs = [Job(fakes.observation(), fakes.FakeCore(), clock())]
    made = metrics(jobs, clock)
    assert b'job="j"' in made.exposition()
    jobs.clear()
    assert b'job="j"' not in made.exposition()


def test_unobserved_rank_has_no_step_and_is_counted_apart() -> None:
    clock = fakes.FakeClock()
    seen = fakes.observation(ranks=1)
    bare = fakes.rank_report(1, observed=False, coordinates=())
    report = fakes.replace(seen.report, ranks=(*seen.report.ranks, bare))
    text = metrics([Job(fakes.replace(seen, report=report), fakes.FakeCore(), clock())], clock).exposition()
    assert b'scoutd_ranks_observed{job="j",state="unobserved"} 1.0' in text
    assert b'rank="1"' not in text


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("busy: using 95% of a core", "busy"),
        ("phase CHECKPOINT may take 600 s", "phase_checkpoint"),
        ("rank 7 makes progress", "progress"),
        ("no rank waits for ranks 1-3; the job ended first", "nobody_waits"),
        ("a job of one rank: nothing to compare with", "one_rank"),
        ("every rank was told to end from outside: the job was cancelled", "cancelled"),
        ("every rank is stopped: the job was suspended", "suspended"),
        ("something new", "other"),
        ("", "other"),
    ],
)
def test_reasons_become_words_of_a_fixed_vocabulary(text: str, label: str) -> None:
    assert reason_label(text) == label
