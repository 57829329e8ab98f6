"""Two agents of one job, wired to each other without any network."""

from __future__ import annotations

import pickle
import random

from scoutd.agent.evidence import NodeReport
from scoutd.agent.exchange import Exchange
from scoutd.agent.party import Party
from scoutd.agent.replica import Replica
from scoutd.agent.settings import ExchangeSettings
from scoutd.agent.verdict import Cause, State, Verdict
from tests.unit.agent.job import Job, implicated, verdicts

RANKS = {"a": (0, 1), "b": (2, 3)}
STEP_S = 0.25


class Pair:
    """``job`` on two nodes, a and b; ``said`` has what each agent reported."""

    def __init__(self, job: Job, where: dict[str, tuple[int, ...]] | None = None) -> None:
        self.job = job
        self.where = where or RANKS
        self.parties = {name: self._party(name) for name in RANKS}
        self.said: dict[str, list[Verdict]] = {name: [] for name in RANKS}
        for party, other in (("a", "b"), ("b", "a")):
            marks = self.parties[other].exchange.replica.marks()
            self.parties[party].exchange.replica.merge_marks(marks, job.now)

    def _party(self, name: str) -> Party:
        exchange = Exchange(Replica(name, f"{name}:1", 1), ExchangeSettings(), random.Random(name))
        return Party(self.job.settings, exchange, pickle.dumps, pickle.loads)

    def run(self, seconds: float, observed: tuple[str, ...] = ("a", "b")) -> None:
        """Time passes; the agents in ``observed`` still see the files of their ranks."""
        for _ in range(int(seconds / STEP_S)):
            self.job.later(STEP_S)
            for name, party in self.parties.items():
                if name in observed:
                    ranks = tuple(self.job.ranks[r] for r in self.where[name])
                    report = NodeReport("job", 1, name, 1, 1, self.job.world_size, ranks)
                    self.said[name] += verdicts(party.observe(report, self.job.now))
                effects, outgoing = party.tick(self.job.now)
                self.said[name] += verdicts(effects)
                waiting = list(outgoing)
                while waiting:
                    sent = waiting.pop()
                    reply = self.parties[sent.node].handle(sent.request, self.job.now)
                    waiting += party.on_reply(sent, reply, self.job.now)

    def confirmed(self, name: str) -> list[Verdict]:
        return [v for v in self.said[name] if v.state is State.CONFIRMED]


def broken_job() -> Job:
    """Rank 2 raised; the others lost their connections to it."""
    job = Job(4)
    job.dies(2, ago=0.0, code=1, note=("ValueError", "bad batch"))
    for rank in (0, 1, 3):
        job.dies(rank, ago=0.0, code=1, note=("RuntimeError", "Connection closed by peer"))
    return job


def test_the_end_of_a_job_is_not_judged_again_without_the_others() -> None:
    """Its files are removed here and the alarm ends: what is left is half of the evidence."""
    pair = Pair(broken_job())
    pair.run(4.0)
    for name in RANKS:
        (verdict,) = pair.confirmed(name)
        assert (verdict.cause, implicated(verdict)) == (Cause.PROCESS_DEAD, [2])
    pair.run(20.0, observed=())
    for name in RANKS:
        (verdict,) = pair.confirmed(name)
        assert implicated(verdict) == [2]


def test_deaths_that_were_not_judged_yet_are_judged_although_the_files_are_gone() -> None:
    pair = Pair(broken_job())
    pair.run(0.5)
    assert not pair.confirmed("a")
    pair.run(3.0, observed=())
    assert [implicated(v) for v in pair.confirmed("a")] == [[2]]
