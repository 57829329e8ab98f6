"""One real call of a module, remembered so that peers can make it again.

The *form* of a call is a nest of JSON nodes, with the mode and autocast it was made in. Floating tensors
keep only their shape, type and ``scale`` (their values are seeded); others (masks, positions, token ids)
cannot be invented, their content is kept (``fixed``) and has to be the same on all peers. Indices into an
embedding can be invented: any whole number below its size is one. What has no node (a cache object, a
DTensor, a function) cannot be made again: the recipe is refused.

``halved`` is the same call on the first half of the batch. A replay runs twice, so half of the work keeps its
cost at what SCOUT §3 reckons, V/(I·N) of a step, without leaving the self-check out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from scoutd.shim.replay import scale
from scoutd.shim.replay.refusal import Refusal
from scoutd.shim.replay.seeds import Source
from scoutd.shim.signature import signature

Node = Any
"""[tag, ...]: T tensor, L list, U tuple, D dictionary, N number, text or None, F float, Y dtype, X device."""

_SCALE: Final = 7
"""Where a tensor's node has its scale: the last of its parts."""

_PARTS: Final = 8

AUTOCAST_DEVICES: Final = ("cpu", "cuda")
MAX_FIXED_BYTES: Final = 16 << 20
DEEPEST: Final = 8
MAX_TEXT: Final = 64 << 10


@dataclass(frozen=True)
class Call:
    """``form``: [args, kwargs, training, autocast] as canonical JSON. ``fixed``: the tensors whose content
    must be equal on all peers, by digest; without them (a peer that only knows its own) the call cannot be
    made."""

    form: str
    fixed: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @property
    def needs(self) -> set[str]:
        """Digests of the fixed tensors."""
        found: set[str] = set()
        _visit(json.loads(self.form)[:2], lambda node: found.add(str(node[4])) if node[4] else None)
        return found

    @property
    def fixed_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.fixed.values())

    def bare(self) -> Call:
        """The call as a peer with other data may know it, too: no content is in it, and no scale."""
        nodes = json.loads(self.form)
        _visit(nodes[:2], lambda node: node.__setitem__(_SCALE, None))
        return Call(json.dumps(nodes, separators=(",", ":")))


def learn(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], indices_below: int = 0
) -> Call:
    """The call that is about to be made.

    Args:
        indices_below: where it is not 0, whole numbers are indices below it and are seeded.

    Raises:
        Refusal: an argument cannot be made again.
    """
    fixed: dict[str, torch.Tensor] = {}
    call = Call(form_of(Scribe(fixed, indices_below), module, args, kwargs), fixed)
    if call.fixed_bytes > MAX_FIXED_BYTES:
        raise Refusal(f"its arguments that are not floating point take more than {MAX_FIXED_BYTES >> 20} MiB")
    return call


def form_of(scribe: Scribe, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The form of the call that is about to be made, as ``scribe`` writes it."""
    nodes = [scribe.node(list(args), 0), scribe.node(dict(kwargs), 0)]
    form = json.dumps([*nodes, bool(module.training), autocast_state()], separators=(",", ":"))
    if len(form) > MAX_TEXT:
        raise Refusal("its arguments are a nest of too many parts")
    return form


def autocast_state() -> list[list[Any]]:
    """[device type, dtype] for each kind of device whose autocast is on."""
    return [
        [device, _plain(torch.get_autocast_dtype(device))]
        for device in AUTOCAST_DEVICES
        if torch.is_autocast_enabled(device)
    ]


class Scribe:
    """Writes nodes. ``tensor`` decides what of a tensor is kept."""

    def __init__(self, fixed: dict[str, torch.Tensor], indices_below: int) -> None:
        self._fixed = fixed
        self._indices_below = indices_below

    def node(self, value: Any, depth: int) -> Node:
        if depth > DEEPEST:
            raise Refusal("an argument is nested too deeply")
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if type(value) is list:
            return ["L", [self.node(each, depth + 1) for each in value]]
        if type(value) is tuple:
            return ["U", [self.node(each, depth + 1) for each in value]]
        if type(value) is dict and all(type(key) is str for key in value):
            return ["D", [[key, self.node(value[key], depth + 1)] for key in sorted(value)]]
        if value is None or type(value) in (bool, int, str):
            return ["N", value]
        if type(value) is float:
            return ["F", value.hex()]
        if isinstance(value, torch.dtype):
            return ["Y", _plain(value)]
        if isinstance(value, torch.device):
            return ["X"]
        raise Refusal(f"an argument is a {type(value).__module__}.{type(value).__qualname__}")

    def tensor(self, tensor: torch.Tensor) -> Node:
        seeded = is_real(tensor)
        below = 0 if seeded or tensor.dtype is torch.bool else self._indices_below
        content = None
        self.check(tensor)
        if not seeded and not below:
            content = f"{signature(tensor):016x}"
            if content not in self._fixed:
                self._fixed[content] = tensor.detach().to("cpu", copy=True).contiguous()
        return self.tensor_node(tensor, content, below, scale.measured(tensor) if seeded else None)

    def check(self, tensor: torch.Tensor) -> None:
        """Raises Refusal for a tensor that cannot be made again."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise Refusal(f"an argument is a {type(tensor).__qualname__}")
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            raise Refusal("an argument is a sparse, nested or quantized tensor")

    def tensor_node(
        self, tensor: torch.Tensor, content: str | None, below: int, size: scale.Scale | None
    ) -> Node:
        """``content``: the name under which its values are kept, None: they are seeded."""
        channels_last = tensor.dim() == 4 and not tensor.is_contiguous() and _is_channels_last(tensor)
        fixed = [bool(tensor.requires_grad), content, below, channels_last]
        return ["T", _plain(tensor.dtype), list(tensor.shape), *fixed, scale.written(size)]


def is_real(tensor: torch.Tensor) -> bool:
    """Whether its values are numbers that can be invented: real or complex ones."""
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last)


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass
class Arguments:
    """A call's arguments, made again. ``tensors``: all of them in order; ``leaves``: those that want
    gradients."""

    args: list[Any]
    kwargs: dict[str, Any]
    tensors: list[torch.Tensor]

    @property
    def leaves(self) -> list[torch.Tensor]:
        return [tensor for tensor in self.tensors if tensor.requires_grad]


def make(call: Call, source: Source, device: torch.device) -> Arguments:
    """Fresh arguments on ``device``, equal on all peers. They share no memory with anything.

    Raises:
        Refusal: the content of a fixed tensor is not there.
    """
    tensors: list[torch.Tensor] = []

    def build(node: Node) -> Any:
        tag = node[0]
        if tag == "T":
            tensors.append(_tensor(node, len(tensors), call, source, device))
            return tensors[-1]
        if tag in "LU":
            parts = [build(each) for each in node[1]]
            return parts if tag == "L" else tuple(parts)
        if tag == "D":
            return {key: build(each) for key, each in node[1]}
        if tag == "F":
            return float.fromhex(node[1])
        if tag == "Y":
            return getattr(torch, node[1])
        return device if tag == "X" else node[1]

    args, kwargs = json.loads(call.form)[:2]
    return Arguments(build(args), build(kwargs), tensors)


def _tensor(node: Node, number: int, call: Call, source: Source, device: torch.device) -> torch.Tensor:
    _, name, shape, grad, content, below, channels_last, size = node
    dtype: torch.dtype = getattr(torch, name)
    if content:
        kept = call.fixed.get(content)
        if kept is None:
            raise Refusal("the content of an argument is not known yet")
        tensor = kept[tuple(slice(size) for size in shape)].to(device, copy=True)
    elif below:
        tensor = source.indices(f"input {number}", shape, below, dtype, device)
    else:
        tensor = source.floats(f"input {number}", shape, dtype, device, scale.read(size))
    if channels_last:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    return tensor.requires_grad_(grad)


def halved(call: Call) -> Call | None:
    """The call with the first half of the batch, None where there is no batch to halve.

    The batch is the first dimension of the first seeded tensor; every tensor that begins with the same size
    is taken to have it. That may be wrong: the rehearsal tells.
    """
    nodes = json.loads(call.form)
    sizes: list[int] = []
    _visit(nodes[:2], lambda node: sizes.append(node[2][0]) if node[2] and not node[4] else None)
    if not sizes or sizes[0] < 2:
        return None

    def halve(node: Node) -> None:
        if node[2] and node[2][0] == sizes[0]:
            node[2][0] = (sizes[0] + 1) // 2

    _visit(nodes[:2], halve)
    return Call(json.dumps(nodes, separators=(",", ":")), call.fixed)


def _visit(node: Node, see: Any) -> None:
    """``see`` has seen every tensor's node."""
    if isinstance(node, list):
        if len(node) == _PARTS and node[0] == "T":
            see(node)
            return
        for each in node:
            _visit(each, see)


def training_of(call: Call) -> bool:
    return bool(json.loads(call.form)[2])


def autocast_of(call: Call) -> list[tuple[str, torch.dtype]]:
    """[(device type, dtype)] of the autocasts that were on."""
    return [(device, getattr(torch, name)) for device, name in json.loads(call.form)[3]]
