"""Errors of the daemon, split by whose fault they are.

Every text stands alone on one line: it is what the user reads after ``scoutd:``, without a traceback.
"""

from __future__ import annotations


class ScoutdError(Exception):
    """Root of what the daemon raises on purpose."""


class ConfigError(ScoutdError):
    """The configuration is wrong; the text names the key, its source, its value and what is accepted."""


class LocalError(ScoutdError):
    """This host refuses something: a port in use, a directory that cannot be written."""


class PeerError(ScoutdError):
    """Another agent did not answer as it should. It never ends a round: the exchange hears of a failure.

    ``reason`` is one word for the metrics: timeout, unreachable, address, busy, refused, session, self, name,
    forged, malformed.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
