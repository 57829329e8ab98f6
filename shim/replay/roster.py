"""The recipes of one rank: found in roots and optimizers, learnt from real calls, settled with peers.

A root that contains an earlier one takes its place (a model that is wrapped later). Recipes of modules come
first, optimizers behind them as they are seen stepping; every rank of a peer group has the same order.

Settling is done between two steps: by then the wrappers exist, and the peers are known. The first rank of a
group tells its calls (``templates``). Another uses its own while that needs no content, without scales, and
the first rank's as soon as it has come: batches whose shapes or scales differ by rank are then replayed in
one.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from scoutd.proto.replay import RecipeKind, RecipeState
from scoutd.shim.guard import Guard, Part
from scoutd.shim.intercept import Undo
from scoutd.shim.replay import templates
from scoutd.shim.replay.catalog import recipes_of
from scoutd.shim.replay.channel import Channel
from scoutd.shim.replay.learning import Ear
from scoutd.shim.replay.peers import peers_of, replicas_of
from scoutd.shim.replay.recipes import Peers, Recipe

MAX_OPTIMIZERS: Final = 8


class Roster:
    """All recipes in the order of the rotation. ``deliver`` gets templates on the channel's thread."""

    def __init__(
        self,
        rank: int,
        channel: Channel,
        guard: Guard,
        part: Part,
        undo: Undo,
        deliver: Callable[[templates.Templates], None],
    ) -> None:
        self.recipes: list[Recipe] = []
        self._rank: Final = rank
        self._channel: Final = channel
        self._guard: Final = guard
        self._part: Final = part
        self._deliver: Final = deliver
        self._roots: list[weakref.ref[torch.nn.Module]] = []
        self._owners: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._peers: dict[int, Peers] = {}
        self._optimizers: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._ears: list[Ear] = []
        self._told: dict[str, int] = {}
        self._heard: dict[str, int] = {}
        self._awaited: dict[str, str] = {}
        self._sifted = False
        undo.add(self.forget)

    def watch(self, root: torch.nn.Module) -> None:
        """The root's recipes are in the roster, and listen for a call."""
        roots = [each for ref in self._roots if (each := ref()) is not None]
        if any(part is root for each in roots for part in each.modules()):
            return
        inside = {id(part) for part in root.modules()}
        self.forget()
        for each in [*(each for each in roots if id(each) not in inside), root]:
            self._add_root(each)

    def _add_root(self, root: torch.nn.Module) -> None:
        self._roots.append(weakref.ref(root))
        for recipe in recipes_of(root, len(self.recipes)):
            self.recipes.append(recipe)
            self._owners[recipe.index] = weakref.ref(root)
            ear = Ear(recipe, self._guard, self._part)
            ear.listen()
            self._ears.append(ear)

    def see(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer has a recipe from its first step on; where its shards have replicas, one for them,
        too."""
        known = self._optimizers.get(id(optimizer))
        if known is not None and known() is optimizer:
            return
        if len(self._optimizers) >= MAX_OPTIMIZERS:
            return
        number = len(self._optimizers)
        name = f"optimizer {number}" if number else "optimizer"
        self._optimizers[id(optimizer)] = weakref.ref(optimizer)
        root = self._root_of(optimizer)
        self._add_optimizer(optimizer, name, root, shard=False)
        if root is not None and len(replicas_of(root, self._rank).ranks) > 1:
            self._add_optimizer(optimizer, f"{name}-shard", root, shard=True)

    def _add_optimizer(
        self, optimizer: torch.optim.Optimizer, name: str, root: torch.nn.Module | None, shard: bool
    ) -> None:
        recipe = Recipe(
            index=len(self.recipes),
            kind=RecipeKind.OPTIMIZER,
            name=f"{name} ({type(optimizer).__name__})",
            path=name,
            subject=weakref.ref(optimizer),
            state=RecipeState.READY,
            reason="",
            shard=shard,
        )
        self.recipes.append(recipe)
        if root is not None:
            self._owners[recipe.index] = weakref.ref(root)

    def _root_of(self, optimizer: torch.optim.Optimizer) -> torch.nn.Module | None:
        """The root that has a parameter of the optimizer."""
        steps = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for reference in self._roots:
            root = reference()
            if root is not None and any(id(parameter) in steps for parameter in root.parameters()):
                return root
        return None

    def settle(self) -> list[Recipe]:
        """Recipes that were learnt since the last time know their peers, and are returned."""
        if not self._sifted:
            self._sift()
        fresh = [each for each in self.recipes if not each.settled and self._is_learnt(each)]
        for recipe in fresh:
            recipe.settled = True
            recipe.peers = self._peers_of(recipe)
            if recipe.learnt is not None and recipe.peers.leader != self._rank:
                recipe.learn(recipe.learnt.bare())
        for peers in {recipe.peers for recipe in fresh if recipe.peers is not None}:
            self._tell(peers, [recipe for recipe in fresh if recipe.peers == peers])
        return fresh

    def _sift(self) -> None:
        """Roots that nobody trains and nobody shares are left out, once others are trained with peers: what
        this rank alone has (averaged weights, a model for evaluation) would make its list another one."""
        trained = [recipe for recipe in self.recipes if recipe.learnt is not None]
        if not any(len(self._peers_of(recipe).ranks) > 1 for recipe in trained):
            return
        self._sifted = True
        used = {self._owner(recipe) for recipe in trained}
        idle = {
            recipe.index
            for recipe in self.recipes
            if recipe.kind is not RecipeKind.OPTIMIZER
            and self._owner(recipe) not in used
            and len(self._peers_of(recipe).ranks) < 2
        }
        if idle:
            self._leave_out(idle)

    def _owner(self, recipe: Recipe) -> torch.nn.Module | None:
        reference = self._owners.get(recipe.index)
        return reference() if reference is not None else None

    def _leave_out(self, indices: set[int]) -> None:
        """These recipes are gone with their roots, and the others have moved up."""
        gone = [self._owner(self.recipes[index]) for index in indices]
        self._roots = [ref for ref in self._roots if not any(ref() is root for root in gone)]
        for ear in self._ears:
            if ear.recipe.index in indices:
                ear.stop()
        self._ears = [ear for ear in self._ears if ear.recipe.index not in indices]
        kept = [recipe for recipe in self.recipes if recipe.index not in indices]
        owners = [self._owners.get(recipe.index) for recipe in kept]
        self._owners = {index: owner for index, owner in enumerate(owners) if owner is not None}
        self.recipes[:] = kept
        for index, recipe in enumerate(kept):
            recipe.index = index

    def _is_learnt(self, recipe: Recipe) -> bool:
        return recipe.state is not RecipeState.LEARNING or recipe.learnt is not None

    def _peers_of(self, recipe: Recipe) -> Peers:
        root = self._owner(recipe)
        if root is None:
            return Peers((self._rank,))
        if recipe.shard:
            return replicas_of(root, self._rank)
        if id(root) not in self._peers:
            self._peers[id(root)] = peers_of(root, self._rank)
        return self._peers[id(root)]

    def _tell(self, peers: Peers, fresh: list[Recipe]) -> None:
        """The first rank's calls are on their way, or are listened for."""
        mine = [recipe for recipe in fresh if recipe.kind is not RecipeKind.OPTIMIZER]
        if len(peers.ranks) < 2 or not mine:
            return
        place = self.place(peers)
        if peers.leader == self._rank:
            number = self._told.get(place, 0)
            self._told[place] = number + 1
            self._channel.tell(_name(place, number), templates.packed(mine))
        elif place not in self._awaited:
            self._listen(place)

    def _listen(self, place: str) -> None:
        number = self._heard.get(place, 0)

        def answer(content: bytes) -> None:
            self._heard[place] = number + 1
            self._deliver(templates.unpacked(content))
            self._listen(place)

        self._awaited[place] = _name(place, number)
        self._channel.ask(_name(place, number), answer)

    def place(self, peers: Peers) -> str:
        """Where these peers' notes lie. Who has another list of recipes neither tells nor hears: indices
        would mean something else."""
        names = "\0".join(each.name for each in self.recipes if each.kind is not RecipeKind.OPTIMIZER)
        digest = hashlib.blake2b(names.encode(), digest_size=4).hexdigest()
        return f"{peers.group:016x}/{digest}"

    def adopt(self, found: templates.Templates) -> list[Recipe]:
        """The first rank's calls are used from now on; returns the recipes that have changed."""
        changed: list[Recipe] = []
        for recipe in self._at(found.refused):
            if recipe.state is not RecipeState.DISABLED:
                recipe.disable(found.refused[recipe.index])
                changed.append(recipe)
        for recipe in self._at(found.calls):
            call = found.calls[recipe.index]
            same = recipe.learnt is not None and recipe.learnt.form == call.form
            if recipe.state is RecipeState.DISABLED or (same and recipe.state is RecipeState.READY):
                continue
            recipe.learn(call)
            changed.append(recipe)
        return changed

    def _at(self, indices: Any) -> Iterator[Recipe]:
        for index in indices:
            if 0 <= index < len(self.recipes) and self.recipes[index].kind is not RecipeKind.OPTIMIZER:
                yield self.recipes[index]

    def forget(self) -> None:
        """Nothing is watched, no hook is left, and calls of what was watched are not awaited any more."""
        for name in list(self._awaited.values()):
            self._channel.forget(name)
        for numbers in (self._told, self._heard, self._awaited):
            numbers.clear()
        self._sifted = False
        for ear in self._ears:
            ear.stop()
        for known in (self.recipes, self._roots, self._ears):
            known.clear()
        for table in (self._owners, self._peers, self._optimizers):
            table.clear()


def _name(place: str, number: int) -> str:
    return f"{place}/templates/{number}"
