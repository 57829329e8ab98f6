"""What cannot be replayed, and why: the one exception of this package."""

from __future__ import annotations


class Refusal(Exception):
    """This recipe cannot be replayed; the text says why, for ``scoutd status``. Not an error of the shim."""
