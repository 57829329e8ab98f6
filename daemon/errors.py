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
