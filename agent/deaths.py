"""Deaths (design §4 a): which end of a process came first, and which ones only follow.

After one rank dies the others die too: their collectives fail with connection errors, their launcher sends
SIGTERM, their libraries abort. A death is a *consequence* if it

- came by SIGTERM, SIGINT or SIGHUP after somebody else's end, or by SIGKILL long after one on its node
  (launchers that wait, and then kill the rest), or
- is an exception whose text is a lost connection, or that left a collective after somebody else's end, or
- is an abort (SIGABRT), a failure or an unseen end inside a collective: judged on that collective first
  (``mismatch``), because the process that aborts may be innocent.

What is left is *primary*. The first primary death is the cause; another one counts beside it only within
``TIE_NS``, in which nobody could have reacted to the first.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from scoutd.agent import firsts
from scoutd.agent.census import census
from scoutd.agent.evidence import CallState, DeathNote, Phase, ProcessStatus, RankReport
from scoutd.agent.snapshot import Rendezvous, Snapshot, collectives

TIE_NS: Final = 20_000_000
"""torchrun and mp.spawn poll every 100 ms or more; 20 ms is faster than any of them reacts."""

LOST_CONNECTION: Final = (
    "connection closed by peer",
    "connection reset by peer",
    "connection was likely closed",
    "broken pipe",
    "socket closed",
    "gloo/transport",
    "remote process exited",
    "nccl communicator was aborted",
    "ncclremoteerror",
    "ncclsystemerror",
    "timed out waiting",
    "wait timeout after",
    "application timeout caused pair closure",
    "watchdog caught collective operation timeout",
    "connection refused",
    "failed to recv",
    "connection to remote",
    "lost connection",
)
SWEEP_NS: Final = 3_000_000_000
"""More than an agent's rounds lie apart (``Settings.max_gap_s``): an exit is never noticed so much late."""

CANCELLED: Final = ("KeyboardInterrupt", "SystemExit", "SignalException")
POLITE: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Kind(str, Enum):
    """CLEAN: exit code 0. POLITE: told to end. LOST: a lost connection. ABORTED: SIGABRT, a failure or an
    unseen end inside a collective. PRIMARY: died by itself or was killed."""

    CLEAN = "CLEAN"
    POLITE = "POLITE"
    LOST = "LOST"
    ABORTED = "ABORTED"
    PRIMARY = "PRIMARY"


CONSEQUENCES: Final = (Kind.POLITE, Kind.LOST, Kind.ABORTED)


@dataclass(frozen=True, slots=True)
class Death:
    """The end of one rank. ``age_ns`` is the age of the exception if there is a note, else of the exit.
    ``at`` is the collective it was inside, if any."""

    rank: int
    kind: Kind
    age_ns: int
    what: str
    note: DeathNote | None = None
    at: Rendezvous | None = None


def deaths(snapshot: Snapshot) -> list[Death]:
    """Every rank that is gone or dying, first death first."""
    return snapshot.once(_deaths)


def falls(snapshot: Snapshot) -> tuple[firsts.Fall, ...]:
    """The primary deaths, as old as this agent reckons."""
    return snapshot.once(_falls)


def unordered(snapshot: Snapshot) -> bool:
    """Some node has not told yet how it saw a death that may have been the first: until it does, agents may
    have them in different orders."""
    return firsts.awaited(falls(snapshot), snapshot.seen, snapshot.unreachable | snapshot.stale)


def _deaths(snapshot: Snapshot) -> list[Death]:
    shifts = firsts.shifts(falls(snapshot), snapshot.seen) if snapshot.seen else {}
    judged = snapshot.once(_judged)
    if shifts:
        nodes = snapshot.nodes
        judged = [replace(d, age_ns=max(0, d.age_ns + shifts.get(nodes[d.rank], 0))) for d in judged]
    return sorted(judged, key=lambda d: (-d.age_ns, d.rank))


def _judged(snapshot: Snapshot) -> list[Death]:
    reported = snapshot.once(_reported, lasting=True)
    aged = [replace(d, age_ns=d.age_ns + snapshot.age_ns(d.rank)) for d in reported]
    failed: dict[str, int] = {}
    for death in aged:
        if death.kind in CONSEQUENCES:
            node = snapshot.nodes[death.rank]
            failed[node] = max(death.age_ns, failed.get(node, 0))
    return [replace(d, kind=Kind.POLITE) if _swept_up(snapshot, d, failed) else d for d in aged]


def _falls(snapshot: Snapshot) -> tuple[firsts.Fall, ...]:
    return tuple(
        firsts.Fall(d.rank, snapshot.nodes[d.rank], d.age_ns, snapshot.age_ns(d.rank))
        for d in snapshot.once(_judged)
        if d.kind is Kind.PRIMARY
    )


def _swept_up(snapshot: Snapshot, killed: Death, failed: Mapping[str, int]) -> bool:
    """A SIGKILL long after another rank of the same node had failed: the launcher's patience was over.
    ``failed``: by node, the age of its first consequence.

    The times of one node are of one clock, and exits are noticed within ``SWEEP_NS``. A rank that showed life
    after that failure did not cause it, however soon it was killed.
    """
    report = snapshot.ranks[killed.rank]
    if killed.kind is not Kind.PRIMARY or report.process.signal != signal.SIGKILL or report.process.oom:
        return False
    lived = min(killed.age_ns + SWEEP_NS, _last_sign_age(report) + snapshot.age_ns(killed.rank))
    return failed.get(snapshot.nodes[killed.rank], 0) > lived


def _reported(snapshot: Snapshot) -> list[Death]:
    """Each death with its age when it was reported."""
    return [death for report in census(snapshot).ended if (death := death_of(report)) is not None]


def death_of(report: RankReport) -> Death | None:
    """None while the rank lives and no exception has ended its main thread."""
    process = report.process
    note = min((n for n in report.notes if n.source == "EXCEPTION"), key=lambda n: n.age_ns, default=None)
    gone = process.status is ProcessStatus.GONE
    if not gone and (note is None or note.kind in CANCELLED):
        return None
    at = _inside(report)
    age = note.age_ns if note is not None else _gone_age(report)
    kind = _kind(report, note, at)
    return Death(report.rank, kind, age, describe(report, note), note, at)


def _gone_age(report: RankReport) -> int:
    """Age of the exit; of one that nobody saw, the age of the last sign of life, which cannot be later."""
    if report.process.gone_age_ns is not None:
        return report.process.gone_age_ns
    return _last_sign_age(report)


def _last_sign_age(report: RankReport) -> int:
    """Age of the last coordinate, call or heartbeat."""
    beat = report.heartbeat_age_ns
    return report.silent_ns if beat is None else min(report.silent_ns, beat)


def primaries(found: list[Death]) -> list[Death]:
    """The deaths that are the cause: the first primary one and those within ``TIE_NS`` of it.

    Several SIGKILLs in one tie while nobody else survives it are one launcher's work: only the first
    counts. The same exception at the same line on several ranks is one bug: all of them count.
    """
    own = [d for d in found if d.kind is Kind.PRIMARY]
    if not own:
        return []
    first = own[0]
    tied = [d for d in own if first.age_ns - d.age_ns <= TIE_NS]
    same = [d for d in own if first.age_ns - d.age_ns > TIE_NS and _same_exception(first, d)]
    others = len(own) < len(found)
    if all(d.what == "was killed by SIGKILL" for d in tied) and len(tied) > 1 and not others:
        tied = [first]
    return tied + same


def _same_exception(first: Death, other: Death) -> bool:
    a, b = first.note, other.note
    return a is not None and b is not None and (a.kind, a.location) == (b.kind, b.location)


def _kind(report: RankReport, note: DeathNote | None, at: Rendezvous | None) -> Kind:
    process = report.process
    if note is not None and note.kind not in CANCELLED:
        if any(text in f"{note.kind}: {note.message}".lower() for text in LOST_CONNECTION):
            return Kind.LOST
        return Kind.ABORTED if at is not None else Kind.PRIMARY
    if process.exit_code == 0 or (note is not None and note.kind in CANCELLED):
        return Kind.CLEAN if process.exit_code == 0 else Kind.POLITE
    if process.signal is not None:
        if process.signal in POLITE:
            return Kind.POLITE
        return Kind.ABORTED if process.signal == signal.SIGABRT and at is not None else Kind.PRIMARY
    if process.exit_code is None and _was_leaving(report):
        return Kind.CLEAN
    return Kind.ABORTED if at is not None else Kind.PRIMARY


def _was_leaving(report: RankReport) -> bool:
    coordinate = report.coordinate
    return coordinate is not None and coordinate.phase is Phase.EXITING


def _inside(report: RankReport) -> Rendezvous | None:
    """The collective that was the last thing the rank published: pending, or left by an exception."""
    newest = min(collectives(report), key=lambda c: c.age_ns, default=None)
    open_calls = [c for c in collectives(report) if c.state is not CallState.DONE]
    last = min(open_calls, key=lambda c: c.age_ns, default=None)
    if last is None or (newest is not None and newest.age_ns < last.age_ns and not last.waiting):
        return None
    return (last.group, last.sequence)


def describe(report: RankReport, note: DeathNote | None) -> str:
    """How it ended, in words: "raised ValueError: …", "was killed by SIGKILL", "exited with code 3"."""
    process = report.process
    if note is not None:
        where = note.user_location or note.location
        return f"raised {note.kind}: {note.message}" + (f" ({where})" if where else "")
    if process.signal is not None:
        text = f"was killed by {_signal_name(process.signal)}"
        return text + " (out of memory)" if process.oom else text
    if process.exit_code is not None:
        return f"exited with code {process.exit_code}"
    return "ended without a word (its exit status could not be read)"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
