"""Replays of real input on one rank: which recipes have one, whose turn it is, what is due (mode BROADCAST).

Where the mode wants broadcasts, every recipe of a module gets a second one that replays what the group's
first rank has captured. That rank goes by a rotation of its own: it captures the next few recipes in a step
in which the cadence gives broadcasts a turn and none is under way, so that none starves. Its peers follow
what it announces (``broadcast``). All but the capture itself, a copy on the device, happens between two steps
and on the channel's thread.

Only recipes that have been replayed from seeds are captured: that has told whether half of the batch will do.
Where the job's store is a file, nothing is broadcast.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import torch

from scoutd.proto.replay import RecipeKind, RecipeState
from scoutd.shim.guard import FAULT, Guard, Part
from scoutd.shim.replay.broadcast import Agreed, Follower, Leader, limit_of
from scoutd.shim.replay.cadence import InputMode
from scoutd.shim.replay.call import Call, make
from scoutd.shim.replay.capture import Capture
from scoutd.shim.replay.channel import Channel
from scoutd.shim.replay.recipes import Peers, Recipe, broadcast_of
from scoutd.shim.replay.refusal import Refusal
from scoutd.shim.replay.roster import Roster
from scoutd.shim.replay.seeds import Source
from scoutd.shim.signature import signature

UNUSED: Final = Source(0, 0)
"""Nothing of a captured call is seeded."""


class Sharing:
    """``recipes``: the broadcast ones, by the index of the seeded one that they belong to."""

    def __init__(
        self, rank: int, mode: InputMode, channel: Channel, roster: Roster, guard: Guard, part: Part
    ) -> None:
        self.mode: Final = mode if channel.forgets else InputMode.SEEDED
        self.recipes: dict[int, Recipe] = {}
        self._rank: Final = rank
        self._channel: Final = channel
        self._roster: Final = roster
        self._guard: Final = guard
        self._part: Final = part
        self._first: Recipe | None = None
        self._peers: Peers | None = None
        self._leader: Leader | None = None
        self._follower: Follower | None = None
        self._captures: list[Capture] = []
        self._agreed: Agreed | None = None
        self._next = 0

    def settle(self) -> list[Recipe]:
        """Recipes that have come since the last time, with peers; after another model nothing is left of the
        one before."""
        if self.mode is InputMode.SEEDED or not self._roster.recipes:
            return []
        if self._roster.recipes[0] is not self._first:
            self.forget()
            self._first = self._roster.recipes[0]
        fresh = [recipe for recipe in self._roster.recipes if self._is_fresh(recipe)]
        for recipe in fresh:
            self._begin(recipe)
            self.recipes[recipe.index] = broadcast_of(recipe)
        return [self.recipes[recipe.index] for recipe in fresh] + self._disabled()

    def _disabled(self) -> list[Recipe]:
        """What cannot be replayed from seeds cannot be from a broadcast, for the same reason."""
        found = []
        for index, recipe in self.recipes.items():
            seeded = self._roster.recipes[index]
            if seeded.state is RecipeState.DISABLED and recipe.state is not RecipeState.DISABLED:
                recipe.disable(seeded.reason)
                found.append(recipe)
        return found

    def _is_fresh(self, recipe: Recipe) -> bool:
        """Recipes of the first model that has peers, and of others with the same peers."""
        peers = recipe.peers
        return (
            recipe.index not in self.recipes
            and recipe.kind is not RecipeKind.OPTIMIZER
            and recipe.state is not RecipeState.DISABLED
            and peers is not None
            and len(peers.ranks) > 1
            and peers == (self._peers or peers)
        )

    def _begin(self, recipe: Recipe) -> None:
        if self._peers is not None or recipe.peers is None:
            return
        self._peers = recipe.peers
        base, others = f"{self._roster.place(self._peers)}/broadcast", len(self._peers.ranks) - 1
        if self._peers.leader == self._rank:
            self._leader = Leader(base, others, self._channel)
        else:
            self._follower = Follower(base, others, self._channel, self._fits)

    def _fits(self, calls: Mapping[int, Call]) -> bool:
        """On the channel's thread: this rank can make them."""
        recipes = [self.recipes.get(index) for index in calls]
        seeded = {recipe.index for recipe in self._roster.recipes if recipe.state is RecipeState.READY}
        return bool(recipes) and all(
            recipe is not None
            and recipe.state is not RecipeState.DISABLED
            and recipe.module is not None
            and recipe.index in seeded
            for recipe in recipes
        )

    def capture(self, count: int) -> None:
        """The next step's calls of so many recipes will be captured, if this rank is the first and free."""
        if self._leader is None or self._agreed is not None or self._captures:
            return
        if not self._leader.may_send(time.monotonic()):
            return
        ready = [recipe for index, recipe in sorted(self.recipes.items()) if self._is_ready(index, recipe)]
        turn = [recipe for recipe in ready if recipe.index >= self._next] + ready
        chosen = list(dict.fromkeys(recipe.index for recipe in turn))[:count]
        for index in chosen:
            seeded = self._roster.recipes[index]
            limit = limit_of(self._leader.peers) // len(chosen)
            self._captures.append(Capture(seeded, limit, self._guard, self._part))
            self._captures[-1].listen()
        self._next = chosen[-1] + 1 if chosen else 0

    def _is_ready(self, index: int, recipe: Recipe) -> bool:
        seeded = self._roster.recipes[index]
        return (
            seeded.rehearsed
            and seeded.state is RecipeState.READY
            and recipe.state is not RecipeState.DISABLED
        )

    def collect(self) -> list[Recipe]:
        """After the step: what was captured is on its way; returns recipes that cannot be."""
        captures, self._captures = self._captures, []
        calls: dict[int, Call] = {}
        signatures: dict[int, int] = {}
        refused: list[Recipe] = []
        for capture in captures:
            capture.stop()
            index, call = capture.recipe.index, capture.call
            try:
                if capture.refused:
                    raise Refusal(capture.refused)
                if call is not None:
                    signatures[index] = _signed(call, capture.recipe)
                    calls[index] = Call(call.form, {k: each.to("cpu") for k, each in call.fixed.items()})
            except Refusal as refusal:
                self.recipes[index].disable(str(refusal))
                refused.append(self.recipes[index])
            except FAULT as error:
                self.recipes[index].disable(f"{type(error).__name__}: {error}"[:192])
                refused.append(self.recipes[index])
        if calls and self._leader is not None:
            self._leader.send(calls, signatures, time.monotonic())
        return refused

    def take(self, step: int, step_s: float) -> list[Recipe]:
        """After ``step``: what has been agreed meanwhile is due later, or was heard of too late. Returns
        recipes of which there is something new to say."""
        found = None
        told: list[Recipe] = []
        if self._leader is not None:
            given_up = self._leader.given_up
            found = self._leader.turn(step, step_s, time.monotonic())
            if self._leader.given_up > given_up:
                told = self._note("the last broadcast did not reach all peers in time")
        elif self._follower is not None and self._follower.agreed:
            found = self._follower.agreed.popleft()
        if found is not None and found.start > step:
            self._agreed = found
        return told

    def _note(self, reason: str) -> list[Recipe]:
        told = [recipe for recipe in self.recipes.values() if recipe.state is not RecipeState.DISABLED]
        for recipe in told:
            recipe.reason = reason
        return told

    def due(self, step: int) -> Mapping[int, Call]:
        """Calls that are replayed after ``step``, by index."""
        return self._agreed.calls if self._agreed is not None and self._agreed.start == step else {}

    def ready(self, index: int) -> Recipe | None:
        """The recipe, with its call; None where it is not replayed any more."""
        recipe, agreed = self.recipes.get(index), self._agreed
        if recipe is None or agreed is None or recipe.state is RecipeState.DISABLED:
            return None
        recipe.give(agreed.calls[index], agreed.captured.get(index), self._roster.recipes[index])
        return recipe

    def done(self, step: int) -> None:
        """What was due after ``step`` is over, and its content is let go."""
        if self._agreed is not None and self._agreed.start <= step:
            for index in self._agreed.calls:
                if index in self.recipes:
                    self.recipes[index].call = None
            self._agreed = None

    def forget(self) -> None:
        """Nothing is captured, sent or listened for."""
        for capture in self._captures:
            capture.stop()
        for end in (self._leader, self._follower):
            if end is not None:
                end.stop()
        self._captures, self.recipes = [], {}
        self._first = self._peers = self._leader = self._follower = self._agreed = None


def _signed(call: Call, recipe: Recipe) -> int:
    """The signature of the call's tensors as a replay signs them, of the very ones that were captured."""
    module = recipe.module
    held = [] if module is None else [*module.parameters(), *module.buffers()]
    device = held[0].device if held else torch.device("cpu")
    return signature(make(call, UNUSED, device).tensors)
