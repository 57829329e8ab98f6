"""Reading a pickle that nobody vouches for: containers, numbers, strings, None and bool, nothing else.

A pickle is a program. Whatever it calls it must name first, as a global, and this reader refuses every name
(extension codes stand for names, and nothing is registered here) and every reference to an object outside the
file. What remains builds plain values only.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

MAX_BYTES: Final = 1 << 30
"""A rank's ring of 20,000 collectives with Python stacks is about 100 MB."""


class Refused(ValueError):
    """The pickle wants more than plain values."""


class _PlainUnpickler(pickle.Unpickler):
    """Every way out of plain values is closed. (Builtin containers need no name: they have opcodes.)"""

    def find_class(self, module: str, name: str) -> Any:
        raise Refused(f"it names {module}.{name}; a Flight Recorder dump is made of plain values only")

    def persistent_load(self, pid: Any) -> Any:
        raise Refused("it refers to an object outside the file")


def load(data: bytes) -> Any:
    """The plain value in ``data``.

    Raises:
        Refused: it is not made of plain values alone.
        ValueError: it is no pickle, or a truncated one.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except Refused:
        raise
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to mean
        raise ValueError(f"no readable pickle: {error or type(error).__name__}") from error
