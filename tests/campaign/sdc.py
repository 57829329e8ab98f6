"""Silent corruption in real ranks: is the right one named, nobody else, and nobody without a fault?

For each layout (DDP with 5 ranks, FSDP2 with 4, HSDP with 2 × 3) one job trains on and on; every step is a
round of the plan (``sdc_plan``): all recipes are replayed, with a fault in one of them or with none. What the
ranks sign goes through shared memory, the agent's own reader and its own core. A round is *localized* if the
verdicts name exactly the ranks that were broken, with a cause that fits; a tie, if a verdict says that nobody
can be named. An intermittent fault (p = 0.5 per run) is localized when some round of its episode names it. At
the end of each job one rank takes twice as long for a block; ``straggler_rounds_to_name`` says in which round
it was named (0: another rank was, -1: nobody in six rounds).

With ``--mode broadcast`` a round lasts until all ranks have replayed what rank 0 has captured and sent;
nothing else is judged, faults of the optimizer are left out, and nobody is made slow.

``python tests/campaign/sdc.py [--singles N] [--seed S] [--mode M] [--json]``; the last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

from scoutd.agent.core import Core
from scoutd.agent.events import Observed, Tick
from scoutd.agent.evidence import NodeReport, RankReport
from scoutd.agent.replay import RecipeMode
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import State, Status, Verdict
from scoutd.daemon.observe.observer import Observer
from tests.campaign.sdc_job import Job
from tests.campaign.sdc_plan import WORLDS, Round, plan, slow, without_optimizer

RECIPES = {"ddp": 5, "fsdp2": 5, "hsdp": 6}
"""Embedding, head, two blocks, optimizer; and the optimizer on shards that have replicas."""

PATIENCE_S = 60.0


BROADCASTS = 4
"""All but the optimizer."""

PATIENT_STEPS = 5000
"""So many steps may go by until a broadcast is replayed."""


class Broken(Exception):
    """The job itself failed; nothing can be said of scoutd."""


class Late(Broken):
    """Results are missing."""


@dataclass
class Score:
    """What came of the rounds."""

    injected: int = 0
    localized: int = 0
    wrong_rank: int = 0
    clean_runs: int = 0
    false_alarms: int = 0
    ties: int = 0
    ties_named_nobody: int = 0
    by_class: dict[str, list[int]] = field(default_factory=dict)
    rounds_to_name: list[int] = field(default_factory=list)
    stragglers: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, layout: str, round_: Round, verdicts: Sequence[Verdict]) -> None:
        """One round that stands alone, and what was said of it."""
        named = {i.rank for v in verdicts for i in v.implicated}
        if round_.clean:
            self.clean_runs += 1
            self.false_alarms += bool(verdicts)
            right = not verdicts
        elif round_.tie:
            self.ties += 1
            right = not named and any(v.status is Status.INCONCLUSIVE for v in verdicts)
            self.ties_named_nobody += right
        else:
            right = named == round_.expected and all(v.cause in round_.causes for v in verdicts)
            self.count(f"{layout}: {round_.sort}", right)
        self.wrong_rank += bool(named - round_.expected) and not round_.clean
        if not right:
            told = [f"{v.cause.value} of {[i.rank for i in v.implicated]}" for v in verdicts]
            self.failures.append(f"{layout}: {round_}: {told}")

    def count(self, sort: str, right: bool) -> None:
        self.injected += 1
        self.localized += right
        both = self.by_class.setdefault(sort, [0, 0])
        both[0] += 1
        both[1] += right

    def result(self) -> dict[str, object]:
        mean = sum(self.rounds_to_name) / len(self.rounds_to_name) if self.rounds_to_name else 0.0
        return {
            "injected": self.injected,
            "localized": self.localized,
            "wrong_rank": self.wrong_rank,
            "clean_runs": self.clean_runs,
            "false_alarms": self.false_alarms,
            "by_class": {sort: f"{right}/{all_}" for sort, (all_, right) in sorted(self.by_class.items())},
            "lowest_bits": sum(n for sort, (n, _) in self.by_class.items() if "lowest bit" in sort),
            "ties": self.ties,
            "ties_named_nobody": self.ties_named_nobody,
            "intermittent_rounds_to_name": round(mean, 2),
            "straggler_rounds_to_name": self.stragglers,
        }


class Watch:
    """The agent's side: reads the ranks' files and lets cores judge."""

    def __init__(self, job: Job, root: Path) -> None:
        self.job, self.step = job, 0
        self.seen: NodeReport
        self.observer = Observer(root, "node-1", None, time.monotonic_ns)

    def warm(self) -> None:
        """All recipes are ready on all ranks, and have been replayed by all in the same step."""
        for again in range(30):
            with suppress(Late):
                self.next(None, patience_s=min(0.3 * 1.3**again, 20.0))
                return
        states = {f"{r.name}: {r.state.value} {r.reason}" for rank in self.seen.ranks for r in rank.recipes}
        raise Broken(f"recipes are not ready: {sorted(states)}")

    def next(self, round_: int | None, patience_s: float = PATIENCE_S) -> NodeReport:
        """One step of the job; its results, of all recipes on all ranks, and no others.

        Raises:
            Late: they did not come in time.
        """
        self.step += 1
        self.job.gate.open(self.step, round_)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if self.job.broken:
                raise Broken("a rank has ended")
            for observation in self.observer.observe():
                self.seen = report = self._of_step(observation.report)
                told = [len(rank.replays) for rank in report.ranks if rank.observed]
                if told == [RECIPES[self.job.layout]] * self.job.world:
                    return report
            time.sleep(0.002)
        raise Late(f"results of step {self.step} did not come")

    def next_broadcast(self, round_: int) -> NodeReport:
        """As many steps of the job as it takes; the results of one broadcast in them, of all ranks.

        Raises:
            Late: there was none.
        """
        first = self.step
        while self.step < first + PATIENT_STEPS:
            self.step += 1
            self.job.gate.open(self.step, round_)
            deadline = time.monotonic() + PATIENCE_S
            while self.job.gate.finished < self.step:
                if self.job.broken or time.monotonic() > deadline:
                    raise Broken("a rank has ended or hangs")
                time.sleep(0.0002)
            report = self._newest_broadcast(first)
            if report is not None:
                return report
        raise Late(f"no broadcast was replayed by all ranks since step {first}")

    def _newest_broadcast(self, first: int) -> NodeReport | None:
        for observation in self.observer.observe():
            ranks = [_broadcasts(rank, first) for rank in observation.report.ranks]
            keys = {result.key for rank in ranks for result in rank.replays}
            for key in keys:
                told = [tuple(r for r in rank.replays if r.key == key) for rank in ranks]
                if [len(each) for each in told] == [BROADCASTS] * self.job.world:
                    found = (replace(rank, replays=each) for rank, each in zip(ranks, told, strict=True))
                    return replace(observation.report, ranks=tuple(found))
        return None

    def _of_step(self, report: NodeReport) -> NodeReport:
        return replace(
            report,
            ranks=tuple(
                replace(rank, replays=tuple(r for r in rank.replays if r.key == self.step))
                for rank in report.ranks
            ),
        )

    def close(self) -> None:
        self.observer.close()


def _broadcasts(rank: RankReport, first: int) -> RankReport:
    """The rank with its results of broadcasts that were replayed after step ``first``, and no others."""
    shared = {view.recipe for view in rank.recipes if view.mode is RecipeMode.BROADCAST}
    results = tuple(r for r in rank.replays if r.recipe in shared and r.key > first)
    return replace(rank, replays=results)


def new_core() -> Core:
    return Core(Settings(stall_timeout_s=1e6))


def judged(core: Core, report: NodeReport) -> list[Verdict]:
    """The confirmed verdicts after this report."""
    now = time.monotonic_ns()
    core.step(Observed(report), now)
    core.step(Tick(), now)
    return [verdict for verdict in core.verdicts if verdict.state is State.CONFIRMED]


def run(layout: str, rounds: Sequence[Round], score: Score, mode: str) -> None:
    """All rounds of one layout.

    Raises:
        Broken: the job failed.
    """
    root = Path(tempfile.mkdtemp(prefix="scoutd-sdc-"))
    slow_rounds = slow(layout, 0)
    job = Job(layout, [*rounds, *slow_rounds], root, mode)
    watch = Watch(job, root)
    try:
        if mode == "seeded":
            watch.warm()
        episodes: dict[int, Core] = {}
        named: dict[int, int] = {}
        for number, round_ in enumerate(rounds):
            report = watch.next(number) if mode == "seeded" else watch.next_broadcast(number)
            if round_.episode < 0:
                score.add(layout, round_, judged(new_core(), report))
                continue
            core = episodes.setdefault(round_.episode, new_core())
            verdicts = judged(core, report)
            ranks = {i.rank for v in verdicts for i in v.implicated}
            score.wrong_rank += bool(ranks - round_.expected)
            if ranks == round_.expected:
                named.setdefault(round_.episode, number)
        _score_episodes(layout, rounds, named, score)
        if mode == "seeded":
            _straggle(watch, len(rounds), slow_rounds, score)
    finally:
        job.end()
        watch.close()
        shutil.rmtree(root, ignore_errors=True)


def _straggle(watch: Watch, first: int, rounds: Sequence[Round], score: Score) -> None:
    """One rank takes twice as long as before; how many rounds until it is named, and nobody else."""
    core = new_core()
    times = [_block_ns(report) for report in (watch.next(None) for _ in range(3)) if not judged(core, report)]
    watch.job.gate.delay_s = median([ns for each in times for ns in each]) * 1e-9
    for number, round_ in enumerate(rounds):
        verdicts = judged(core, watch.next(first + number))
        ranks = {i.rank for v in verdicts for i in v.implicated}
        if ranks:
            score.stragglers.append(number + 1 if ranks == round_.expected else 0)
            return
    score.stragglers.append(-1)


def _block_ns(report: NodeReport) -> list[int]:
    """How long the first block took, by rank."""
    names = {r.recipe for rank in report.ranks for r in rank.recipes if r.name.startswith("blocks.0 ")}
    return [r.module_ns for rank in report.ranks for r in rank.replays if r.recipe in names]


def _score_episodes(layout: str, rounds: Sequence[Round], named: dict[int, int], score: Score) -> None:
    first: dict[int, int] = {}
    for number, round_ in enumerate(rounds):
        if round_.episode >= 0:
            first.setdefault(round_.episode, number)
    for episode, began in first.items():
        score.count(f"{layout}: intermittent", episode in named)
        if episode in named:
            score.rounds_to_name.append(named[episode] - began + 1)
        else:
            score.failures.append(f"{layout}: {rounds[began]}: never named")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--singles", type=int, default=120, help="single faults per layout")
    parser.add_argument("--cleans", type=int, default=12, help="clean controls per layout")
    parser.add_argument("--extras", type=int, default=6, help="doubles, ties and intermittents per layout")
    parser.add_argument("--layouts", nargs="*", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--mode", default="seeded", choices=["seeded", "broadcast"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON object")
    asked = parser.parse_args()
    score = Score()
    began = time.monotonic()
    for layout in asked.layouts:
        rounds = plan(layout, asked.seed, asked.singles, asked.cleans, asked.extras)
        run(layout, rounds if asked.mode == "seeded" else without_optimizer(rounds), score, asked.mode)
        if not asked.json:
            sorts = Counter({sort: n for sort, (n, _) in score.by_class.items()})
            print(f"{layout}: {sum(sorts.values())} injections so far", file=sys.stderr, flush=True)
    for failure in score.failures:
        print(failure, file=sys.stderr)
    print(json.dumps({**score.result(), "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
