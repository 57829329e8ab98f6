"""``scoutd run`` on every host with an agent of its own, found through the trainer's store alone."""

from __future__ import annotations

import time

from tests.chaos.hosts import Company, company, substance
from tests.e2e.harness import JOBS, SCOUTD, Running, cleared, named

RUN = ("--stall-timeout", "5", "--verdicts", "%DIR%/verdicts.jsonl")


def start(hosts: Company, *arguments: str, script: str = "train.py", stop: bool = False) -> list[Running]:
    then = "stop" if stop else "continue"
    for host in hosts.hosts:
        part = hosts.part(host.index, arguments)
        part[part.index(str(JOBS / "train.py"))] = str(JOBS / script)
        options = [*RUN, "--node", host.node, "--on-verdict", then]
        hosts.runs.append(host.start(SCOUTD, "run", *options, "--", *part))
    return hosts.runs


def test_the_runs_of_all_hosts_end_at_one_verdict() -> None:
    with company() as hosts:
        runs = start(hosts, "--fault", "sleep-forward", "--rank", "5", "--steps", "100", stop=True)
        ended = [each.finish(120.0) for each in runs]
        text = "\n".join(map(str, ended))
        assert [each.code for each in ended] == [3, 3, 3, 3], text
        verdicts = [each.fault for each in ended]
        assert {(v["cause"], *named(v)) for v in verdicts} == {("RANK_STALLED", 5)}, text
        # Each run ends its own ranks at once, so a slower agent may already see them as ended: same verdict,
        # in the past tense.
        for part in ("id", "implicated", "phase", "operation", "action"):
            assert all(substance(v)[part] == substance(verdicts[0])[part] for v in verdicts), text
        assert all(sorted(cleared(v)) == [0, 1, 2, 3, 4, 6, 7] for v in verdicts), text
        for host in hosts.hosts:
            host.assert_clean()


def test_hosts_that_have_finished_are_not_lost() -> None:
    """Rank 0 goes on for longer than the stall timeout after everybody else, agents included, has left."""
    with company(3, ranks_per_host=1) as hosts:
        runs = start(hosts, "12", "--steps", "20", script="late.py")
        for each in runs[1:]:
            each.process.wait(90.0)
        began = time.monotonic()
        ended = [each.finish(60.0) for each in runs]
        text = "\n".join(map(str, ended))
        assert time.monotonic() - began > 8.0, text
        assert [each.code for each in ended] == [0, 0, 0], text
        assert not [v for each in ended for v in each.faults], text
        assert not any("its key was not published" in each.err for each in ended), text
