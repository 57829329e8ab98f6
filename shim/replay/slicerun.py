"""One run of an optimizer: a step of a copy of it, on a bounded slice of one parameter and its state.

The copy is an object of the same class with the same hyper-parameters, without hooks, made by structure and
not by its constructor. Which parameter is cut rotates with the key. The slice keeps all dimensions but the
first, so that optimizers that look at a matrix (rows, columns) still see one. The step that runs is the
class's own, below the wrapper that calls step hooks: the user's hooks do not run, and the step is not
counted.

Peers with whole parameters (DDP) step a slice of the real ones with the real state. Where parameters are
sharded (FSDP2, HSDP) each rank holds another part, so the slice and its state are seeded: what is compared is
then the rank's arithmetic alone. Replicas of a shard (HSDP) have a recipe of their own besides, which steps a
slice of the shard with its real state.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, Final

import torch

from scoutd.proto.replay import Part
from scoutd.shim.replay import seams
from scoutd.shim.replay.ambience import ambience
from scoutd.shim.replay.blockrun import Outcome
from scoutd.shim.replay.copies import Memo, copied
from scoutd.shim.replay.refusal import Refusal
from scoutd.shim.replay.seeds import Source, seed_of
from scoutd.shim.replay.stopwatch import Stopwatch

SLICE: Final = 1 << 16
"""Elements: enough for every vector lane and a few threads, and well below a millisecond."""

WHOLE_STATE: Final = 1 << 20
"""Elements of a state tensor that is not shaped like its parameter; it is copied whole."""

_SKIPPED: Final = frozenset(
    (
        "step",  # learning-rate schedulers put a counting wrapper on the object
        "param_groups",
        "state",
        "grad_scale",  # GradScaler leaves these on fused optimizers during its step
        "found_inf",
    )
)


def run_optimizer(
    optimizer: torch.optim.Optimizer, key: int, context: seams.Context, source: Source, shard: bool = False
) -> Outcome:
    """A step was made on a slice; the optimizer was only read. ``shard``: of what this rank holds of a
    sharded parameter.

    Raises:
        Refusal: it cannot be.
    """
    parameter, group = _chosen(optimizer, key, shard)
    made = Slice(optimizer, parameter, group, source, context, shard)
    return made.run(context, source)


def _chosen(optimizer: torch.optim.Optimizer, key: int, shard: bool) -> tuple[torch.Tensor, dict[str, Any]]:
    """The parameter whose turn it is, and its group."""
    found = [
        (parameter, group)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad and parameter.dtype.is_floating_point and parameter.numel()
        if not shard or (_is_sharded(parameter) and _local(parameter).numel())
    ]
    if not found:
        raise Refusal("it has no shard of a parameter" if shard else "it has no parameters")
    return found[seed_of(0, key, "parameter") % len(found)]


class Slice:
    """The copy and its only parameter."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameter: torch.Tensor,
        group: dict[str, Any],
        source: Source,
        context: seams.Context,
        shard: bool = False,
    ) -> None:
        sharded = _is_sharded(parameter) and not shard
        held = _local(parameter) if shard else parameter
        self.rows: Final = _rows(held)
        shape = self._shape(held.shape)
        device = parameter.device
        if sharded:
            values = source.floats("slice", shape, parameter.dtype, device)
        else:
            values = self._cut(held).detach().clone()
        values = seams.pass_through(Part.PARAMETER, "slice", values, context)
        self.parameter: Final = torch.nn.Parameter(values)
        self.memo: Final = Memo()
        self.memo.keep(parameter, self.parameter)
        state = {} if sharded else self._state(optimizer, parameter, context)
        self.optimizer: Final = self._copy(optimizer, group, state)
        self.fresh: Final = sharded

    def run(self, context: seams.Context, source: Source) -> Outcome:
        rehearsal = context.run == 0
        outcome = Outcome(form="")
        device = self.parameter.device
        outcome.sign(Part.PARAMETER, [self.parameter], look=not rehearsal)
        with ambience(source.seed("rng"), device, rehearsal):
            if self.fresh:
                self._step(source, "first gradient", context, Outcome())
            self._step(source, "gradient", context, outcome)
        after = [self.parameter.detach(), *self._state_tensors()]
        after = [
            seams.pass_through(Part.OPTIMIZER, str(k), tensor, context) for k, tensor in enumerate(after)
        ]
        outcome.sign(Part.OPTIMIZER, after, look=not rehearsal)
        return outcome

    def _step(self, source: Source, place: str, context: seams.Context, outcome: Outcome) -> None:
        parameter = self.parameter
        gradient = source.floats(place, parameter.shape, parameter.dtype, parameter.device)
        parameter.grad = seams.pass_through(Part.INPUT, place, gradient, context)
        outcome.sign(Part.INPUT, [parameter.grad], look=context.run != 0)
        step = getattr(type(self.optimizer), "step")  # noqa: B009  an attribute of the class, not a method
        if getattr(step, "hooked", False):
            step = step.__wrapped__
        watch = Stopwatch(parameter.device)
        seams.pause(context)
        step(self.optimizer)
        outcome.module_ns = watch.stop()

    def _copy(
        self, optimizer: torch.optim.Optimizer, group: dict[str, Any], state: dict[str, Any]
    ) -> torch.optim.Optimizer:
        kind: Any = type(optimizer)
        made: torch.optim.Optimizer = kind.__new__(kind)
        fields = vars(made)
        for name, value in vars(optimizer).items():
            if name not in _SKIPPED:
                fields[name] = OrderedDict() if "_hooks" in name else copied(value, self.memo)
        options = {name: copied(value, self.memo) for name, value in group.items() if name != "params"}
        fields["param_groups"] = [{**options, "params": [self.parameter]}]
        fields["state"] = defaultdict(dict, {self.parameter: state} if state else {})
        return made

    def _state(
        self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor, context: seams.Context
    ) -> dict[str, Any]:
        """The parameter's state: what is shaped like it is cut like it, the rest copied whole."""
        state: dict[str, Any] = {}
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                value = self._cut(_local(value)).detach().clone()
                value = seams.pass_through(Part.OPTIMIZER, f"state {name}", value, context)
            elif isinstance(value, torch.Tensor) and value.numel() > WHOLE_STATE:
                raise Refusal(f"its state {name} is not shaped like the parameter")
            else:
                value = copied(value, self.memo)
            state[name] = value
        return state

    def _state_tensors(self) -> list[torch.Tensor]:
        state = self.optimizer.state.get(self.parameter, {})
        return [state[name] for name in sorted(state) if isinstance(state[name], torch.Tensor)]

    def _cut(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor[: self.rows] if tensor.dim() else tensor

    def _shape(self, shape: torch.Size) -> tuple[int, ...]:
        return (min(self.rows, shape[0]), *shape[1:]) if shape else ()


def _is_sharded(parameter: torch.Tensor) -> bool:
    return hasattr(parameter, "to_local")


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    to_local: Any = getattr(tensor.detach(), "to_local", None)
    held: torch.Tensor = tensor if to_local is None else to_local()
    return held


def _rows(parameter: torch.Tensor) -> int:
    """How many of the first dimension make up a slice."""
    if not parameter.dim():
        return 0
    row = max(1, parameter.numel() // parameter.shape[0])
    return max(1, SLICE // row)
