"""A moment judged again, on another machine or by another build.

The rules are functions of the moment alone: the same moment gives the same verdict, id included.
"""

from __future__ import annotations

from scoutd.agent.lifecycle import Ledger
from scoutd.agent.localize import localize
from scoutd.agent.moment import Moment
from scoutd.agent.replaywatch import ReplayWatch
from scoutd.agent.settings import NS_PER_S
from scoutd.agent.snapshot import snapshot
from scoutd.agent.verdict import Verdict


def judge_again(moment: Moment, now_ns: int) -> tuple[Verdict, ...]:
    """The verdicts that this moment gives, those that it opens or changes."""
    reports = _rounds(moment, now_ns) if moment.replays else _waits(moment, now_ns)
    return tuple({verdict.id: verdict for verdict in reports}.values())


def _waits(moment: Moment, now_ns: int) -> list[Verdict]:
    limit = int(moment.settings.heartbeat_limit_s * NS_PER_S)
    reach = (moment.unreachable, moment.majority, moment.stale, moment.quiet)
    seen = snapshot(moment.reports, limit, moment.paused, *reach)
    diagnosis = localize(seen, moment.settings, moment.judge_deaths)
    ledger = Ledger(moment.settings.history)
    ledger.resume(moment.known, now_ns)
    return ledger.update(
        (*diagnosis.findings, *diagnosis.beside), seen, moment.job, moment.generation, now_ns
    )


def _rounds(moment: Moment, now_ns: int) -> list[Verdict]:
    watch = ReplayWatch(moment.settings)
    watch.resume(moment.known, now_ns)
    for report, age_ns in moment.reports:
        watch.take(report, now_ns, age_ns)
    told = [report for report, _ in moment.reports]
    return watch.tick(told, moment.job, moment.generation, now_ns, final=True)
