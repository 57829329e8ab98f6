"""What ``scoutd run`` was asked to do, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPLAY_EVERY: Final = 50
REPLAY_VARIANTS: Final = 1
REPLAY_MODE: Final = "seeded"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """``stop``: end the job at the first confirmed verdict. None: not given, the configuration decides.

    ``stall_timeout_s``, ``config``, ``node``, ``port``, ``http_port`` and ``state_dir`` describe an agent;
    where one of them is given, the run gets a private agent even if a node agent is there."""

    command: tuple[str, ...]
    stop: bool = False
    verdicts: Path | None = None
    stall_timeout_s: float | None = None
    config: Path | None = None
    node: str | None = None
    port: int | None = None
    http_port: int | None = None
    state_dir: Path | None = None
    nodes: int | None = None
    """So many agents share the ranks of this machine; None: one."""
    replay_every: int | None = None
    replay_variants: int | None = None
    replay_mode: str | None = None

    def replay_environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """What the ranks are told about replays; what the user's environment says stands where no option
        says something else. Design §1: every 50 steps, one variant; inputs without traffic."""
        wanted = (
            ("SCOUTD_REPLAY_EVERY", self.replay_every, REPLAY_EVERY),
            ("SCOUTD_REPLAY_VARIANTS", self.replay_variants, REPLAY_VARIANTS),
            ("SCOUTD_REPLAY_MODE", self.replay_mode, REPLAY_MODE),
        )
        return {
            name: base.get(name, str(default)) if value is None else str(value)
            for name, value, default in wanted
        }

    @property
    def wants_private_agent(self) -> bool:
        return any(value is not None for value in (*self.flags().values(), self.config, self.nodes))

    def flags(self) -> dict[str, object]:
        """By key path of the configuration, as ``configsource.load`` takes them."""
        return {
            "stall.timeout_s": self.stall_timeout_s,
            "agent.node": self.node,
            "agent.port": self.port,
            "agent.http_port": self.http_port,
            "agent.state_dir": None if self.state_dir is None else str(self.state_dir),
        }
