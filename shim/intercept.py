"""Ways to stand in front of a public function without replacing it.

Frameworks bind functions at import (``from torch.distributed import all_reduce``), dynamo keys its tables
by function identity, and P2POp compares with ``is``. So a public function stays the object it is, with its
signature, and only what it runs changes:

- a function decorated by torch's loggers holds the real one in a closure cell named ``func``: the cell is
  given the interceptor (``swap_cell``);
- one that is deprecated as well holds it one decorator deeper (``arg``): the interceptor goes below the
  decorator that warns, so that the warning shows the line that it shows without us;
- any other function gets the code of a trampoline with the same parameters and free variables, whose
  constant is the interceptor; a copy made before the swap is what the interceptor calls (``swap_code``);
- dynamo refuses constants that are functions, so a function that it traces finds its interceptor in its
  module instead, under a name of ours (``swap_traced``);
- a method of an extension type is replaced on the class (``swap_method``).

Every swap is undone by ``Undo.run``; if somebody else has put something in front of ours since, theirs is
left in place and ours, switched off by its part, only passes through.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, Final

from scoutd.shim.guard import FAULT

Function = Callable[..., Any]
Wrap = Callable[[Function], Function]
"""Makes an interceptor from the function it is to call."""

_MARK: Final = "the interceptor goes here"


class Undo:
    """What takes the shim out again, newest first."""

    def __init__(self) -> None:
        self._actions: list[Callable[[], None]] = []

    def add(self, action: Callable[[], None]) -> None:
        self._actions.append(action)

    def run(self) -> list[Exception]:
        """Everything is undone; the errors of those that could not be."""
        errors: list[Exception] = []
        while self._actions:
            try:
                self._actions.pop()()
            except FAULT as error:
                errors.append(error)
        return errors


def inner_parameters(function: Function) -> tuple[str, ...]:
    """Names of the function's parameters in order, seen through decorators."""
    return tuple(inspect.signature(function).parameters)


def swap(function: Function, wrap: Wrap, undo: Undo) -> None:
    """Calls of ``function`` reach ``wrap(original)``, whoever holds it."""
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"{function!r} is not a Python function")
    cell = _real_one(function)
    if cell is not None:
        swap_cell(cell, wrap, undo)
    else:
        swap_code(function, wrap, undo)


def _real_one(function: types.FunctionType) -> types.CellType | None:
    """The closure cell in which torch's logger or, below it, a deprecation holds the function itself."""
    found = _cell(function, "func")
    inside = function if found is None else found.cell_contents
    if hasattr(inside, "__deprecated__") and isinstance(inside, types.FunctionType):
        return _cell(inside, "arg") or found
    return found


def _cell(function: types.FunctionType, name: str) -> types.CellType | None:
    """The cell of a decorator's free variable ``name``."""
    names = function.__code__.co_freevars
    if not hasattr(function, "__wrapped__") or name not in names or function.__closure__ is None:
        return None
    return function.__closure__[names.index(name)]


def swap_cell(cell: types.CellType, wrap: Wrap, undo: Undo) -> None:
    original = cell.cell_contents
    ours = wrap(original)
    cell.cell_contents = ours

    def restore() -> None:
        if cell.cell_contents is ours:
            cell.cell_contents = original

    undo.add(restore)


def swap_code(function: types.FunctionType, wrap: Wrap, undo: Undo) -> None:
    original = function.__code__
    ours = _trampoline(original, wrap(_copy(function)))
    function.__code__ = ours

    def restore() -> None:
        if function.__code__ is ours:
            function.__code__ = original

    undo.add(restore)


def swap_traced(function: Function, wrap: Wrap, undo: Undo) -> None:
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"{function!r} is not a Python function")
    names, original = function.__globals__, function.__code__
    name = f"_scoutd_{function.__name__}"
    if name in names:
        raise ValueError(f"{function.__name__} is intercepted already")
    names[name] = wrap(_copy(function))
    ours = _trampoline(original, None, name)
    function.__code__ = ours

    def restore() -> None:
        if function.__code__ is ours:
            function.__code__ = original
            names.pop(name, None)

    undo.add(restore)


def _copy(function: types.FunctionType) -> types.FunctionType:
    """The function as it is now, which a swap of the original's code does not reach."""
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    copy.__module__ = function.__module__
    return copy


def swap_method(owner: type, name: str, wrap: Wrap, undo: Undo) -> None:
    original = owner.__dict__[name]
    ours = wrap(original)
    setattr(owner, name, ours)

    def restore() -> None:
        if owner.__dict__.get(name) is ours:
            setattr(owner, name, original)

    undo.add(restore)


def _trampoline(original: types.CodeType, target: Function | None, name: str = "") -> types.CodeType:
    """Code with the original's parameters, name, file and free variables, that calls ``target``, or what
    its module calls ``name``."""
    names, call = _parameters(original)
    scope: dict[str, Any] = {}
    body = f"return {name}({call})" if name else f"_scoutd = {_MARK!r}\n return _scoutd({call})"
    source = f"def trampoline({names}):\n {body}\n"
    exec(compile(source, original.co_filename, "exec"), scope)
    code: types.CodeType = scope["trampoline"].__code__
    constants = tuple(target if constant == _MARK else constant for constant in code.co_consts)
    fields: dict[str, Any] = {"co_consts": constants}
    for name in ("co_freevars", "co_name", "co_qualname", "co_firstlineno"):  # co_qualname: from 3.11 on
        if hasattr(original, name):
            fields[name] = getattr(original, name)
    return code.replace(**fields)


def _parameters(code: types.CodeType) -> tuple[str, str]:
    """The parameter list as source (defaults stay on the function), and the arguments that pass it on."""
    count, keywords = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    positional, only = names[:count], names[count : count + keywords]
    rest = list(names[count + keywords :])
    listed = list(positional)
    passed = list(positional)
    if code.co_posonlyargcount:
        listed.insert(code.co_posonlyargcount, "/")
    if code.co_flags & inspect.CO_VARARGS:
        star = "*" + rest.pop(0)
        listed.append(star)
        passed.append(star)
    elif only:
        listed.append("*")
    listed += only
    passed += [f"{name}={name}" for name in only]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        stars = "**" + rest.pop(0)
        listed.append(stars)
        passed.append(stars)
    return ", ".join(listed), ", ".join(passed)
