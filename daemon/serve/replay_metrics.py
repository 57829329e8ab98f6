"""What Prometheus sees of replays, made at scrape time from the jobs that are observed now.

Per rank: how many replays, and their time. Per job: recipes by state, recipes that are set aside, rounds by
what came of them, and whether the kit that injects faults is on. What was found is in ``scoutd_verdicts``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scoutd.agent.replay import RecipeState
from scoutd.daemon.clock import NS_PER_S
from scoutd.daemon.jobs import Job


class ReplayCollector(Collector):
    """Jobs whose ranks tell nothing of replays have no series."""

    def __init__(self, jobs: Callable[[], Iterable[Job]]) -> None:
        self._jobs: Final = jobs

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        replays = CounterMetricFamily("scoutd_replays", "Replays of a rank.", labels=("job", "rank"))
        spent = CounterMetricFamily(
            "scoutd_replay_seconds", "Time that replays took of a rank's training.", labels=("job", "rank")
        )
        steps = CounterMetricFamily(
            "scoutd_step_seconds", "Time of a rank's steps, replays included.", labels=("job", "rank")
        )
        recipes = GaugeMetricFamily(
            "scoutd_replay_recipes", "Recipes of the ranks here by state.", labels=("job", "state")
        )
        aside = GaugeMetricFamily(
            "scoutd_replay_recipes_set_aside", "Recipes whose results prove nothing.", labels=("job",)
        )
        rounds = CounterMetricFamily(
            "scoutd_replay_rounds", "Replay rounds by what came of them.", labels=("job", "outcome")
        )
        faults = GaugeMetricFamily(
            "scoutd_faults_enabled", "1: the kit that injects faults is on in some rank.", labels=("job",)
        )
        for job in self._jobs():
            costs = {r.rank: r.replay_cost for r in job.observation.report.ranks if r.replay_cost is not None}
            if not costs:
                continue
            for rank, cost in costs.items():
                replays.add_metric((job.name, str(rank)), cost.replays)
                spent.add_metric((job.name, str(rank)), cost.cost_ns / NS_PER_S)
                steps.add_metric((job.name, str(rank)), cost.step_ns / NS_PER_S)
            _add_recipes(recipes, job)
            aside.add_metric((job.name,), len(job.core.replays.aside))
            tally = job.core.replays.tally
            rounds.add_metric((job.name, "agreed"), tally.agreed)
            rounds.add_metric((job.name, "deviating"), tally.deviating)
            rounds.add_metric((job.name, "undecided"), tally.undecided)
            faults.add_metric((job.name,), any(cost.faults for cost in costs.values()))
        yield from (replays, spent, steps, recipes, aside, rounds, faults)


def _add_recipes(family: GaugeMetricFamily, job: Job) -> None:
    states = [view.state for rank in job.observation.report.ranks for view in rank.recipes]
    for state in RecipeState:
        family.add_metric((job.name, state.value.lower()), states.count(state))
