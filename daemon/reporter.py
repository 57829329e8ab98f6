"""What happens when the core reports a verdict: ledger, metrics, log, hook, watchers.

The ledger is first, so that whoever learns of a verdict can also look it up. Metrics, log and hook follow the
*state*. Watchers are told when the state or the *substance* changes (a stack arrived, a rank was added). A
new number in the text of a verdict that is otherwise the same reaches memory only, else a busy rank would be
announced and written to disk ten times a second.
"""

from __future__ import annotations

from typing import Final

from scoutd.agent.verdict import State, Verdict
from scoutd.daemon import codec
from scoutd.daemon.clock import Stamps
from scoutd.daemon.hooks import VerdictHook
from scoutd.daemon.ledger import Ledger
from scoutd.daemon.log import logger
from scoutd.daemon.serve.metrics import Metrics
from scoutd.daemon.store import Entry
from scoutd.daemon.watchers import Watchers

KEPT_SUBSTANCES: Final = 512


class Reporter:
    """The outlets of one agent."""

    def __init__(
        self, ledger: Ledger, watchers: Watchers, metrics: Metrics, hook: VerdictHook, stamps: Stamps
    ) -> None:
        self.ledger: Final = ledger
        self.watchers: Final = watchers
        self.metrics: Final = metrics
        self.hook: Final = hook
        self.stamps: Final = stamps
        self._told: Final[dict[str, Verdict]] = {}
        self._lists: Final = codec.Lists()

    def report(self, verdict: Verdict, run: str) -> None:
        """Everyone who wants to know has this state of the verdict."""
        message = codec.encode_verdict(verdict, self.stamps, self._lists)
        entry = Entry(
            verdict.id, verdict.job, verdict.generation, run, verdict.state.value, codec.to_bytes(message)
        )
        before = self.ledger.get(verdict.id)
        news = self._is_news(verdict)
        if not self.ledger.put(entry, keep=news):
            return
        if before is None or before.state != entry.state:
            self._count(verdict)
            _log(verdict)
            if self.hook.command:
                self.hook.offer(codec.to_json(message))
        if news:
            self.watchers.publish(entry)

    def _count(self, verdict: Verdict) -> None:
        self.metrics.count_verdict(verdict.symptom.value, verdict.cause.value, verdict.state.value)
        if verdict.state is State.SUPPRESSED:
            self.metrics.count_suppressed(verdict.suppressed_because)
        if verdict.state is State.CONFIRMED and verdict.detection_latency_ns is not None:
            self.metrics.detection_latency.observe(codec.seconds(verdict.detection_latency_ns))

    def _is_news(self, verdict: Verdict) -> bool:
        """True if watchers were never told this substance of the verdict."""
        before = self._told.pop(verdict.id, None)
        self._told[verdict.id] = verdict
        if len(self._told) > KEPT_SUBSTANCES:
            del self._told[next(iter(self._told))]
        return before is None or _gist(before) != _gist(verdict) or _lists(before) != _lists(verdict)


# The substance of a verdict is what it says without ages and wording, which move all the time.


def _gist(verdict: Verdict) -> tuple[object, ...]:
    """The short part of its substance."""
    return (
        verdict.state,
        verdict.status,
        verdict.cause,
        verdict.phase,
        verdict.operation,
        verdict.action,
        tuple(each.rank for each in verdict.implicated),
    )


def _lists(verdict: Verdict) -> tuple[object, ...]:
    """The part of its substance that grows with the job."""
    return (
        tuple((each.rank, each.waits_for) for each in verdict.cleared),
        tuple((each.rank, each.stack.frames, each.stack.refused) for each in verdict.stacks),
        tuple((each.rank, each.note.kind, each.note.message) for each in verdict.death_notes),
    )


def _log(verdict: Verdict) -> None:
    """One line per change of state; CONFIRMED is a warning, the rest is information."""
    write = logger().warning if verdict.state is State.CONFIRMED else logger().info
    write(
        "verdict",
        id=verdict.id,
        job=verdict.job,
        state=verdict.state.value,
        cause=verdict.cause.value,
        ranks=[each.rank for each in verdict.implicated],
        summary=verdict.summary,
        **({"suppressed_because": verdict.suppressed_because} if verdict.suppressed_because else {}),
    )
