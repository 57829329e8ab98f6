"""What replays say about a job: rounds in, verdicts out, beside the watch for hangs.

Every report is looked through for new results. A round that closed is judged: exactly for its signatures
(``sdc``), statistically for its times (``straggler``). Recipes that prove nothing are set aside for the rest
of the generation and listed with the reason.

Of a round whose results are on several nodes only tallies are heard here. Where all agree it is judged by
them; where somebody looks slow by its sketches it is wanted again, in full (``slowness``).

A recipe in which more than half of the ranks disagreed with themselves, each in some round, is not
deterministic either, however seldom it shows.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from scoutd.agent import straggling
from scoutd.agent.evidence import NodeReport
from scoutd.agent.finding import Finding
from scoutd.agent.known import Known
from scoutd.agent.moment import Moment
from scoutd.agent.replay import RecipeView, RoundKey
from scoutd.agent.replayfinding import Place, finding
from scoutd.agent.replayledger import ReplayLedger
from scoutd.agent.replaymoment import moment_of
from scoutd.agent.replays import Rounds
from scoutd.agent.sdc import Judgement, Round, judge
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.slowness import HOLD_NS, Slowness
from scoutd.agent.straggler import GROUPS_LIMIT, Stragglers, StragglerSettings
from scoutd.agent.straggler import Judgement as Pace
from scoutd.agent.tally import Tally as Told
from scoutd.agent.verdict import State, Verdict

MOST_ASIDE: Final = 256
KEPT_MOMENTS: Final = 16
"""Verdicts whose rounds are kept."""
SLOW_ROUNDS: Final = StragglerSettings().rounds
CLEAN_ROUNDS: Final = 2 * SLOW_ROUNDS
"""Twice what confirms a straggler ends its verdict, in rounds of any recipe."""


@dataclass
class Tally:
    """Rounds that were judged: all peers agree; somebody deviates; not decided, because results are missing
    or no majority was found."""

    agreed: int = 0
    deviating: int = 0
    undecided: int = 0


@dataclass(frozen=True)
class _Scene:
    """Where and when rounds are judged."""

    reports: tuple[NodeReport, ...]
    job: str
    generation: int
    now_ns: int

    @cached_property
    def places(self) -> dict[int, Place]:
        return {r.rank: (each.node, r.pid, r.device) for each in self.reports for r in each.ranks}


class ReplayWatch:
    """One job's replays. ``aside``: recipe → why it is set aside."""

    def __init__(self, settings: Settings) -> None:
        self.tally = Tally()
        self.aside: Final[dict[int, str]] = {}
        self.rounds: Final = Rounds()
        self._settings = settings
        self._ledger: Final = ReplayLedger(settings.history)
        self._restless: Final[dict[int, set[int]]] = {}
        self._stragglers: Final = Stragglers()
        self._slowness: Final = Slowness()
        self._heard: list[RoundKey] = []
        self._timed: Final[OrderedDict[tuple[int, int], deque[Round]]] = OrderedDict()
        self._moments: Final[dict[str, Moment]] = {}

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self._ledger.verdicts

    def apply(self, settings: Settings) -> None:
        self._settings = settings

    def take(self, report: NodeReport, now_ns: int, age_ns: int = 0) -> None:
        """What this report tells of replays is known; it was true ``age_ns`` ago."""
        self.rounds.take(report, now_ns, age_ns)

    def restart(self, generation: int, now_ns: int) -> list[Verdict]:
        """A new generation runs: nothing before it counts."""
        self.rounds.clear()
        self.aside.clear()
        self._restless.clear()
        self._stragglers.clear()
        self._slowness.clear()
        self._heard.clear()
        self._timed.clear()
        return self._ledger.restart(generation, now_ns)

    def tick(
        self,
        reports: Iterable[NodeReport],
        job: str,
        generation: int,
        now_ns: int,
        final: bool = False,
    ) -> list[Verdict]:
        """Verdicts that change by rounds which closed since the last tick; ``final``: all rounds close."""
        deadline_ns = 0 if final else int(self._settings.replay_round_s * NS_PER_S)
        due = self.rounds.due(now_ns, deadline_ns)
        changed = self._judge_heard(now_ns) if self._heard else []
        if not due and not self.wanted:
            return changed
        scene = _Scene(tuple(reports), job, generation, now_ns)
        for round_ in due:
            if not round_.again and round_.at.recipe not in self.aside:
                changed += self._judge(round_, scene)
            changed += self._judge_times(round_, scene)
        return changed + self._judge_suspects(scene, 0 if final else HOLD_NS)

    def moment(self, verdict_id: str) -> Moment | None:
        """What one of the newest verdicts was decided on first; None for older ones and unknown ids."""
        return self._moments.get(verdict_id)

    def resume(self, known: Iterable[Known], now_ns: int) -> None:
        """These verdicts hold already."""
        self._ledger.resume(known, now_ns)

    def _report(self, found: Finding, rounds: Sequence[Round], scene: _Scene) -> list[Verdict]:
        """The verdicts that this finding makes or extends; what new ones were decided on is kept."""
        known = self._ledger.known(scene.now_ns)
        changed = self._ledger.take(found, scene.job, scene.generation, scene.now_ns)
        names = self.rounds.names
        where = (scene.reports, scene.job, scene.generation, self._settings, known)
        for identity in {v.id for v in changed if v.state is State.OPEN}:
            self._moments[identity] = moment_of(rounds, names, *where)
        while len(self._moments) > KEPT_MOMENTS:
            del self._moments[next(iter(self._moments))]
        return changed

    @property
    def blamed(self) -> frozenset[int]:
        """Ranks that are known to compute wrongly."""
        return self._ledger.blamed

    @property
    def waiting(self) -> int:
        """Rounds of requests that are not judged yet."""
        return self.rounds.requested

    @property
    def wanted(self) -> tuple[RoundKey, ...]:
        """Rounds in which somebody looks slow: all agents shall tell their times."""
        return self._slowness.wanted

    def hear(self, told: Told, now_ns: int) -> None:
        """Everybody, on all nodes, has spoken of this round. If all agree it is closed by that; if the same
        rank looks slow again, the last rounds are opened again, for their times."""
        if told.agreed and self.rounds.settle(told.at) and told.recipe not in self.aside:
            self.tally.agreed += 1
        if not self._slowness.take(told):
            return
        self._heard.append(told.at)
        if self._slowness.slow(told.at) - self._ledger.slow:
            self._ask(self._slowness.suspect(told.at), now_ns)

    def join(self, told: Iterable[RoundKey], now_ns: int) -> None:
        """Other agents tell these rounds: they may suspect somebody who is not suspected here."""
        self._ask(self._slowness.join(told, now_ns), now_ns)

    def _ask(self, rounds: Iterable[RoundKey], now_ns: int) -> None:
        for at in rounds:
            self.rounds.ask(at, now_ns)

    def aside_names(self) -> list[tuple[str, str]]:
        """Recipes that are set aside, each with the reason."""
        return [(self.name(recipe), why) for recipe, why in self.aside.items()]

    def name(self, recipe: int) -> str:
        view: RecipeView | None = self.rounds.names.get(recipe)
        return f"{view.kind.value} {view.name}" if view is not None else f"{recipe:016x}"

    def _judge(self, round_: Round, scene: _Scene) -> list[Verdict]:
        judgement = judge(round_)
        self._note_restless(round_)
        aside = judgement.aside or self._wanders(round_)
        if aside:
            if len(self.aside) < MOST_ASIDE:
                self.aside[round_.at.recipe] = aside
            return []
        self._count(judgement)
        changed: list[Verdict] = []
        recipe = self.rounds.names.get(round_.at.recipe)
        for deviation in judgement.deviations:
            found = finding(deviation, judgement, round_, recipe, scene.places)
            changed += self._report(found, [round_], scene)
        return changed

    def _judge_times(self, round_: Round, scene: _Scene) -> list[Verdict]:
        if self._slowness.hand(round_, scene.now_ns) or round_.again:
            return []
        judgement = straggling.judge(self._stragglers, round_)
        if judgement is None:
            return []
        changed = self._name_slow(judgement, self._remember(round_), scene)
        healthy = straggling.healthy(judgement, round_)
        return changed + self._ledger.clean(healthy, CLEAN_ROUNDS, scene.now_ns)

    def _remember(self, round_: Round) -> list[Round]:
        """The newest rounds of this recipe whose times were judged here, this one the last."""
        series = (round_.at.recipe, round_.at.group)
        rounds = self._timed.setdefault(series, deque(maxlen=SLOW_ROUNDS))
        self._timed.move_to_end(series)
        if len(self._timed) > GROUPS_LIMIT:
            self._timed.popitem(last=False)
        rounds.append(round_)
        return list(rounds)

    def _judge_suspects(self, scene: _Scene, hold_ns: int) -> list[Verdict]:
        """Suspicions of which all results are here; about ranks that are named already they say nothing."""
        changed: list[Verdict] = []
        while rounds := self._slowness.due(scene.now_ns, hold_ns):
            judgement = self._stragglers.judge([straggling.times(each) for each in rounds])
            if set(judgement.confirmed) - self._ledger.slow:
                changed += self._name_slow(judgement, rounds, scene)
            self._slowness.settle(rounds[-1].at, bool(judgement.confirmed))
        return changed

    def _name_slow(self, judgement: Pace, rounds: Sequence[Round], scene: _Scene) -> list[Verdict]:
        if not judgement.confirmed:
            return []
        recipe = self.rounds.names.get(rounds[-1].at.recipe)
        found = straggling.finding(judgement, rounds[-1], recipe, scene.places)
        return self._report(found, rounds, scene)

    def _judge_heard(self, now_ns: int) -> list[Verdict]:
        """Ranks that were named for their times are still slow, or are quick, by the sketches."""
        heard, self._heard = self._heard, []
        changed: list[Verdict] = []
        for at in heard:
            named = self._ledger.slow
            self._ledger.soil(self._slowness.slow(at) & named)
            changed += self._ledger.clean(self._slowness.quick(at, named), CLEAN_ROUNDS, now_ns)
        return changed

    def _count(self, judgement: Judgement) -> None:
        if judgement.agreed:
            self.tally.agreed += 1
        elif any(d.ranks for d in judgement.deviations):
            self.tally.deviating += 1
        else:
            self.tally.undecided += 1

    def _note_restless(self, round_: Round) -> None:
        ranks = [rank for rank, result in round_.results.items() if result.differing]
        if ranks and (round_.at.recipe in self._restless or len(self._restless) < MOST_ASIDE):
            self._restless.setdefault(round_.at.recipe, set()).update(ranks)

    def _wanders(self, round_: Round) -> str:
        """More than half of the group disagreed with themselves, by and by."""
        known = self._restless.get(round_.at.recipe)
        if known is None or round_.peers < 3:
            return ""
        here = known.intersection(round_.results)
        if 2 * len(here) <= round_.peers:
            return ""
        return f"{len(here)} of {round_.peers} ranks have disagreed with themselves"
