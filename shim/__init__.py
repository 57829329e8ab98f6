"""Guest code in the trainer: publishes what this rank is doing, and changes nothing else.

``attach`` is idempotent, ``detach`` undoes everything, and neither ever raises. Importing this package is
cheap and needs no torch. See design §3 and ``session.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["attach", "detach", "status"]

_refused: list[str] = []


def attach(
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    coordinates: Mapping[str, int] | None = None,
    replay_every: int | None = None,
    replay_variants: int | None = None,
    replay_mode: str | None = None,
) -> bool:
    """This rank is observed, if it can be; call it after ``init_process_group``.

    Where a shim is attached already, as under ``scoutd run``, ``model`` alone counts.

    Args:
        model: its blocks are watched. Without it they are found when training begins.
        optimizer: accepted for symmetry; all optimizers are watched.
        coordinates: parallel coordinates of this rank (keys d, s, t, p, c, e), which win over those that
            are derived from meshes and wrappers.
        replay_every: steps between replays, 0: only on request. None: what SCOUTD_REPLAY_EVERY says, else 0.
        replay_variants: recipes that are replayed then. None: what SCOUTD_REPLAY_VARIANTS says, else 1.
        replay_mode: on which inputs: "seeded", "broadcast" (real ones of the group's first rank), "both" by
            turns. None: what SCOUTD_REPLAY_MODE says, else "seeded".

    Returns:
        Whether a shim is attached now; ``status`` tells why not.
    """
    try:
        from scoutd.shim import session

        return session.attach(model, optimizer, coordinates, replay_every, replay_variants, replay_mode)
    except Exception as error:  # noqa: BLE001  there may be no guard yet to count it
        _refuse(error)
        return False


def detach() -> None:
    """Every hook, interceptor, thread, lock and file of the shim is gone. Nothing happens if none is."""
    try:
        from scoutd.shim import session

        session.detach()
    except Exception as error:  # noqa: BLE001  there may be no guard any more to count it
        _refuse(error)


def _refuse(error: Exception) -> None:
    _refused.append(f"{type(error).__name__}: {error}")
    del _refused[:-8]


def status() -> dict[str, object]:
    """Whether a shim is attached, its file, errors by part, and why earlier attempts were refused."""
    from scoutd.shim import session

    return {**session.status(), "refused": list(_refused)}
