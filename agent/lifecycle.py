"""The life of a verdict: OPEN → CONFIRMED → RESOLVED, or SUPPRESSED with its reason.

Findings come anew with every tick; the ledger recognises the event behind them, so that each change of
state is reported once.

- A fault opens and is confirmed in the same tick: limits and settling have been waited for before.
- A held finding is OPEN while its ranks are busy and SUPPRESSED where phase or progress explain it. It is
  confirmed if it outlasts its stretched limit; an OPEN one that goes away ends SUPPRESSED, with the time.
- A confirmed verdict is RESOLVED when its ranks move again, or when the job restarts.
- A verdict that names nobody gives way to one that does: it is RESOLVED, and points to the other. So does one
  that was confirmed while nodes had not been heard, if all evidence together says otherwise, and one over a
  part of the ranks that are found to have failed together.
- The verdict about an unreachable node is RESOLVED when the node is back, or when others are missing, too.
- The words of a confirmed verdict follow the evidence while the event goes on (``revision``).
- What happens to ranks after a verdict is confirmed is a consequence: no second verdict over them, and no
  new verdict about how ranks ended, unless it names a node that is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from scoutd.agent import revision, statement
from scoutd.agent.deaths import unordered
from scoutd.agent.finding import Finding
from scoutd.agent.known import Known
from scoutd.agent.narrative import ranks_text, seconds
from scoutd.agent.snapshot import Snapshot
from scoutd.agent.verdict import (
    Cause,
    State,
    Status,
    Symptom,
    Verdict,
    verdict_id,
)


@dataclass
class _Episode:
    """One event that is going on: the verdict's id and the ranks that it is about."""

    ranks: frozenset[int]
    cause: Cause
    seen: bool = True
    provisional: bool = False
    """Confirmed while nodes in reach had more to say, and not borne out since."""
    ending: bool = False
    """It was judged by how ranks ended."""
    worded_ns: int = 0
    living: frozenset[int] = frozenset()
    """Its ranks that lived when it was worded."""


class Ledger:
    """All verdicts of one job, newest state of each. ``limit`` bounds the closed ones."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._verdicts: dict[str, Verdict] = {}
        self._episodes: dict[str, _Episode] = {}
        self._together: frozenset[str] = frozenset()
        """Faults that one look at how ranks ended finds together."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Oldest first."""
        return tuple(self._verdicts.values())

    def __contains__(self, identity: object) -> bool:
        """A verdict of this id is known."""
        return identity in self._verdicts

    @property
    def busy(self) -> bool:
        """Some event goes on: the next look may change or close its verdict."""
        return bool(self._episodes)

    @property
    def confirmed(self) -> tuple[Verdict, ...]:
        """Faults that are not resolved."""
        return tuple(
            v for i, v in self._verdicts.items() if v.state is State.CONFIRMED and i in self._episodes
        )

    def known(self, now_ns: int) -> tuple[Known, ...]:
        """The events that are going on."""
        held = ((i, episode, self._verdicts[i]) for i, episode in self._episodes.items())
        return tuple(
            Known(
                i,
                e.cause,
                v.state,
                tuple(sorted(e.ranks)),
                v.implicated,
                now_ns - v.opened_ns,
                e.provisional,
                e.ending,
            )
            for i, e, v in held
        )

    def resume(self, known: Iterable[Known], now_ns: int) -> None:
        """These events are going on, as ``known`` told; their verdicts say no more than that."""
        for each in known:
            self._episodes[each.id] = _Episode(
                frozenset(each.ranks), each.cause, provisional=each.provisional, ending=each.ending
            )
            self._verdicts[each.id] = each.verdict(Symptom.HANG, Status.INCONCLUSIVE, now_ns)

    def update(
        self, findings: Sequence[Finding], snapshot: Snapshot, job: str, generation: int, now_ns: int
    ) -> list[Verdict]:
        """Reports of this tick, in order."""
        for episode in self._episodes.values():
            episode.seen = False
        ends = (f for f in findings if f.ending and f.hold is None)
        self._together = frozenset(_identity(f, f.about, job, generation) for f in ends)
        reports = self._close_back(snapshot, now_ns)
        if not _partial(snapshot):
            reports += self._reconsider(findings, job, generation, now_ns)
        for finding in sorted(findings, key=lambda f: f.hold is not None):
            reports += self._take(finding, snapshot, job, generation, now_ns)
        return reports + self._close_unseen(snapshot, now_ns)

    def conclude(self, why: str, now_ns: int) -> list[Verdict]:
        """The job ended: what is still OPEN will never be confirmed."""
        ended = [i for i in self._episodes if self._verdicts[i].state is State.OPEN]
        return [
            self._close(i, State.SUPPRESSED, f"{self._verdicts[i].suppressed_because}; {why}", now_ns)
            for i in ended
        ]

    def restart(self, generation: int, now_ns: int) -> list[Verdict]:
        """A new generation runs: everything before is over."""
        why = f"the job restarted as generation {generation}"
        reports = self.conclude(why, now_ns)
        reports += [
            self._close(i, State.RESOLVED, "", now_ns, why)
            for i in list(self._episodes)
            if self._verdicts[i].state is State.CONFIRMED
        ]
        self._episodes.clear()
        return reports

    def _take(
        self, finding: Finding, snapshot: Snapshot, job: str, generation: int, now_ns: int
    ) -> list[Verdict]:
        ranks = frozenset(finding.ranks)
        reports = self._give_way(finding, now_ns)
        whole = _identity(finding, finding.about, job, generation)
        if finding.hold is None and self._stands(whole):
            return reports + self._reword(whole, finding, snapshot, now_ns)
        reports += self._make_room(finding, now_ns)
        reports += self._outgrow(finding, now_ns)
        follows = finding.cause is Cause.PROCESS_DEAD or (finding.ending and not _is_node_loss(finding))
        over = None if _is_node_loss(finding) else self._confirmed_over(ranks, follows)
        if over is not None:
            self._episodes[over].seen = True
            fresh = frozenset(i.rank for i in finding.implicated) - self._blamed()
            if finding.hold is not None or not fresh or follows:
                return []
            finding = replace(finding, implicated=tuple(i for i in finding.implicated if i.rank in fresh))
            ranks = fresh
        if finding.cause is Cause.NODE_UNREACHABLE and not finding.implicated:
            reports += self._close_provisional(now_ns)
            if self._blamed():
                return reports  # whom this side has lost sight of since explains nothing
        known = self._episode_of(finding, ranks)
        identity = _identity(finding, finding.about and ranks, job, generation)
        if known is not None and finding.hold is not None:
            identity = known
        elif known is not None and known != identity:
            # A fault is named by its own evidence, not by what was held back before on less of it: else
            # agents that heard of each other in another order would name it differently.
            reports += self._replaced(known, identity, now_ns)
        self._episodes[identity] = _episode(finding, ranks, snapshot, now_ns)
        state = finding.hold or State.CONFIRMED
        old = self._verdicts.get(identity)
        if old is not None and old.state is state:
            return []
        made = statement.verdict(finding, identity, job, generation, snapshot, now_ns, old)
        if old is None and state is State.CONFIRMED:
            opened = replace(made, state=State.OPEN, confirmed_ns=None, detection_latency_ns=None)
            reports.append(opened)
        return [*reports, self._keep(made)]

    def _stands(self, identity: str) -> bool:
        return identity in self._episodes and self._verdicts[identity].state is State.CONFIRMED

    def _reword(self, identity: str, finding: Finding, snapshot: Snapshot, now_ns: int) -> list[Verdict]:
        """The event goes on; its verdict says what is known by now."""
        episode, old = self._episodes[identity], self._verdicts[identity]
        episode.seen = True
        if not old.summary or snapshot.stale or now_ns - episode.worded_ns < revision.PAUSE_NS:
            return []
        if episode.living & frozenset(finding.ranks) - revision.living(finding, snapshot):
            return []
        made = statement.verdict(finding, identity, old.job, old.generation, snapshot, now_ns, old)
        new = revision.reworded(old, made)
        if new is None:
            return []
        self._episodes[identity] = _episode(finding, frozenset(finding.ranks), snapshot, now_ns)
        return [self._keep(new)]

    def _reconsider(
        self, findings: Sequence[Finding], job: str, generation: int, now_ns: int
    ) -> list[Verdict]:
        """All evidence is here: what was confirmed on less of it is borne out by it, or gives way. How ranks
        ended is no evidence of what they did before."""
        reports: list[Verdict] = []
        for identity, episode in list(self._episodes.items()):
            faults = [f for f in findings if f.hold is None and f.ending == episode.ending]
            if not (faults and episode.provisional and self._stands(identity)):
                continue
            borne = {_identity(f, f.about, job, generation) for f in faults}
            parts = (f for f in faults if f.cause is episode.cause and not f.ending)
            if identity in borne or any(episode.ranks <= frozenset(f.ranks) for f in parts):
                episode.provisional = False
                continue
            said = (f.cause.value + (f" of {ranks_text(f.ranks)}" if f.implicated else "") for f in faults)
            why = f"all evidence together says {'; '.join(said)}"
            reports.append(self._close(identity, State.RESOLVED, "", now_ns, why))
        return reports

    def _close_provisional(self, now_ns: int) -> list[Verdict]:
        """Nodes had not been heard, and turn out to be so many that this side must not name anybody."""
        why = "too few nodes are in reach to bear it out"
        unproven = [v.id for v in self.confirmed if self._episodes[v.id].provisional]
        return [self._close(identity, State.RESOLVED, "", now_ns, why) for identity in unproven]

    def _make_room(self, finding: Finding, now_ns: int) -> list[Verdict]:
        """Which nodes are out of reach is one statement: a newer one replaces it."""
        if finding.cause is not Cause.NODE_UNREACHABLE or finding.hold is not None:
            return []
        nodes = sorted({i.node for i in finding.implicated})
        older = [v.id for v in self.confirmed if v.cause is Cause.NODE_UNREACHABLE]
        why = f"now {', '.join(nodes)}" if nodes else "now so many that this side has no majority"
        return [self._close(identity, State.RESOLVED, "", now_ns, why) for identity in older]

    def _outgrow(self, finding: Finding, now_ns: int) -> list[Verdict]:
        """Whoever is found together is named together: a verdict over some of them alone, made before the
        others were known to be part of it, gives way. It never gives way to one over fewer."""
        if finding.hold is not None or finding.ending or not finding.implicated:
            return []
        ranks = frozenset(finding.ranks)
        parts = [v.id for v in self.confirmed if v.implicated and v.cause is finding.cause]
        why = f"it is one event with {ranks_text(finding.ranks)}"
        outgrown = [i for i in parts if i in self._episodes and self._episodes[i].ranks < ranks]
        return [self._close(identity, State.RESOLVED, "", now_ns, why) for identity in outgrown]

    def _replaced(self, identity: str, by: str, now_ns: int) -> list[Verdict]:
        """What was held back goes on as another verdict."""
        if self._verdicts[identity].state is State.OPEN:
            why = f"{self._verdicts[identity].suppressed_because}; it went on as {by}"
            return [self._close(identity, State.SUPPRESSED, why, now_ns)]
        del self._episodes[identity]
        return []

    def _give_way(self, finding: Finding, now_ns: int) -> list[Verdict]:
        """Confirmed verdicts without a name end when a finding over the same stall has one."""
        if finding.hold is not None or not finding.implicated:
            return []
        nameless = [v.id for v in self.confirmed if not v.implicated and v.generation]
        why = f"{ranks_text(finding.ranks)} named since: {finding.cause.value}"
        return [self._close(identity, State.RESOLVED, "", now_ns, why) for identity in nameless]

    def _confirmed_over(self, ranks: frozenset[int], follows: bool) -> str | None:
        """A confirmed, unresolved verdict that already explains this finding. ``follows``: the finding is
        about how ranks ended, which any fault explains that was there before, unless the same look finds
        both: then it is a fault of its own."""
        for identity, episode in self._episodes.items():
            if self._verdicts[identity].state is not State.CONFIRMED:
                continue
            if episode.ranks & ranks or (follows and identity not in self._together):
                return identity
        return None

    def _blamed(self) -> frozenset[int]:
        return frozenset(i.rank for v in self.confirmed for i in v.implicated)

    def _episode_of(self, finding: Finding, ranks: frozenset[int]) -> str | None:
        """An open or suppressed episode of the same cause over some of the same ranks goes on."""
        for identity, episode in self._episodes.items():
            if self._verdicts[identity].state is State.CONFIRMED:
                continue
            if episode.cause is finding.cause and episode.ranks & ranks:
                return identity
        return None

    def _close_back(self, snapshot: Snapshot, now_ns: int) -> list[Verdict]:
        """Before anything else is found: what is seen of the ranks of a node that is back is news."""
        back = [
            v.id
            for v in self.confirmed
            if v.cause is Cause.NODE_UNREACHABLE and statement.is_back(snapshot, v)
        ]
        why = "the node can be reached again"
        return [self._close(identity, State.RESOLVED, "", now_ns, why) for identity in back]

    def _close_unseen(self, snapshot: Snapshot, now_ns: int) -> list[Verdict]:
        reports: list[Verdict] = []
        for identity, episode in list(self._episodes.items()):
            if episode.seen:
                continue
            verdict = self._verdicts[identity]
            if verdict.state is State.CONFIRMED:
                if verdict.cause is Cause.NODE_UNREACHABLE:
                    continue  # as long as it is, whatever the job does meanwhile
                if statement.moves(snapshot, episode.ranks, now_ns - (verdict.confirmed_ns or now_ns)):
                    why = f"{len(episode.ranks)} implicated moved again"
                    reports.append(self._close(identity, State.RESOLVED, "", now_ns, why))
                continue
            if verdict.state is State.OPEN:
                lasted = seconds(now_ns - (verdict.onset_ns or verdict.opened_ns))
                why = f"{verdict.suppressed_because}; it went on after {lasted}"
                reports.append(self._close(identity, State.SUPPRESSED, why, now_ns))
            self._episodes.pop(identity, None)
        return reports

    def _close(self, identity: str, state: State, because: str, now_ns: int, note: str = "") -> Verdict:
        verdict = replace(
            self._verdicts[identity], state=state, closed_ns=now_ns, suppressed_because=because.strip("; ")
        )
        if note:
            verdict = replace(verdict, summary=f"{verdict.summary} — resolved: {note}")
        self._episodes.pop(identity, None)
        return self._keep(verdict)

    def _keep(self, verdict: Verdict) -> Verdict:
        self._verdicts[verdict.id] = verdict
        closed = [i for i in self._verdicts if i not in self._episodes]
        for identity in closed[: max(0, len(closed) - self._limit)]:
            del self._verdicts[identity]
        return verdict


def _identity(finding: Finding, ranks: Iterable[int], job: str, generation: int) -> str:
    return verdict_id(job, generation, finding.cause, tuple(sorted(ranks)), finding.anchor)


def _episode(finding: Finding, ranks: frozenset[int], snapshot: Snapshot, now_ns: int) -> _Episode:
    living = revision.living(finding, snapshot)
    return _Episode(ranks, finding.cause, True, _partial(snapshot), finding.ending, now_ns, living)


def _partial(snapshot: Snapshot) -> bool:
    """What nodes in reach have to say is not all here."""
    return bool(snapshot.stale) or unordered(snapshot)


def _is_node_loss(finding: Finding) -> bool:
    """A node that is gone is a fault of its own, whatever was wrong before."""
    return finding.cause is Cause.NODE_UNREACHABLE and bool(finding.implicated)
