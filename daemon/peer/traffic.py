"""What went between this agent and others, in numbers; ``serve.metrics`` reads them at each scrape."""

from __future__ import annotations

from collections import Counter
from typing import Final


class Traffic:
    """``requests`` by (kind, outcome): "ok" or the reason of a failure, of requests that we made.
    ``refused`` by reason: requests of others that we did not hear. Bytes are those of sealed messages."""

    def __init__(self) -> None:
        self.requests: Final[Counter[tuple[str, str]]] = Counter()
        self.refused: Final[Counter[str]] = Counter()
        self.answered: Final[Counter[str]] = Counter()
        self.bytes_in = 0
        self.bytes_out = 0
