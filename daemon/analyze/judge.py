"""The verdict on a moment: the rules of the core, once, on all that is known.

A living job gets a verdict per event; files get one verdict for everything that is wrong in them. Where the
rules find several causes, their ranks are implicated together, each with its own reason, and the cause is
that of the first finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from scoutd.agent.behind import leads_to
from scoutd.agent.finding import Finding
from scoutd.agent.lifecycle import Ledger
from scoutd.agent.localize import localize
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.snapshot import Snapshot, snapshot
from scoutd.agent.verdict import Action, Cause, EvidenceItem, Scope, State, Status, Verdict
from scoutd.agent.waitfor import build
from scoutd.daemon.analyze.moment import Moment

HEARTBEAT_NS: Final = 5 * NS_PER_S
MAX_WARNINGS: Final = 32


def judge(moment: Moment, job: str, troubles: tuple[str, ...] = ()) -> Verdict:
    """One verdict. Its times are wall-clock nanoseconds: the newest entry of any dump is its moment."""
    now = max(moment.newest_ns.values(), default=0)
    seen = snapshot([(report, 0) for report in moment.reports], HEARTBEAT_NS)
    findings = localize(seen, Settings(), judge_deaths=False).findings
    finding = _joined([f for f in findings if f.hold is None]) or _nothing(seen, moment)
    finding = _with_waits(_in_words_of_dumps(finding, moment.unknown), seen)
    ledger = Ledger(limit=4)
    ledger.update([finding], seen, job, 0, now)
    (verdict,) = ledger.verdicts
    notes = [*troubles, *moment.warnings][:MAX_WARNINGS]
    onset = moment.newest_ns.get(finding.ranks[0], 0) if finding.ranks else 0
    return replace(
        verdict,
        onset_ns=onset or now,
        detection_latency_ns=None,
        evidence=(*verdict.evidence, *(EvidenceItem(None, "dump", text) for text in notes)),
    )


def _joined(findings: list[Finding]) -> Finding | None:
    """All of them as one; findings that name nobody add nothing to those that name somebody."""
    findings = [f for f in findings if f.implicated] or findings[:1]
    if not findings:
        return None
    first = findings[0]
    if len(findings) == 1:
        return first
    implicated = tuple(sorted((i for f in findings for i in f.implicated), key=lambda i: i.rank))
    guilty = {i.rank for i in implicated}
    return replace(
        first,
        summary="; and ".join(f.summary for f in findings),
        anchor=" + ".join(f.anchor for f in findings),
        implicated=implicated,
        cleared=tuple(c for c in first.cleared if c.rank not in guilty),
        evidence=tuple(item for f in findings for item in f.evidence),
    )


def _nothing(seen: Snapshot, moment: Moment) -> Finding:
    """Nobody waits for anybody: no fault in these files."""
    ranks = tuple(sorted(set(seen.ranks) - set(moment.unknown)))
    held = "nobody waits for another rank, and every collective is finished"
    return Finding(
        cause=Cause.GROUP_STALL,
        status=Status.AGREE if not moment.unknown else Status.INCONCLUSIVE,
        scope=Scope.JOB,
        summary=f"no fault in the dumps of {len(ranks)} ranks: {held}",
        action=Action.NONE,
        anchor="nothing",
        onset_age_ns=0,
        peer_group=ranks,
        hold=State.SUPPRESSED,
        held=held,
    )


def _in_words_of_dumps(finding: Finding, unknown: Mapping[int, str]) -> Finding:
    """What is said of ranks whose dumps tell nothing, in the words of dumps."""
    cleared = tuple(c._replace(reason=unknown[c.rank]) if c.rank in unknown else c for c in finding.cleared)
    suspects = sorted(set(finding.suspects) & set(unknown))
    summary = finding.summary
    if suspects and not finding.implicated:
        summary += "; " + "; ".join(f"rank {r}: {unknown[r]}" for r in suspects[:4])
    return replace(finding, cleared=cleared, summary=summary)


def _with_waits(finding: Finding, seen: Snapshot) -> Finding:
    """A cleared rank that waits for nobody directly is told for whom it waits in the end."""
    indirect = [c for c in finding.cleared if not c.waits_for]
    if not indirect or not finding.implicated:
        return finding
    reached = leads_to(seen.ranks, build(seen).places, [i.rank for i in finding.implicated])
    return replace(
        finding,
        cleared=tuple(
            c if c.waits_for else c._replace(waits_for=reached.get(c.rank, ())) for c in finding.cleared
        ),
    )
