"""How the real input of a group's first rank reaches its peers, and when all replay it (mode BROADCAST).

Nobody waits. All goes through notes in the trainer's store (``channel``), on the channel's thread:

1. The first rank puts the captured calls into a note and announces its number.
2. A peer that has read them, and can make them by then, counts itself ready.
3. When all are ready, the first rank chooses a step far enough ahead and announces it; all replay after that
   step. Where they are not all ready within ``DEADLINE_S``, it announces that this one is given up, and no
   rank replays it. The notes are deleted either way. The next one follows the later, the more were given up.

A peer that hears of the step too late takes no part: its evidence is missing, which is never agreement and
blames nobody. One broadcast is under way at a time; the announcement is one note, written again.

What a peer has received is replayed as it came: its signature is evidence of the transfer, so a rank that was
given other bytes is named (SDC_BROADCAST), and the first rank is where it sent others than it had captured.
Reference: SCOUT §3, BroadcastSource. The rule of readiness: design §3, "Command slot".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from scoutd.shim.replay import templates
from scoutd.shim.replay.cadence import start_of
from scoutd.shim.replay.call import Call
from scoutd.shim.replay.channel import FIRST_PAUSE_S, Channel

MAX_BYTES: Final = 16 << 20
"""Of one broadcast. Each peer holds it once until it is replayed, the store until all have read it."""

MAX_READ_BYTES: Final = 256 << 20
"""All peers read it from one store, which is busy with it for a fraction of a second: bytes · peers."""

IDLE_S: Final = 5.0
"""A peer looks for the next announcement so often, while nothing is under way."""

DEADLINE_S: Final = 30.0
"""Peers look within IDLE_S; the rest is for reading."""

LONGEST_REST_S: Final = 3600.0
"""After one was given up no other is tried for DEADLINE_S, twice as long after each further one: a rank
without a shim is never ready."""

AHEAD_S: Final = 1.0
AHEAD_SHARE: Final = 0.5
"""A peer that waits looks ever less often: its pause is at most a third of how long it has waited."""

LOOKS_PER_S: Final = 1024
"""Of all peers together, when they begin to wait for something."""

GIVEN_UP: Final = -1
NOT_AGREED: Final = 0


class Announcement(NamedTuple):
    """``start``: the step after which broadcast ``number`` is replayed; NOT_AGREED yet, or GIVEN_UP."""

    number: int
    start: int

    def written(self) -> bytes:
        return f"{self.number} {self.start}".encode()


def read(content: bytes) -> Announcement:
    """What ``written`` gave. Raises ValueError for anything else."""
    number, start = content.split()
    return Announcement(int(number), int(start))


@dataclass(frozen=True)
class Agreed:
    """Calls, by the recipe's index, that all ranks replay after step ``start``. ``captured``: on the rank
    that has captured them, their signatures before they were sent."""

    start: int
    calls: Mapping[int, Call]
    captured: Mapping[int, int] = field(default_factory=dict)


def limit_of(peers: int) -> int:
    """Bytes that a broadcast to so many peers may have."""
    return min(MAX_BYTES, MAX_READ_BYTES // max(1, peers))


def _first_pause_s(peers: int) -> float:
    return max(FIRST_PAUSE_S, peers / LOOKS_PER_S)


class Leader:
    """The first rank's end. ``sent``, ``agreed`` and ``given_up`` count broadcasts; ``told`` is the newest
    announcement."""

    def __init__(self, base: str, peers: int, channel: Channel) -> None:
        self.sent = self.agreed = self.given_up = 0
        self.told = b""
        self.peers: Final = peers
        self._base: Final = base
        self._channel: Final = channel
        self._under_way: tuple[Mapping[int, Call], Mapping[int, int]] | None = None
        self._sent_s = self._rests_until_s = 0.0
        self._in_vain = 0
        self._ready = 0
        """Number of the newest broadcast that all peers have; written by the channel's thread."""

    @property
    def is_free(self) -> bool:
        return self._under_way is None

    def may_send(self, now_s: float) -> bool:
        """Whether it is worth trying."""
        return self.is_free and now_s >= self._rests_until_s and not self._channel.is_behind

    def send(self, calls: Mapping[int, Call], captured: Mapping[int, int], now_s: float) -> None:
        """The calls are on their way; their tensors are on the host and do not change any more."""
        self.sent += 1
        number = self.sent
        self._under_way, self._sent_s = (calls, captured), now_s
        self._channel.drop(_ready(self._base, number - 1))  # of a peer that was late, if there was one
        found = templates.Templates(dict(calls))
        self._channel.tell_made(_input(self._base, number), lambda: templates.pack(found))
        self._announce(NOT_AGREED)
        self._channel.await_count(
            _ready(self._base, number), self.peers, lambda _: self._hear(number), 4 * FIRST_PAUSE_S
        )

    def _hear(self, number: int) -> None:
        self._ready = number

    def turn(self, step: int, step_s: float, now_s: float) -> Agreed | None:
        """After ``step``: what has become agreed. A broadcast that is not everywhere in time is given up."""
        if self._under_way is None:
            return None
        if self._ready == self.sent:
            ahead_s = AHEAD_S + AHEAD_SHARE * (now_s - self._sent_s)
            start = start_of(step, step_s, ahead_s)
            found = Agreed(start, *self._under_way)
            self.agreed += 1
            self._in_vain = 0
            self._end(start)
            return found
        if now_s - self._sent_s > DEADLINE_S:
            self.given_up += 1
            self._rests_until_s = now_s + min(LONGEST_REST_S, DEADLINE_S * 2.0 ** min(self._in_vain, 16))
            self._in_vain += 1
            self._end(GIVEN_UP)
        return None

    def stop(self) -> None:
        """What is under way is given up, and nothing is waited for any more."""
        if self._under_way is not None:
            self._end(GIVEN_UP)

    def _end(self, start: int) -> None:
        self._under_way = None
        self._channel.forget(_ready(self._base, self.sent))
        self._announce(start)
        self._channel.drop(_input(self._base, self.sent))
        self._channel.drop(_ready(self._base, self.sent))

    def _announce(self, start: int) -> None:
        self.told = Announcement(self.sent, start).written()
        self._channel.tell(self._base, self.told)


class Follower:
    """A peer's end. ``fits``: whether this rank can make these calls. ``agreed`` is filled, ``heard`` is the
    newest announcement, and what is ``damaged`` is counted, on the channel's thread."""

    def __init__(
        self, base: str, peers: int, channel: Channel, fits: Callable[[Mapping[int, Call]], bool]
    ) -> None:
        self.agreed: Final[deque[Agreed]] = deque(maxlen=1)
        self.damaged = 0
        self.heard = b""
        self._base: Final = base
        self._first_s: Final = _first_pause_s(peers)
        self._channel: Final = channel
        self._fits: Final = fits
        self._number = 0
        self._held: Mapping[int, Call] | None = None
        self._listen(None)

    def stop(self) -> None:
        """Nothing is listened for any more."""
        self._channel.forget(self._base)
        self._drop()

    def _listen(self, seen: bytes | None) -> None:
        self._channel.ask(self._base, self._hear, seen, IDLE_S, self._first_s)

    def _hear(self, content: bytes) -> None:
        try:
            said = read(content)
        except ValueError:
            self.damaged += 1
        else:
            self._take(said)
        self.heard = content
        self._listen(content)

    def _take(self, said: Announcement) -> None:
        if said.start == NOT_AGREED:
            self._drop()
            self._number = said.number
            name = _input(self._base, said.number)
            self._channel.ask(name, self._receive, None, IDLE_S, self._first_s)
            return
        if said.start > 0 and said.number == self._number and self._held is not None:
            self.agreed.append(Agreed(said.start, self._held))
        self._drop()

    def _receive(self, content: bytes) -> None:
        try:
            calls = templates.unpacked(content, content_is_evidence=True).calls
        except ValueError:
            self.damaged += 1
            return
        ready = _ready(self._base, self._number)
        self._held = calls
        self._channel.await_that(
            ready, lambda: self._fits(calls), lambda _: self._channel.count_up(ready), IDLE_S
        )

    def _drop(self) -> None:
        self._channel.forget(_input(self._base, self._number))
        self._channel.forget(_ready(self._base, self._number))
        self._held = None


def _input(base: str, number: int) -> str:
    return f"{base}/input/{number}"


def _ready(base: str, number: int) -> str:
    return f"{base}/ready/{number}"
