"""Replays of one rank: what happens after each step.

``after_step`` runs on the trainer's thread at the end of an optimizer step, where nothing of the step is
under way: it replays what is due (``cadence``, ``sharing``), settles what was learnt meanwhile, and arms the
copying of sharded parameters, and the capture of real inputs, for what is due after the next step. Requests
and templates come through the channel's thread, which only puts them into an inbox.

A replay that is refused or fails disables its recipe alone, with the reason. An error of the trainer's own
code in a replay is counted but does not switch the part off; one of this package does, when it repeats.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from typing import Any, Final

import torch

from scoutd.proto import replay
from scoutd.proto.replay import RecipeKind, RecipeState
from scoutd.proto.shm import Phase
from scoutd.shim.coordinates import Coordinates, encode
from scoutd.shim.guard import FAULT, Guard
from scoutd.shim.intercept import Undo
from scoutd.shim.replay import cadence, seams
from scoutd.shim.replay.channel import Channel
from scoutd.shim.replay.evidence import Evidence
from scoutd.shim.replay.gathered import Gathering, is_sharded
from scoutd.shim.replay.recipes import Recipe
from scoutd.shim.replay.refusal import Refusal
from scoutd.shim.replay.requests import Requests
from scoutd.shim.replay.roster import Roster
from scoutd.shim.replay.sharing import Sharing
from scoutd.shim.replay.templates import Templates
from scoutd.shim.replay.trial import replayed
from scoutd.shim.shmfile import ShmFile
from scoutd.shim.signature import unavailable

PART: Final = "replay"
REPLAYED: Final = "replayed"
"""The trainer's own code, run again. What it raises disables a recipe, not the part."""

NEVER: Final = 1 << 62

RECENT_STEPS: Final = 9
"""Of these the median says how long a step takes: the first ones are not like the others."""

AFTER_STEP: Final = encode("after optimizer step")
NO_TASK: Final = -1


class Replays:
    """``every``: steps between replays, 0: only on request; ``variants``: how many at once; ``mode``: on
    which inputs."""

    def __init__(
        self,
        file: ShmFile,
        coordinates: Coordinates,
        guard: Guard,
        undo: Undo,
        store: Any,
        rank: int,
        every: int,
        variants: int,
        mode: cadence.InputMode = cadence.InputMode.SEEDED,
    ) -> None:
        self.every = every
        self.variants = max(1, variants)
        self.steps = self.replays = self.step_ns = self.cost_ns = 0
        self.evidence: Final = Evidence(file)
        self._coordinates: Final = coordinates
        self._guard: Final = guard
        self._part: Final = guard.part(PART)
        self.templates: Final[deque[Templates]] = deque(maxlen=64)
        self._last_ns = time.monotonic_ns()
        self._recent_ns: Final[deque[int]] = deque(maxlen=RECENT_STEPS)
        self._gathering: dict[int, Gathering] = {}
        self.channel: Final = Channel(store, guard, self.poll)
        self.roster: Final = Roster(rank, self.channel, guard, self._part, undo, self.templates.append)
        self.requests: Final = Requests(rank, self.channel)
        self.sharing: Final = Sharing(rank, mode, self.channel, self.roster, guard, self._part)
        undo.add(self.sharing.forget)
        undo.add(self._disarm)

    def watch(self, root: torch.nn.Module) -> None:
        """What can be replayed of this root is known."""
        self.roster.watch(root)

    def poll(self) -> None:
        """On the channel's thread: requests are read, the state is published."""
        request = self.evidence.request()
        if request is not None:
            self.requests.read(request, time.monotonic_ns())
        self._publish_state()

    def after_step(self, optimizer: torch.optim.Optimizer, counted: bool) -> None:
        """The optimizer has stepped; ``counted``: and with it one step of the training loop is over."""
        self.roster.see(optimizer)
        if not counted or torch._C._current_graph_task_id() != NO_TASK or _is_capturing():
            return
        now_ns = time.monotonic_ns()
        self.steps += 1
        self.step_ns += now_ns - self._last_ns
        self._recent_ns.append(now_ns - self._last_ns)
        step = self._coordinates.step
        self._learn()
        self._replay_due(step)
        self._arm(step + 1)
        self._last_ns = time.monotonic_ns()
        self.step_ns += self._last_ns - now_ns

    def _learn(self) -> None:
        """What has been learnt or has come since the last step is in use."""
        changed = self.roster.settle()
        while self.templates:
            changed += self.roster.adopt(self.templates.popleft())
        changed += self.sharing.settle()
        missing = unavailable() if changed else ""
        for recipe in changed:
            if missing:
                recipe.disable(missing)
        self._publish(changed)

    def _publish(self, recipes: list[Recipe]) -> None:
        for recipe in recipes:
            self.evidence.recipe(recipe)

    def _scheduled(self, step: int) -> list[cadence.Due]:
        return cadence.scheduled(step, self.every, self.variants, len(self.roster.recipes))

    def _due(self, step: int) -> list[cadence.Due]:
        """From seeds."""
        due = [each for each in self._scheduled(step) if not self._is_broadcast(each)]
        return due + self.requests.due(step)

    def _is_broadcast(self, due: cadence.Due) -> bool:
        """The turn is one of the broadcasts. An optimizer has no input that could be, and what was never
        replayed is from seeds first."""
        recipe = self.roster.recipes[due.place]
        eligible = recipe.rehearsed and recipe.kind is not RecipeKind.OPTIMIZER
        return eligible and self.sharing.mode.is_broadcast(due)

    def _replay_due(self, step: int) -> None:
        step_s = statistics.median(self._recent_ns) * 1e-9
        self.requests.take(step, step_s, self.roster.recipes, self.variants)
        self._exchange(step, step_s)
        due, shared = self._due(step), self.sharing.due(step)
        if due or shared:
            began_ns = time.monotonic_ns()
            for key, index, _ in due:
                if index < len(self.roster.recipes):
                    self._replay(self.roster.recipes[index], key, step)
            for index in shared:
                recipe = self.sharing.ready(index)
                if recipe is not None:
                    self._replay(recipe, step, step)
            self.cost_ns += time.monotonic_ns() - began_ns
            self._coordinates.publish(self._coordinates.writer, Phase.BETWEEN, AFTER_STEP, 0)
        self.requests.done(step)
        self.sharing.done(step)
        self._disarm()
        if due or shared:
            self._publish_state()

    def _exchange(self, step: int, step_s: float) -> None:
        """What was captured is on its way; what has come is known."""
        began_ns = time.monotonic_ns()
        self._publish(self.sharing.collect() + self.sharing.take(step, step_s))
        self.cost_ns += time.monotonic_ns() - began_ns

    def _replay(self, recipe: Recipe, key: int, step: int) -> None:
        """The recipe was replayed and its result is published, or it is disabled."""
        gathering = self._gathering.get(recipe.index)
        if recipe.state is not RecipeState.READY or (gathering is not None and not gathering.values):
            return
        module = recipe.module
        if gathering is None and module is not None and is_sharded(module):
            return  # learnt in this very step: next time
        began_ns = time.monotonic_ns()
        depth = self._coordinates.enter(Phase.BETWEEN, encode(f"scoutd replay of {recipe.name}"))
        try:
            result = replayed(recipe, key, step, gathering.values if gathering is not None else None)
        except Refusal as refusal:
            recipe.disable(str(refusal))
        except FAULT as error:
            self._guard.failed(self._guard.part(REPLAYED), error, NEVER)
            recipe.disable(f"{type(error).__name__}: {error}"[:192])
        else:
            recipe.replays += 1
            self.replays += 1
            recipe.cost_ns += time.monotonic_ns() - began_ns
            self.evidence.result(recipe, result)
        finally:
            self._coordinates.leave(depth)
        self.evidence.recipe(recipe)

    def _arm(self, step: int) -> None:
        """What is due after ``step`` and sharded will be copied while it is whole; inputs whose turn comes
        then will be captured."""
        for index in [*(each.place for each in self._due(step)), *self.sharing.due(step)]:
            recipe = self.roster.recipes[index] if index < len(self.roster.recipes) else None
            module = recipe.module if recipe is not None and recipe.state is RecipeState.READY else None
            if module is not None and index not in self._gathering and is_sharded(module):
                self._gathering[index] = Gathering(module, self._guard, self._part)
        wanted = sum(map(self._is_broadcast, self._scheduled(step)))
        if wanted:
            self.sharing.capture(wanted)

    def _disarm(self) -> None:
        for gathering in self._gathering.values():
            gathering.stop()
            self.cost_ns += gathering.cost_ns
        self._gathering = {}

    def _publish_state(self) -> None:
        self.evidence.state(
            replay.ReplayState(
                every=self.every,
                variants=self.variants,
                faults=int(seams.enabled),
                steps=self.steps,
                replays=self.replays,
                step_ns=self.step_ns,
                cost_ns=self.cost_ns,
                request=self.requests.finished,
            )
        )


def _is_capturing() -> bool:
    """A CUDA graph is being recorded: whatever ran now would become part of it."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]
