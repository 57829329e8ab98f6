"""Who may speak: HMAC-SHA256 with the job key over every request and reply (design §5).

The key proves membership in the job, not origin. Freshness comes from counters, never from a clock. A client
opens a *session* with Hello: its random challenge and the server's random session both go into what is
authenticated, so neither side accepts anything recorded earlier, not even after a restart. Within a session
every request has a counter of its own; a reply is bound to the code of its request, so it answers that
request and no other. Requests of one connection may overtake each other (HTTP/2 delivers concurrent calls in
any order), so a window of ``WINDOW`` counters below the highest is open, each once, as in RFC 4303.

Sessions are bounded: greeted ones that have not spoken yet, and those that have, in two tables, so that
replayed greetings push out other greetings only. A client whose session is gone is told, and greets again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

WINDOW: Final = 64
NONCE_BYTES: Final = 16
KEY_BYTES: Final = 32
MAX_GREETED: Final = 1024
MAX_SPEAKING: Final = 4096


def request_code(key: bytes, kind: str, header: bytes, body: bytes) -> bytes:
    """What authenticates a request; 32 bytes."""
    return _code(key, b"request", kind.encode(), header, body)


def reply_code(key: bytes, kind: str, asked: bytes, header: bytes, body: bytes) -> bytes:
    """What authenticates the reply to the request whose code is ``asked``; 32 bytes."""
    return _code(key, b"reply", kind.encode(), asked, header, body)


def same(one: bytes, other: bytes) -> bool:
    """Equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one, other)


def _code(key: bytes, *parts: bytes) -> bytes:
    """Every part is preceded by its length, so no two lists of parts read alike."""
    code = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        code.update(len(part).to_bytes(4, "big"))
        code.update(part)
    return code.digest()


class Counters:
    """The counters that were accepted so far: the highest, and which of the window below it."""

    __slots__ = ("_highest", "_seen")

    def __init__(self) -> None:
        self._highest = 0
        self._seen = 0

    def take(self, counter: int) -> bool:
        """True for a counter that was not taken before and is not too old; it is taken now."""
        if counter <= 0:
            return False
        ahead = counter - self._highest
        if ahead > 0:
            self._seen = ((self._seen << min(ahead, WINDOW)) | 1) & ((1 << WINDOW) - 1)
            self._highest = counter
            return True
        bit = 1 << -ahead
        if -ahead >= WINDOW or self._seen & bit:
            return False
        self._seen |= bit
        return True


@dataclass(frozen=True, slots=True)
class Speaker:
    """Whose session it is. Nothing else may be said in it."""

    job: str
    generation: int
    node: str


class Sessions:
    """The server's side. ``nonce`` makes 16 unpredictable bytes."""

    def __init__(self, greeted: int = MAX_GREETED, speaking: int = MAX_SPEAKING) -> None:
        self._limits: Final = (greeted, speaking)
        self._greeted: Final[OrderedDict[bytes, tuple[Speaker, Counters]]] = OrderedDict()
        self._speaking: Final[OrderedDict[bytes, tuple[Speaker, Counters]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._greeted) + len(self._speaking)

    def open(self, session: bytes, speaker: Speaker) -> None:
        """This session exists, until it is pushed out by younger ones."""
        self._greeted[session] = (speaker, Counters())
        if len(self._greeted) > self._limits[0]:
            self._greeted.popitem(last=False)

    def refuse(self, session: bytes, speaker: Speaker, counter: int) -> str:
        """Why an authentic request may not be heard: "session", "counter", or empty if it may.

        The counter is taken. Ask only once the request's code was verified.
        """
        found = self._speaking.get(session) or self._greeted.get(session)
        if found is None or found[0] != speaker:
            return "session"
        if not found[1].take(counter):
            return "counter"
        self._greeted.pop(session, None)
        self._speaking[session] = found
        self._speaking.move_to_end(session)
        if len(self._speaking) > self._limits[1]:
            self._speaking.popitem(last=False)
        return ""

    def forget(self, job: str) -> None:
        """No session of this job is left."""
        for table in (self._greeted, self._speaking):
            for session in [s for s, (speaker, _) in table.items() if speaker.job == job]:
                del table[session]
