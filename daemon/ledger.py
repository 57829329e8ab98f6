"""Every verdict's newest state: in memory, bounded, and behind it the store where there is one.

The ledger knows entries, not verdicts: what an entry says on the wire is ``codec``'s business. Order is that
of first appearance. When full, the oldest entry that is not open leaves memory (the store keeps it).
"""

from __future__ import annotations

from typing import Final

from scoutd.daemon.store import Entry, Store

KEPT_IN_MEMORY: Final = 512


class Ledger:
    """``warning`` is empty unless history is being lost."""

    def __init__(self, store: Store | None, warning: str = "", limit: int = KEPT_IN_MEMORY) -> None:
        self._store: Final = store
        self._warning: Final = warning
        self._limit: Final = limit
        self._entries: Final[dict[str, Entry]] = {}
        for entry in store.load(limit) if store else []:
            self._entries[entry.id] = entry

    @property
    def warning(self) -> str:
        if self._store is not None and self._store.failure:
            return f"verdicts are kept in memory only: {self._store.failure}"
        return self._warning

    @property
    def dropped(self) -> int:
        """Writes that the store could not take."""
        return self._store.dropped if self._store is not None else 0

    def get(self, verdict_id: str) -> Entry | None:
        return self._entries.get(verdict_id)

    def put(self, entry: Entry, keep: bool = True) -> bool:
        """The entry is the verdict's newest state, on disk too if ``keep``; False if it says nothing new."""
        if self._entries.get(entry.id) == entry:
            return False
        self._entries[entry.id] = entry
        if keep and self._store is not None:
            self._store.put(entry)
        if len(self._entries) > self._limit:
            self._evict()
        return True

    def select(
        self, job: str = "", run: str = "", verdict_id: str = "", suppressed: bool = True
    ) -> list[Entry]:
        """Entries that match, oldest first; an empty text matches all, ``verdict_id`` by its beginning."""
        return [
            entry
            for entry in self._entries.values()
            if (not job or entry.job == job)
            and (not run or entry.run == run)
            and entry.id.startswith(verdict_id)
            and (suppressed or entry.state != "SUPPRESSED")
        ]

    def record_generation(self, job: str, generation: int) -> None:
        if self._store is not None:
            self._store.put_generation(job, generation)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _evict(self) -> None:
        """Open entries stay: their next state must find them; if all are open, the oldest goes."""
        closed = (each.id for each in self._entries.values() if each.state != "OPEN")
        del self._entries[next(closed, next(iter(self._entries)))]
