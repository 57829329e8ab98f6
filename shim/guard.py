"""Fail-open: whatever goes wrong inside the shim, the trainer never sees it.

The shim is cut into *parts* (modules, optimizer, collectives, recorder …). Every hook first looks at its
part's switch and leaves at once if it is off. An error inside a hook is counted here; after ``LIMIT``
errors the part is switched off for good and named in the heartbeat, so that the agent can say what it no
longer sees. A forked child and ``detach()`` use the same switches: all off, and every hook that is still
reachable does nothing.

This is the only place of the shim where broad exceptions are allowed to end. Hooks on the hot path cannot
afford ``run``; they catch ``FAULT`` themselves and hand it to ``failed``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

FAULT: Final = Exception
"""What a hook catches. Not BaseException: KeyboardInterrupt and SystemExit are the trainer's."""

LIMIT: Final = 3
"""One odd argument must not blind the shim; an error that repeats must not cost the trainer time."""

Result = TypeVar("Result")


class Part:
    """One separately switched part. ``on`` is read at the start of every hook."""

    __slots__ = ("errors", "last", "name", "on")

    def __init__(self, name: str) -> None:
        self.name = name
        self.on = True
        self.errors = 0
        self.last = ""


class Guard:
    """Counts errors by part and holds the switches."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}

    def part(self, name: str) -> Part:
        """The part of this name, made at first use, switched on."""
        return self._parts.setdefault(name, Part(name))

    @property
    def errors(self) -> int:
        return sum(part.errors for part in self._parts.values())

    @property
    def disabled(self) -> str:
        """Names of the parts that were switched off by errors, comma-separated."""
        return ",".join(part.name for part in self._parts.values() if part.errors and not part.on)

    @property
    def reasons(self) -> dict[str, str]:
        """Per part with errors: the last one, as text."""
        return {part.name: part.last for part in self._parts.values() if part.errors}

    def failed(self, part: Part, error: BaseException, limit: int = LIMIT) -> None:
        """The error is counted; the part is off if this was its ``limit``-th."""
        part.errors += 1
        part.last = f"{type(error).__name__}: {error}"[:200]
        if part.errors >= limit:
            part.on = False

    def run(self, name: str, action: Callable[[], Result], fallback: Result) -> Result:
        """The result of ``action``, or ``fallback`` after an error or where the part is off."""
        part = self.part(name)
        if not part.on:
            return fallback
        try:
            return action()
        except FAULT as error:
            self.failed(part, error)
            return fallback

    def silence(self) -> None:
        """Every part is off; errors stay counted."""
        for part in self._parts.values():
            part.on = False
