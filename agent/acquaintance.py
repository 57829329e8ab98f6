"""When to ask a peer who takes part at all: on joining, and when a peer turns out to know others than we do.

Probes tell of a few agents each, which is enough to hear of one that is new, and far too few to become
acquainted with a cluster: the last of 500 agents would be heard of after minutes. So every probe says how
many agents its sender knows, and a digest of who they are. Where a peer knows many more, we are new, and ask
at once. Where the digests go on to differ, something was missed that piggybacks have had the time to bring.
"""

from __future__ import annotations

import math
import random
from typing import Final

from scoutd.agent.replica import Replica
from scoutd.agent.settings import NS_PER_S, ExchangeSettings

MOST_JOIN_PAUSE_NS: Final = 4 * NS_PER_S
"""Seeds that do not answer are asked again, less and less often: a thousand agents may be asking them."""

LOOKOUT_NS: Final = 30 * NS_PER_S

ASK_PAUSE_NS: Final = 2 * NS_PER_S
ASK_NS_PER_NODE: Final = 10_000_000
"""An answer has a mark for every node: 5 s for 500 of them, which is 4 kB/s while agents arrive."""

MANY: Final = 8
MANY_SHARE: Final = 0.05
"""Fewer are what piggybacks bring anyway."""

ROUNDS: Final = 4
"""News of an agent reach everybody in about 2·log2 N probe intervals; twice that is patience."""


class Acquaintance:
    """``next_ns``: seeds are asked again from then on."""

    def __init__(self, settings: ExchangeSettings, rng: random.Random) -> None:
        self._settings: Final = settings
        self._random: Final = rng
        self._next_join_ns = 0
        self._join_pause_ns = int(settings.probe_interval_s * NS_PER_S)
        self._next_ask_ns = 0
        self._next_lookout_ns = LOOKOUT_NS
        self._differs_since_ns: int | None = None

    def seeds(self, seeds: tuple[str, ...], replica: Replica, now_ns: int) -> list[str]:
        """The addresses to ask now: some, while nobody is known; later one that nobody has who is known, now
        and then. Agents that met while messages were lost, or moved, may have become two groups."""
        if not replica.alone:
            if now_ns < self._next_lookout_ns:
                return []
            self._next_lookout_ns = now_ns + LOOKOUT_NS
            known = {entry.address for entry in replica.entries.values()}
            return [address for address in seeds if address not in known][:1]
        if now_ns < self._next_join_ns:
            return []
        self._next_join_ns = now_ns + self._join_pause_ns
        self._join_pause_ns = min(2 * self._join_pause_ns, MOST_JOIN_PAUSE_NS)
        chosen = [address for address in seeds if address != replica.mine.address]
        self._random.shuffle(chosen)
        return chosen[: self._settings.fanout]

    def ask(self, same: bool, known: int, theirs: int, now_ns: int) -> bool:
        """A peer that answered a probe is to be asked whom it knows. ``same``: it knows the same ``known``
        nodes as we do; ``theirs``: how many it knows."""
        if same:
            self._differs_since_ns = None
            return False
        if self._differs_since_ns is None:
            self._differs_since_ns = now_ns
        rounds = ROUNDS * math.log2(max(2, known))
        missed = now_ns - self._differs_since_ns >= int(rounds * self._settings.probe_interval_s * NS_PER_S)
        new = theirs - known >= max(MANY, int(MANY_SHARE * known))
        if now_ns < self._next_ask_ns or not (missed or new):
            return False
        self._differs_since_ns = now_ns
        self._next_ask_ns = now_ns + max(ASK_PAUSE_NS, ASK_NS_PER_NODE * known)
        return True
