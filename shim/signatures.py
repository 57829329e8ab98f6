"""What each public collective and P2P call must agree on: which arguments hold the tensor, the root, the
reduce operation, and whether sizes may legally differ between members.

Parameters are found by name, and the names are read from the installed torch's own signatures, so that a
renamed or added parameter degrades to "unknown" and never to a wrong value. Of a list of tensors only the
first is looked at: the cost must not grow with the group.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch

from scoutd.proto import shm
from scoutd.shim.calls import Template, make_template
from scoutd.shim.groups import GroupState

TEMPLATES_LIMIT: Final = 512
"""Per group; shapes that never repeat (ragged batches) must not fill the trainer's memory."""


class Spec(NamedTuple):
    """``tensor``: the parameter with this rank's tensor (or a list of them), None for barriers.
    ``uneven``: sizes may differ between members. ``root``: prefix of the root's parameters. ``splits``:
    each member has its own share for each other."""

    operation: str
    tensor: str | None
    reduces: bool = False
    root: str | None = None
    uneven: bool = False
    implied_root: bool = False
    splits: bool = False


COLLECTIVES: Final[dict[str, Spec]] = {
    "all_reduce": Spec("all_reduce", "tensor", reduces=True),
    "all_reduce_coalesced": Spec("all_reduce_coalesced", "tensors", reduces=True, uneven=True),
    "broadcast": Spec("broadcast", "tensor", root="src"),
    "reduce": Spec("reduce", "tensor", reduces=True, root="dst"),
    "all_gather": Spec("all_gather", "tensor", uneven=True),
    "all_gather_coalesced": Spec("all_gather_coalesced", "input_tensor_list", uneven=True),
    "all_gather_single": Spec("all_gather_into_tensor", "input_tensor"),
    "all_gather_into_tensor": Spec("all_gather_into_tensor", "input_tensor"),
    "_all_gather_base": Spec("all_gather_into_tensor", "input_tensor"),
    "gather": Spec("gather", "tensor", root="dst", implied_root=True),
    "scatter": Spec("scatter", "tensor", root="src", implied_root=True),
    "reduce_scatter": Spec("reduce_scatter", "output", reduces=True, uneven=True),
    "reduce_scatter_single": Spec("reduce_scatter_tensor", "input", reduces=True),
    "reduce_scatter_tensor": Spec("reduce_scatter_tensor", "input", reduces=True),
    "_reduce_scatter_base": Spec("reduce_scatter_tensor", "input", reduces=True),
    "all_to_all": Spec("all_to_all", "input_tensor_list", uneven=True, splits=True),
    "all_to_all_single": Spec("all_to_all_single", "input", uneven=True, splits=True),
    "barrier": Spec("barrier", None),
    "monitored_barrier": Spec("monitored_barrier", None),
}
"""Public name → spec. ``all_gather_single`` and ``reduce_scatter_single`` are the names that torch 2.13
gave to ``all_gather_into_tensor`` and ``reduce_scatter_tensor``; they are one operation."""

FUNCTIONAL: Final[dict[str, Spec]] = {
    "all_reduce": Spec("all_reduce", "self", reduces=True),
    "broadcast": Spec("broadcast", "self", root="src"),
    "all_to_all_single": Spec("all_to_all_single", "self", uneven=True, splits=True),
    "all_to_all_single_autograd": Spec("all_to_all_single", "self", uneven=True, splits=True),
    "all_reduce_coalesced": Spec("all_reduce_coalesced", "self", reduces=True, uneven=True),
    **{
        name + suffix: Spec(operation + suffix.removesuffix("_autograd"), "self", reduces=reduces)
        for name, operation, reduces in (
            ("all_gather_single", "all_gather_into_tensor", False),
            ("all_gather_tensor", "all_gather_into_tensor", False),
            ("reduce_scatter_single", "reduce_scatter_tensor", True),
            ("reduce_scatter_tensor", "reduce_scatter_tensor", True),
        )
        for suffix in ("", "_autograd", "_coalesced")
    },
    "all_gather_into_tensor_coalesced": Spec("all_gather_into_tensor_coalesced", "self"),
}
"""Functional collectives, by name (old and new ones); their reduce operation is a word in any case."""

P2P: Final[dict[str, int]] = {
    "send": shm.CallKind.P2P_SEND,
    "isend": shm.CallKind.P2P_SEND,
    "recv": shm.CallKind.P2P_RECV,
    "irecv": shm.CallKind.P2P_RECV,
}

_ops: dict[int, tuple[Any, str]] = {}


def op_name(op: Any) -> str:
    """SUM, MAX, PREMUL_SUM …; remembered by identity, with the object held so that it stays unique."""
    known = _ops.get(id(op))
    if known is None:
        name = getattr(op, "name", None) or getattr(getattr(op, "op", None), "name", None) or str(op)
        known = (op, str(name).rpartition(".")[2])
        if len(_ops) < 64:
            _ops[id(op)] = known
    return known[1]


def first_tensor(value: Any) -> Any:
    """The tensor, or the first of a list; None where there is none."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (list, tuple)) and value:
        return value[0] if isinstance(value[0], torch.Tensor) else None
    return None


def root_of(spec: Spec, state: GroupState, given: dict[str, Any]) -> int:
    """The root's global rank, -1 where the call names none."""
    in_group = given.get(f"group_{spec.root}")
    if in_group is not None:
        return state.rank_of[int(in_group)]
    root = given.get(spec.root or "")
    if root is None:
        return 0 if spec.implied_root else -1
    return int(root)


def collective_template(spec: Spec, state: GroupState, given: dict[str, Any]) -> Template:
    """The call's template, from the group's cache if these arguments were seen before."""
    tensor = first_tensor(given.get(spec.tensor)) if spec.tensor is not None else None
    shape = tensor.shape if tensor is not None else None
    dtype = tensor.dtype if tensor is not None else None
    op = op_name(given["op"]) if "op" in given and spec.reduces else "SUM" if spec.reduces else ""
    root = root_of(spec, state, given) if spec.root is not None else -1
    key = (spec.operation, shape, dtype, op, root)
    found: Template | None = state.templates.get(key)
    if found is None:
        found = _make(spec, state, tensor, op, root)
        keep(state, key, found)
    return found


def p2p_template(name: str, kind: int, state: GroupState, tensor: Any) -> Template:
    """The template of a P2P call; sender and receiver have the same fingerprint if their sizes agree."""
    key = (name, tensor.shape, tensor.dtype)
    found: Template | None = state.templates.get(key)
    if found is None:
        found = make_template(
            kind, state.group, name, dtype_name(tensor.dtype), tensor.numel(), "", shape_text(tensor.shape)
        )
        keep(state, key, found)
    return found


def keep(state: GroupState, key: Any, template: Template) -> None:
    if len(state.templates) >= TEMPLATES_LIMIT:
        state.templates.clear()
    state.templates[key] = template


def _make(spec: Spec, state: GroupState, tensor: Any, op: str, root: int) -> Template:
    argument = f"{op} root={root}".strip() if root >= 0 else op
    numel = 0 if tensor is None else tensor.numel()
    if spec.uneven and not (spec.operation == "all_gather" and state.backend == "gloo"):
        numel = shm.UNKNOWN_U64
    dtype = "" if tensor is None else dtype_name(tensor.dtype)
    shape = "" if tensor is None else shape_text(tensor.shape)
    return make_template(shm.CallKind.COLLECTIVE, state.group, spec.operation, dtype, numel, argument, shape)


def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def shape_text(shape: Any) -> str:
    """ "[2, 3]"; of more than 8 dimensions the first 8."""
    return "[" + ", ".join(str(size) for size in shape[:8]) + "]"
