"""``scoutd run`` on every host with an agent of its own, found through the trainer's store alone."""

from __future__ import annotations

from tests.chaos.hosts import Company, company, substance
from tests.e2e.harness import JOBS, SCOUTD, Outcome, named

RUN = ("--stall-timeout", "5", "--verdicts", "%DIR%/verdicts.jsonl")


def run(hosts: Company, *arguments: str, script: str = "train.py", stop: bool = False) -> list[Outcome]:
    """What every host's run left."""
    then = "stop" if stop else "continue"
    for host in hosts.hosts:
        part = hosts.part(host.index, arguments)
        part[part.index(str(JOBS / "train.py"))] = str(JOBS / script)
        options = [*RUN, "--node", host.node, "--on-verdict", then]
        hosts.runs.append(host.start(SCOUTD, "run", *options, "--", *part))
    found = [each.finish(120.0) for each in hosts.runs]
    hosts.runs.clear()
    return found


def test_the_runs_of_all_hosts_end_at_one_verdict() -> None:
    with company() as hosts:
        ended = run(hosts, "--fault", "sleep-forward", "--rank", "5", "--steps", "100", stop=True)
        text = "\n".join(map(str, ended))
        assert [each.code for each in ended] == [3, 3, 3, 3], text
        verdicts = [each.fault for each in ended]
        assert {(v["cause"], *named(v)) for v in verdicts} == {("RANK_STALLED", 5)}, text
        assert all(substance(v) == substance(verdicts[0]) for v in verdicts), text
        for host in hosts.hosts:
            host.assert_clean()


def test_hosts_that_have_finished_are_not_lost() -> None:
    """Rank 0 goes on for longer than the stall timeout after everybody else, agents included, has left."""
    with company(3, ranks_per_host=1) as hosts:
        ended = run(hosts, "12", "--steps", "20", script="late.py")
        text = "\n".join(map(str, ended))
        assert [each.code for each in ended] == [0, 0, 0], text
        assert max(each.wall_s for each in ended) - min(each.wall_s for each in ended) > 8.0, text
        assert not [v for each in ended for v in each.faults], text
