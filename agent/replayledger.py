"""The life of verdicts from replays: silent corruption and stragglers.

They live apart from those of a hang. Progress resolves nothing here: a rank that computes wrongly goes on
training, so its verdict stays CONFIRMED until the job restarts. What the same ranks do again extends the
evidence of the verdict that there is; people hear of a rank and a cause once.

- A verdict that names nobody gives way to one that does, of the same group and kind.
- A straggler's verdict is RESOLVED after a number of rounds in which the rank was not slow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from scoutd.agent.finding import Finding
from scoutd.agent.known import Known
from scoutd.agent.narrative import ranks_text
from scoutd.agent.statement import stated
from scoutd.agent.verdict import (
    Cause,
    EvidenceItem,
    State,
    Status,
    Symptom,
    Verdict,
    verdict_id,
)

MOST_EVIDENCE: Final = 32
"""Lines of evidence of one verdict; the first ones stay, the last line counts."""


@dataclass
class _Case:
    """``seen``: rounds that showed it. ``clean``: rounds since then that did not."""

    ranks: frozenset[int]
    seen: int = 1
    clean: int = 0


class ReplayLedger:
    """All replay verdicts of a job, newest state of each. ``limit`` bounds the closed ones."""

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._verdicts: dict[str, Verdict] = {}
        self._cases: dict[str, _Case] = {}

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Oldest first."""
        return tuple(self._verdicts.values())

    @property
    def blamed(self) -> frozenset[int]:
        """Ranks that verdicts name now for what they computed."""
        return self._named(Symptom.SDC)

    @property
    def slow(self) -> frozenset[int]:
        """Ranks that verdicts name now for their times."""
        return self._named(Symptom.STRAGGLER)

    def _named(self, symptom: Symptom) -> frozenset[int]:
        about = (case.ranks for i, case in self._cases.items() if self._verdicts[i].symptom is symptom)
        return frozenset[int]().union(*about)

    def known(self, now_ns: int) -> tuple[Known, ...]:
        """The verdicts that hold."""
        held = ((case, self._verdicts[identity]) for identity, case in self._cases.items())
        return tuple(
            Known(v.id, v.cause, v.state, tuple(sorted(case.ranks)), v.implicated, now_ns - v.opened_ns)
            for case, v in held
        )

    def resume(self, known: Iterable[Known], now_ns: int) -> None:
        """These verdicts hold, as ``known`` told; they say no more than that."""
        for each in known:
            symptom = Symptom.STRAGGLER if each.cause is Cause.COMPUTE_STRAGGLER else Symptom.SDC
            self._cases[each.id] = _Case(frozenset(each.ranks))
            status = Status.ATTRIBUTED if each.ranks else Status.INCONCLUSIVE
            self._verdicts[each.id] = each.verdict(symptom, status, now_ns)

    def take(self, finding: Finding, job: str, generation: int, now_ns: int) -> list[Verdict]:
        """The states to report: of a new verdict, or of one that this finding says more about."""
        ranks = frozenset(i.rank for i in finding.implicated)
        reports = self._give_way(finding, now_ns) if ranks else []
        known = [i for i in self._cases if self._verdicts[i].cause is finding.cause]
        blamed = frozenset[int]().union(*(self._cases[i].ranks for i in known))
        if ranks:
            for identity in known:
                if self._cases[identity].ranks & ranks:
                    reports += self._extend(identity, finding)
            if not ranks - blamed:
                return reports
            finding = _only(finding, ranks - blamed)
        identity = verdict_id(job, generation, finding.cause, finding.ranks, finding.anchor)
        if identity in self._cases:
            return reports + self._extend(identity, finding)
        if not ranks and blamed:
            return reports  # somebody is named for this already
        made = stated(finding, identity, job, generation, now_ns)
        self._cases[identity] = _Case(frozenset(finding.ranks))
        opened = replace(made, state=State.OPEN, confirmed_ns=None, detection_latency_ns=None)
        return [*reports, opened, self._keep(made)]

    def soil(self, ranks: frozenset[int]) -> None:
        """These ranks, named for their times, were slow again: rounds in which they were not, before that, do
        not count."""
        for identity, case in self._cases.items():
            if case.ranks & ranks and self._verdicts[identity].symptom is Symptom.STRAGGLER:
                case.clean = 0

    def clean(self, ranks: Iterable[int], rounds: int, now_ns: int) -> list[Verdict]:
        """These ranks were not slow in one more round; stragglers resolve after ``rounds`` of them."""
        reports = []
        healthy = frozenset(ranks)
        for identity, case in list(self._cases.items()):
            if self._verdicts[identity].symptom is not Symptom.STRAGGLER or not case.ranks <= healthy:
                continue
            case.clean += 1
            if case.clean >= rounds:
                why = f"{ranks_text(sorted(case.ranks))} not slow in {rounds} rounds"
                reports.append(self._close(identity, why, now_ns))
        return reports

    def restart(self, generation: int, now_ns: int) -> list[Verdict]:
        """A new generation runs: everything before is over."""
        why = f"the job restarted as generation {generation}"
        return [self._close(identity, why, now_ns) for identity in list(self._cases)]

    def _extend(self, identity: str, finding: Finding) -> list[Verdict]:
        """The verdict's evidence grows; told when the number of rounds has doubled."""
        case, verdict = self._cases[identity], self._verdicts[identity]
        case.seen += 1
        case.clean = 0
        mine = [e for e in finding.evidence if e.rank is None or e.rank in case.ranks]
        lines = [e for e in verdict.evidence if e.kind != "rounds"]
        lines += [e for e in mine if e not in lines][: max(0, MOST_EVIDENCE - 1 - len(lines))]
        count = EvidenceItem(None, "rounds", f"seen in {case.seen} rounds")
        self._verdicts[identity] = replace(verdict, evidence=(*lines, count))
        told = case.seen & (case.seen - 1) == 0
        return [self._verdicts[identity]] if told else []

    def _give_way(self, finding: Finding, now_ns: int) -> list[Verdict]:
        nameless = [
            i
            for i, case in self._cases.items()
            if not case.ranks and self._verdicts[i].symptom is finding.symptom
        ]
        why = f"{ranks_text(finding.ranks)} named since: {finding.cause.value}"
        return [self._close(identity, why, now_ns) for identity in nameless]

    def _close(self, identity: str, why: str, now_ns: int) -> Verdict:
        verdict = self._verdicts[identity]
        del self._cases[identity]
        summary = f"{verdict.summary} — resolved: {why}"
        return self._keep(replace(verdict, state=State.RESOLVED, closed_ns=now_ns, summary=summary))

    def _keep(self, verdict: Verdict) -> Verdict:
        self._verdicts[verdict.id] = verdict
        closed = [i for i in self._verdicts if i not in self._cases]
        for identity in closed[: max(0, len(closed) - self._limit)]:
            del self._verdicts[identity]
        return verdict


def _only(finding: Finding, ranks: frozenset[int]) -> Finding:
    """The finding as far as it is about these ranks."""
    return replace(
        finding,
        implicated=tuple(i for i in finding.implicated if i.rank in ranks),
        evidence=tuple(e for e in finding.evidence if e.rank is None or e.rank in ranks),
    )
