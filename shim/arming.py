"""Waits for modules to be imported, without importing them: standard library only.

``sitecustomize`` runs in every Python process below ``scoutd run``, most of which never train. So all it
does is to put one finder in front of ``sys.meta_path``; when the trainer itself imports
``torch.distributed.distributed_c10d``, ``init_process_group`` is armed, and only the process that calls
it gets a shim, after the call has returned. The same finder later tells the shim that the DataLoader, the
checkpoint library or dynamo has arrived.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from typing import Any, Final

TARGET: Final = "torch.distributed.distributed_c10d"
OFF: Final = "SCOUTD_DISABLE"
"""Environment: any value keeps the shim out of this process and its children."""

Action = Callable[[types.ModuleType], None]


class _Watched(Loader):
    """Runs the real loader, then the actions. An error in an action is nobody's but ours."""

    def __init__(self, loader: Any, actions: list[Action]) -> None:
        self._loader = loader
        self._actions = actions

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: types.ModuleType) -> None:
        self._restore(module)
        self._loader.exec_module(module)
        for action in self._actions:
            run_quietly(action, module)

    def _restore(self, module: types.ModuleType) -> None:
        """The module knows its real loader only: source inspection and resources ask for it."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class ImportWatch:
    """The finder: hands every import on, and wraps the loader of the few that are waited for."""

    def __init__(self) -> None:
        self._actions: dict[str, list[Action]] = {}
        self._finding = False

    def when_imported(self, name: str, action: Action) -> None:
        """``action`` runs on the module, at once if it is there, else after its import."""
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if module is not None and not getattr(spec, "_initializing", False):
            run_quietly(action, module)
            return
        self._actions.setdefault(name, []).append(action)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._actions or self._finding:
            return None
        self._finding = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding = False
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return None
        spec.loader = _Watched(spec.loader, self._actions.pop(name))
        return spec

    def forget(self) -> None:
        """Nothing is waited for, the finder is gone."""
        self._actions.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def run_quietly(action: Action, module: types.ModuleType) -> None:
    """The trainer's import succeeds whatever happens in ``action``."""
    try:
        action(module)
    except Exception as error:  # noqa: BLE001  the trainer's import must go on
        LAST_ERRORS.append(f"{module.__name__}: {error!r}"[:200])
        del LAST_ERRORS[:-8]


LAST_ERRORS: Final[list[str]] = []
WATCH: Final = ImportWatch()


def arm() -> None:
    """The process that calls ``init_process_group`` will get a shim; nothing happens before."""
    if not os.environ.get(OFF):
        WATCH.when_imported(TARGET, _arm_init)


def _arm_init(module: types.ModuleType) -> None:
    """``init_process_group`` says that it waits, calls the real one and then attaches."""
    function = module.init_process_group
    cell = function.__closure__[0] if function.__code__.co_freevars == ("func",) else None
    if cell is None:
        raise TypeError("init_process_group has no closure cell to arm")
    inner = cell.cell_contents

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        run_quietly(lambda _: _starting().begin(args, kwargs), module)
        try:
            result = inner(*args, **kwargs)
        except BaseException:
            run_quietly(lambda _: _starting().withdraw(), module)
            raise
        run_quietly(_attach, module)
        run_quietly(lambda _: _starting().withdraw(), module)
        return result

    cell.cell_contents = init_process_group


def _attach(_: types.ModuleType) -> None:
    load_shim().attach()


def _starting() -> Any:
    load_shim()
    return importlib.import_module("scoutd.shim.starting")


def load_shim() -> types.ModuleType:
    """``scoutd.shim``: the installed one if the trainer's Python has it, else the one next to this file,
    under the same name (a trainer's environment need not have scoutd installed)."""
    if "scoutd.shim" in sys.modules:
        return sys.modules["scoutd.shim"]
    try:
        return importlib.import_module("scoutd.shim")
    except ImportError:
        here = os.path.dirname(os.path.abspath(__file__))
        return _load_from(here)


def _load_from(folder: str) -> types.ModuleType:
    house = sys.modules.get("scoutd")
    if house is None:
        house = types.ModuleType("scoutd")
        house.__path__ = []
        sys.modules["scoutd"] = house
    proto = os.path.join(os.path.dirname(folder), "proto")
    for name, path in (("proto", proto), ("shim", folder)):
        setattr(house, name, _load_package(f"scoutd.{name}", path))
    return sys.modules["scoutd.shim"]


def _load_package(name: str, folder: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
