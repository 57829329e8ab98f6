"""How the agents of a job find each other: through the trainer's own store, beside the trainer.

Each rank whose agent has told an address (COMMAND) sets ``<generation>/agent/<rank>``. Rank 0 sets a random
job key and gathers the addresses of O(log N) ranks, evenly spread; everybody else reads key and seeds and
publishes them for its agent (DISCOVERY). Agents learn of all others from each other.

A thread of its own, because a store operation waits while the trainer holds the connection, for minutes in
a ``wait``; the heartbeat must not. Only ``set``, ``check`` and ``get`` of a key that is there: never a wait,
never a collective. The thread does the same few operations a second at first, then ever fewer, and none once
everything is known and unchanged.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from scoutd.proto import shm
from scoutd.shim.identity import Identity
from scoutd.shim.store import LET_GO_S, ORIGINAL_GET

MAX_SEEDS: Final = 15
"""As many addresses of 64 bytes as DISCOVERY holds; log2 of 16,384 ranks and one."""

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 10.0
GATHER_S: Final = 60.0
"""How long rank 0 waits for the agents of all candidates; later ones are found by gossip."""

KEY_BYTES: Final = 32


def candidates(world_size: int) -> list[int]:
    """The ranks whose agents are the seeds: ceil(log2 N) + 1 of them, evenly spread, rank 0 among them."""
    count = min((world_size - 1).bit_length() + 1, MAX_SEEDS, world_size)
    return [i * world_size // count for i in range(count)]


class Rendezvous:
    """One rank's part. ``store`` is the trainer's, None where there is none: then nothing happens.
    ``address`` reads our agent's address, ``publish`` writes DISCOVERY."""

    def __init__(
        self,
        store: Any,
        rank: int,
        world_size: int,
        address: Callable[[], str],
        publish: Callable[[shm.Discovery], None],
    ) -> None:
        self._store = None if store is None else c10d.PrefixStore("scoutd/", store)
        self._rank: Final = rank
        self._world_size: Final = world_size
        self._address: Final = address
        self._publish: Final = publish
        self._prefix = ""
        self._told = ""
        self._key = ""
        self._seeds: list[str] = []
        self._complete = False
        self._published = shm.Discovery("", "")
        self._stop: Final = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, identity: Identity) -> None:
        """The thread runs. Keys carry the generation: a store may outlive one."""
        if self._store is None or self._thread is not None:
            return
        self._prefix = f"{identity.generation}/"
        self._thread = threading.Thread(target=self._run, name="scoutd-rendezvous", daemon=True)
        self._thread.start()

    def stop(self, most_s: float = 1.0) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(most_s)

    def let_go(self) -> None:
        """The trainer gives its store up."""
        self.stop(LET_GO_S)
        self._store = None

    def turn(self, gathering: bool) -> None:
        """One look at the store and at our agent. ``gathering``: there is still time to find more seeds."""
        address = self._address()
        if address and address != self._told:
            self._set(f"agent/{self._rank}", address)
            self._told = address
        if self._rank == 0:
            self._lead(gathering)
        elif not self._complete:
            self._follow()
        found = shm.Discovery(",".join(self._seeds), self._key)
        if found != self._published:
            self._publish(found)
            self._published = found

    def _run(self) -> None:
        began = time.monotonic()
        pause = FIRST_PAUSE_S
        while not self._stop.wait(pause):
            try:
                self.turn(time.monotonic() - began < GATHER_S)
            except dist.DistNetworkError:  # the store's process has left: it does not come back
                return
            except (RuntimeError, ValueError, OSError):  # the store is busy: later
                pass
            pause = min(LONGEST_PAUSE_S, pause * 1.2)

    def _lead(self, gathering: bool) -> None:
        if not self._key:
            key = secrets.token_hex(KEY_BYTES)
            self._set("key", key)
            self._key = key
        if self._complete:
            return
        ranks = candidates(self._world_size)
        found = {rank: address for rank in ranks if (address := self._get(f"agent/{rank}"))}
        seeds = list(dict.fromkeys(found.values()))
        complete = len(found) == len(ranks) or bool(seeds and not gathering)
        if seeds and (seeds != self._seeds or complete):
            self._set("seeds", json.dumps([seeds, complete]))
        self._seeds, self._complete = seeds, complete

    def _follow(self) -> None:
        self._key = self._key or self._get("key")
        text = self._get("seeds")
        if text:
            seeds, complete = json.loads(text)
            self._seeds = [str(seed) for seed in seeds][:MAX_SEEDS]
            self._complete = bool(complete) and bool(self._key)

    def _set(self, name: str, value: str) -> None:
        store = self._store
        if store is not None:
            store.set(self._prefix + name, value)

    def _get(self, name: str) -> str:
        """The value, empty where the key does not exist yet."""
        store = self._store
        if store is None or not store.check([self._prefix + name]):
            return ""
        value: bytes = ORIGINAL_GET(store, self._prefix + name)
        return value.decode("utf-8", "replace")
