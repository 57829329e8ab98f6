"""One run of a block: a fresh twin, seeded arguments, forward, backward, signatures.

Gradients come straight from the engine (what ``torch.autograd.grad`` calls): they are returned, not
accumulated, so no hook of a parameter and no reducer hears of them, and the shim's own announcement of
backward passes, which stands in front of ``torch.autograd``, is not set off.

Buffers that the forward writes to (running statistics) are legitimately different on peers, and what such a
module computes in training does not depend on them; they are filled with ones, so that a replay is equal on
peers whatever they hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from scoutd.proto.replay import Part
from scoutd.shim.replay import seams
from scoutd.shim.replay.ambience import ambience, autocasting
from scoutd.shim.replay.call import Arguments, Call, autocast_of, make, training_of
from scoutd.shim.replay.refusal import Refusal
from scoutd.shim.replay.seeds import Source
from scoutd.shim.replay.stopwatch import Stopwatch
from scoutd.shim.replay.twin import inner, twin_of
from scoutd.shim.signature import nonfinite, scheme_of, signature
from scoutd.shim.signature_nest import walk


@dataclass
class Outcome:
    """What one run gave. ``form``: structure and shapes of what came out. ``changed``: buffers that the
    forward wrote to."""

    signatures: dict[Part, int] = field(default_factory=dict)
    nonfinite: set[Part] = field(default_factory=set)
    scheme: int = 0
    module_ns: int = 0
    form: str = ""
    changed: frozenset[str] = frozenset()

    def sign(self, part: Part, tensors: Any, look: bool) -> None:
        """The part has a signature, if there is anything; ``look``: and is looked at for NaN and infinity."""
        if tensors:
            self.signatures[part] = signature(tensors)
            self.scheme |= scheme_of(tensors)
            if look and nonfinite(tensors):
                self.nonfinite.add(part)


@dataclass(frozen=True)
class Work:
    """What is run: the module, its call, its parameters where they had to be copied earlier (by path), and
    the buffers that are filled with ones."""

    module: torch.nn.Module
    call: Call
    gathered: Mapping[str, torch.Tensor] | None = None
    running: frozenset[str] = frozenset()


def run_block(work: Work, context: seams.Context, source: Source) -> Outcome:
    """The block was run forward and backward on a twin; the original was only read.

    Raises:
        Refusal: it cannot be.
    """
    rehearsal = context.run == 0
    outcome = Outcome()
    twin = _twin(work, context)
    device = _device(twin)
    arguments = _arguments(work.call, source, device, context)
    outcome.sign(Part.INPUT, arguments.tensors, look=not rehearsal)
    parameters = dict(twin.named_parameters())
    outcome.sign(Part.PARAMETER, list(parameters.values()), look=not rehearsal)
    before = _signed_buffers(twin) if rehearsal else {}
    versions = [tensor._version for tensor in arguments.tensors]
    with ambience(source.seed("rng"), device, rehearsal):
        watch = Stopwatch(device)
        seams.pause(context)
        with autocasting(autocast_of(work.call)):
            output = twin(*arguments.args, **arguments.kwargs)
        outcome.module_ns = watch.stop()
        if versions != [tensor._version for tensor in arguments.tensors]:
            raise Refusal("it changes its arguments in place")
        tensors = _tensors(output, context)
        outcome.sign(Part.OUTPUT, tensors, look=not rehearsal)
        outcome.form = _form(tensors)
        _backward(outcome, tensors, arguments, parameters, source, context)
    if rehearsal:
        after = _signed_buffers(twin)
        outcome.changed = frozenset(name for name, value in before.items() if after.get(name) != value)
    return outcome


def _twin(work: Work, context: seams.Context) -> torch.nn.Module:
    def fill(where: str, parameter: torch.nn.Parameter) -> torch.Tensor:
        values: torch.Tensor | None = parameter
        if work.gathered is not None:
            values = work.gathered.get(where)
        if values is None or type(values) not in (torch.Tensor, torch.nn.Parameter):
            raise Refusal(f"its parameter {where} was never whole ({type(parameter).__qualname__})")
        return seams.pass_through(Part.PARAMETER, where, values.detach().clone(), context)

    twin = twin_of(inner(work.module), fill)
    if training_of(work.call) != twin.training:
        twin.train(training_of(work.call))
    with torch.no_grad():
        for name, buffer in twin.named_buffers():
            if name in work.running:
                buffer.fill_(1)
    return twin


def _device(twin: torch.nn.Module) -> torch.device:
    for tensor in (*twin.parameters(), *twin.buffers()):
        return tensor.device
    return torch.device("cpu")


def _arguments(call: Call, source: Source, device: torch.device, context: seams.Context) -> Arguments:
    arguments = make(call, source, device)
    with torch.no_grad():
        for place, tensor in enumerate(arguments.tensors):
            passed = seams.pass_through(Part.INPUT, str(place), tensor.detach(), context)
            if passed.data_ptr() != tensor.data_ptr():
                tensor.copy_(passed)
    return arguments


def _tensors(output: Any, context: seams.Context) -> list[torch.Tensor]:
    """The output's tensors, as they go on."""
    found = _flat(output, [])
    return [seams.pass_through(Part.OUTPUT, str(k), tensor, context) for k, tensor in enumerate(found)]


def _flat(value: Any, found: list[torch.Tensor]) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for each in value.values():
            _flat(each, found)
    elif isinstance(value, (tuple, list)):
        for each in value:
            _flat(each, found)
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        for part in walk(value):  # a dataclass; ValueError where it has no canonical form
            if isinstance(part, torch.Tensor):
                found.append(part)
    return found


def _form(tensors: list[torch.Tensor]) -> str:
    return json.dumps([[str(t.dtype), list(t.shape), t.requires_grad] for t in tensors])


def _backward(
    outcome: Outcome,
    outputs: list[torch.Tensor],
    arguments: Arguments,
    parameters: Mapping[str, torch.nn.Parameter],
    source: Source,
    context: seams.Context,
) -> None:
    """Gradients of the seeded cotangents with respect to arguments and parameters are signed."""
    outputs = [each for each in outputs if each.requires_grad]
    named = {name: each for name, each in parameters.items() if each.requires_grad}
    leaves = arguments.leaves
    if not outputs or not (leaves or named):
        return
    cotangents = [
        source.floats(f"cotangent {k}", each.shape, each.dtype, each.device) for k, each in enumerate(outputs)
    ]
    watch = Stopwatch(outputs[0].device)
    gradients = list(_gradients(outputs, cotangents, [*leaves, *named.values()]))
    outcome.module_ns += watch.stop()
    look = context.run != 0
    for part, names, values in (
        (Part.INPUT_GRADIENT, [str(k) for k in range(len(leaves))], gradients[: len(leaves)]),
        (Part.PARAMETER_GRADIENT, list(named), gradients[len(leaves) :]),
    ):
        passed = [
            None if value is None else seams.pass_through(part, name, value, context)
            for name, value in zip(names, values, strict=True)
        ]
        outcome.sign(part, passed, look)


def _gradients(
    outputs: list[torch.Tensor], cotangents: list[torch.Tensor], inputs: list[torch.Tensor]
) -> Any:
    """As ``torch.autograd.grad(..., allow_unused=True)``."""
    engine: Any = torch.autograd.Variable._execution_engine
    return engine.run_backward(
        tuple(outputs), tuple(cotangents), False, False, tuple(inputs), True, accumulate_grad=False
    )


def _signed_buffers(twin: torch.nn.Module) -> dict[str, int]:
    return {name: signature(buffer) for name, buffer in twin.named_buffers()}
