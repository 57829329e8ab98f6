"""Writes what replays say where the agent reads it: RECIPES, REPLAYS, REPLAY; and reads REQUEST.

There are more recipes than slots in a deep model. A recipe lies in slot ``index % 64`` and is written again
right before each of its results, so the agent knows the name of whatever result it has just read.
"""

from __future__ import annotations

from typing import Final

from scoutd.proto import replay, shm
from scoutd.shim.replay.recipes import Recipe
from scoutd.shim.shmfile import ShmFile


class Evidence:
    """The sections of one rank's file."""

    def __init__(self, file: ShmFile) -> None:
        self._file: Final = file
        self._written: Final[dict[int, replay.Recipe]] = {}
        self.results = 0

    def recipe(self, recipe: Recipe) -> None:
        """RECIPES has the recipe as it is now."""
        record = recipe.record()
        if self._written.get(recipe.slot) != record:
            self._written[recipe.slot] = record
            self._file.publish(shm.RECIPES, recipe.slot, record)

    def result(self, recipe: Recipe, result: replay.Replay) -> None:
        """REPLAYS has the result, and RECIPES its recipe."""
        self.recipe(recipe)
        self._file.publish(shm.REPLAYS, self.results % shm.REPLAYS.slots, result)
        self.results += 1

    def state(self, state: replay.ReplayState) -> None:
        self._file.publish(shm.REPLAY, 0, state)

    def request(self) -> replay.Request | None:
        """What somebody has asked for, None while nobody has."""
        size = shm.REQUEST.size
        raw = bytes(self._file.view[shm.REQUEST.offset : shm.REQUEST.offset + size])
        return shm.read(raw, shm.REQUEST.offset, shm.REQUEST, 0)
