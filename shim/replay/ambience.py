"""The surroundings of a replay: as in training while it runs, and afterwards as if it had not run.

Random generators (torch's on the host and on the device in use, Python's and numpy's) are seeded alike on all
peers and restored bit for bit. Autocast and gradient mode are those of the real call. Warnings are the user's
to see once, when the real call gives them; the replay's go nowhere. Whatever would make a replay visible to
the user, or the user's tools part of the replay (global module hooks, torch function or dispatch modes), is a
reason to refuse.

A collective in a replay would wait for peers that may not be there. In the rehearsal of a recipe a dispatch
mode looks at every operation and refuses those of process groups before they begin; it costs some
microseconds an operation, so the later runs, which do the same operations, go without.
"""

from __future__ import annotations

import random
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from scoutd.shim.replay.refusal import Refusal

COMMUNICATION: Final = frozenset(
    ("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "symm_mem")
)
_GLOBAL_HOOKS: Final = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
)


class NoCollectives(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations of process groups before they begin."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in COMMUNICATION:
            raise Refusal(f"it communicates ({func})")
        return func(*args, **(kwargs or {}))


def check_surroundings() -> None:
    """Raises Refusal where a replay now would be seen by the user's hooks or modes."""
    if any(getattr(module_hooks, name, None) for name in _GLOBAL_HOOKS):
        raise Refusal("global module hooks are registered")
    if torch._C._len_torch_dispatch_stack():
        raise Refusal("a torch dispatch mode is active")
    for index in range(torch._C._len_torch_function_stack()):
        mode = type(torch._C._get_function_stack_at(index))
        if mode.__name__ != "DeviceContext":  # torch.set_default_device: as for the module itself
            raise Refusal(f"a torch function mode is active ({mode.__name__})")


@contextmanager
def ambience(seed: int, device: torch.device, rehearsal: bool = False) -> Iterator[None]:
    """Within it everything is seeded and gradients are on; afterwards nothing has changed.

    Raises:
        Refusal: at the start, see ``check_surroundings``; within, in a rehearsal, at a collective.
    """
    check_surroundings()
    with ExitStack() as stack:
        stack.enter_context(_seeded(seed, device))
        stack.enter_context(_silent())
        stack.enter_context(torch.enable_grad())
        if rehearsal:
            stack.enter_context(NoCollectives())  # type: ignore[no-untyped-call]
        yield


@contextmanager
def autocasting(states: Sequence[tuple[str, torch.dtype]]) -> Iterator[None]:
    """Autocast as in the real call. Its cache is the trainer's, and is not used."""
    with ExitStack() as stack:
        for kind, dtype in states:
            stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=False))
        yield


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Not ``torch.manual_seed``: where CUDA is not initialised it would be seeded when it is."""
    host = torch.get_rng_state()
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    numpys = numpy.random.get_state() if numpy is not None and hasattr(numpy, "random") else None
    try:
        torch.default_generator.manual_seed(seed)
        if on_device is not None:
            torch.cuda.default_generators[_index(device)].manual_seed(seed)
        random.seed(seed)
        if numpys is not None and numpy is not None:
            numpy.random.seed(seed & 0xFFFFFFFF)
        yield
    finally:
        torch.set_rng_state(host)
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, device)
        random.setstate(python)
        if numpys is not None and numpy is not None:
            numpy.random.set_state(numpys)


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


@contextmanager
def _silent() -> Iterator[None]:
    """This thread's warnings go nowhere. Not ``catch_warnings``: it makes Python forget which warnings it has
    shown already."""
    mine = threading.get_ident()
    shown: Any = warnings.__dict__.get("_showwarnmsg")
    if shown is None:
        yield
        return

    def show(message: Any) -> None:
        if threading.get_ident() != mine:
            shown(message)

    warnings.__dict__["_showwarnmsg"] = show
    try:
        yield
    finally:
        if warnings.__dict__.get("_showwarnmsg") is show:
            warnings.__dict__["_showwarnmsg"] = shown


def synchronize(device: torch.device) -> None:
    """What was launched on the device is done; nothing on the host."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
