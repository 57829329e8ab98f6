"""Runs at the start of every Python process below ``scoutd run``: arms the shim, then steps aside.

Its folder stands in front of PYTHONPATH and holds nothing else. Standard library only, no import of torch
or scoutd here: most of these processes (launchers, resource trackers, workers) never train. A
``sitecustomize`` of the user's or the system's that this one hides is found and run as Python would.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _arm() -> None:
    """Loads arming.py by its path (the trainer's Python may have no scoutd) and arms it once."""
    name = "_scoutd_arming"
    if name in sys.modules:
        return
    path = os.path.join(os.path.dirname(_HERE), "arming.py")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    module.arm()


def _run_hidden() -> None:
    """The next ``sitecustomize`` on the path takes this one's name and runs; its errors are its own."""
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _arm()
except Exception:  # noqa: BLE001  fail-open: this rank is then reported as unobserved, and trains on
    pass
_run_hidden()
