"""Takes one real call of a module with everything in it, for its peers to make again (mode BROADCAST).

The hook is a pre-hook for one forward of a block whose turn it is, on the group's first rank alone; it copies
the arguments where they are and takes itself out. Of the batch it takes the half that seeded replays take, or
less where that does not fit into what may be sent. Like every hook of the shim it is copied and pickled
harmlessly (see ``shim/modules.py``).
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch.compiler import is_compiling

from scoutd.shim.guard import FAULT, Guard, Part
from scoutd.shim.replay.call import Call, Node, Scribe, form_of, is_real
from scoutd.shim.replay.recipes import Recipe
from scoutd.shim.replay.refusal import Refusal

MIB: Final = 1 << 20


class _Keeper(Scribe):
    """Names every tensor of a call, and keeps them: of those that begin with ``batch`` only ``rows``."""

    def __init__(self, prefix: str, batch: int = 0, rows: int = 0) -> None:
        super().__init__({}, 0)
        self._prefix: Final = prefix
        self.kept: Final[dict[str, torch.Tensor]] = {}
        self._batch: Final = batch
        self._rows: Final = rows

    def tensor(self, tensor: torch.Tensor) -> Node:
        self.check(tensor)
        name = f"{self._prefix}.{len(self.kept)}"
        node = self.tensor_node(tensor, name, 0, None)
        tensor = tensor.detach()
        if self._batch and tensor.dim() and tensor.shape[0] == self._batch:
            tensor = tensor[: self._rows]
            node[2][0] = self._rows
        self.kept[name] = tensor
        return node


def kept_call(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    name: str,
    half: bool,
    limit: int,
    indices: bool = False,
) -> Call:
    """The call that is about to be made, content included, on the device.

    Args:
        name: tells its tensors from those of other calls.
        half: half of the batch will do, and less. The batch is what ``halved`` takes for it.
        limit: bytes that its tensors may take.
        indices: whole numbers have the batch, too; else they may be positions, or a mask.

    Raises:
        Refusal: an argument cannot be made again, or takes more.
    """
    whole = _Keeper(name)
    form_of(whole, module, args, kwargs)
    having = [t for t in whole.kept.values() if is_real(t) or (indices and t.dtype is not torch.bool)]
    batch = next((each.shape[0] for each in having if each.dim()), 0) if half else 0
    rows = _rows(list(whole.kept.values()), batch, limit)
    keeper = _Keeper(name, batch, rows)
    form = form_of(keeper, module, args, kwargs)
    contiguous = torch.contiguous_format
    return Call(form, {name: each.clone(memory_format=contiguous) for name, each in keeper.kept.items()})


def _rows(tensors: list[torch.Tensor], batch: int, limit: int) -> int:
    """So many samples are taken, at most half of the batch; 0 where all must be."""
    part = sum(_bytes(each) for each in tensors if batch and each.dim() and each.shape[0] == batch)
    rest = sum(map(_bytes, tensors)) - part
    row = max(1, part // batch) if batch else 0
    if rest + row > limit:
        raise Refusal(f"its input takes {(rest + row) / MIB:.1f} MiB, and {limit / MIB:.1f} may be sent")
    return min((batch + 1) // 2, (limit - rest) // row) if batch else 0


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class Capture:
    """The hook of one recipe. ``call``: what it has taken; ``refused``: why it could not."""

    def __init__(self, recipe: Recipe, limit: int, guard: Guard, part: Part) -> None:
        self.recipe: Final = recipe
        self.call: Call | None = None
        self.refused = ""
        self._limit: Final = limit
        self._guard: Final = guard
        self._part: Final = part
        self._handle: Any = None

    def __deepcopy__(self, memo: Any) -> Capture:
        return self

    def __reduce__(self) -> Any:
        return torch.nn.Identity, ()

    def listen(self) -> None:
        """The next call in training is taken."""
        module = self.recipe.module
        if module is not None:
            self._handle = module.register_forward_pre_hook(types.MethodType(_take, self), with_kwargs=True)

    def stop(self) -> None:
        """The hook is out."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def take(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """The call is taken. Nothing happens outside of training, or in a copy of the module."""
        if not module.training or not torch.is_grad_enabled() or module is not self.recipe.module:
            return
        self.stop()
        try:
            recipe, name = self.recipe, str(self.recipe.index)
            indices = bool(recipe.indices_below)
            self.call = kept_call(module, args, kwargs, name, recipe.half, self._limit, indices)
        except Refusal as refusal:
            self.refused = str(refusal)

    def failed(self, error: BaseException) -> None:
        self._guard.failed(self._part, error)

    @property
    def on(self) -> bool:
        return self._part.on


def _take(capture: Capture, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
    if is_compiling() or not capture.on:
        return
    try:
        capture.take(module, args, kwargs)
    except FAULT as error:
        capture.failed(error)


_take.__name__ = "__init__"  # what a pickle of the bound method looks up on Identity
