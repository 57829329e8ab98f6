"""From one moment of the job to findings: the order of the rules (design §4).

0. An exchange whose splits do not fit together is certain whatever else is known (``splits``): where it is
   not over, it explains the rest, else it stands beside it.
1. A primary death explains everything that follows it (``crash``).
2. Where only consequences died, the collective in which they died is judged (``crash``).
3. Without deaths, silence: stopped processes, fingerprints, roots of the wait-for graph, devices (``stall``).

Every finding lists the implicated ranks and clears all others, each with whom it waits for. A rule that
cannot name a rank says so (status INCONCLUSIVE or AGREE, nobody implicated); no rule ever guesses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scoutd.agent import crash, splits, stall
from scoutd.agent.deaths import Kind, deaths
from scoutd.agent.finding import Finding
from scoutd.agent.settings import Settings
from scoutd.agent.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``undecided`` ranks need a stack with native frames before the graph can be judged. ``beside``: what is
    wrong although it is over, and explains nothing of the rest."""

    findings: tuple[Finding, ...]
    undecided: tuple[int, ...] = ()
    beside: tuple[Finding, ...] = ()


def localize(snapshot: Snapshot, settings: Settings, judge_deaths: bool) -> Diagnosis:
    """Findings of this moment. ``judge_deaths``: the first death is old enough to be judged.

    While a death waits for its judgement, silence is not judged: it may be a consequence.
    """
    died = any(d.kind is not Kind.CLEAN for d in deaths(snapshot))
    torn = splits.find(snapshot, partial=died and judge_deaths)
    if torn is not None and torn.unfinished:
        return Diagnosis((splits.finding(snapshot, torn),))
    beside = () if torn is None else (splits.finding(snapshot, torn),)
    if died:
        ends = [replace(f, ending=True) for f in crash.find(snapshot, settings)] if judge_deaths else []
        return Diagnosis(tuple(ends), (), beside)
    findings, undecided = stall.find(snapshot, settings)
    return Diagnosis(tuple(findings), undecided, beside)
