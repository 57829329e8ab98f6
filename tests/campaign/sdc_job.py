"""The job of the campaign: forked ranks that train in lock-step with whoever watches them.

Torch is imported once, by the parent; every rank is a fork. The *gate* is shared memory: the watcher writes
which step may begin and which round of the plan it belongs to, and the ranks wait for it before each step.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import scoutd.shim
from scoutd.shim import faults
from scoutd.shim.replay import broadcast
from tests.campaign.sdc_plan import LAYERS, WORLDS, Round

VOCABULARY, WIDTH, BATCH = 64, 16, 8
STOP = (1 << 64) - 1
NO_ROUND = (1 << 64) - 1
PATIENCE_S = 120.0


class Gate:
    """``open``: the step that may begin; with it, which round of the plan it is, and how long a slow rank
    sleeps in each replay. ``finished``: the last step that all ranks have ended."""

    def __init__(self, world: int) -> None:
        self._world = world
        self._map = mmap.mmap(-1, 24 + 8 * world)

    @property
    def finished(self) -> int:
        return min(struct.unpack_from(f"<{self._world}Q", self._map, 24))

    def finish(self, rank: int, step: int) -> None:
        struct.pack_into("<Q", self._map, 24 + 8 * rank, step)

    @property
    def delay_s(self) -> float:
        delay: float = struct.unpack_from("<d", self._map, 16)[0]
        return delay

    @delay_s.setter
    def delay_s(self, delay: float) -> None:
        struct.pack_into("<d", self._map, 16, delay)

    def open(self, step: int, round_: int | None) -> None:
        struct.pack_into("<Q", self._map, 8, NO_ROUND if round_ is None else round_)
        struct.pack_into("<Q", self._map, 0, step)

    def stop(self) -> None:
        struct.pack_into("<Q", self._map, 0, STOP)

    def wait(self, step: int) -> int | None:
        """The round of this step once it may begin; raises StopIteration when there is no more."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            opened, round_ = struct.unpack_from("<QQ", self._map)
            if opened == STOP or time.monotonic() > deadline:
                raise StopIteration
            if opened >= step:
                return None if round_ == NO_ROUND else int(round_)
            time.sleep(0.0005)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return x + hidden


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits.clone()  # FSDP2 warns of views


def wrapped(layout: str) -> nn.Module:
    """The model as this layout trains it."""
    torch.manual_seed(7)
    model = Model()
    if layout == "ddp":
        return DistributedDataParallel(model)
    if layout == "hsdp":
        mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (WORLDS[layout],))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    sharded: nn.Module = fully_shard(model, mesh=mesh)
    return sharded


class Rank:
    """One rank's training loop."""

    def __init__(self, layout: str, plan: Sequence[Round], gate: Gate, mode: str) -> None:
        self.rank = dist.get_rank()
        self.model = wrapped(layout)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.plan, self.gate = plan, gate
        self.live: faults.Fault | None = None
        faults.enable()
        self.optimizer.register_step_post_hook(self._spoil)
        often = {"replay_every": 1, "replay_variants": 64}
        vars(broadcast).update(IDLE_S=0.02, AHEAD_S=0.2)  # as fast as the steps are short
        if not scoutd.shim.attach(self.model, self.optimizer, **often, replay_mode=mode):
            raise RuntimeError(scoutd.shim.status())
        self.tokens = torch.Generator().manual_seed(self.rank)

    def train(self) -> None:
        step = 0
        with suppress(StopIteration):
            while True:
                step += 1
                self._step(self.gate.wait(step))
                self.gate.finish(self.rank, step)

    def _step(self, number: int | None) -> None:
        round_ = self.plan[number] if number is not None else Round("clean")
        faults.clear()
        for fault in round_.faults:
            if round_.live:
                self.live = fault if fault.rank == self.rank else None
            else:
                faults.inject(replace(fault, delay_s=self.gate.delay_s))
        tokens = torch.randint(VOCABULARY, (BATCH, 6), generator=self.tokens)
        logits = self.model(tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if round_.live:
            self._heal((round_.faults[0].rank + 1) % dist.get_world_size())

    def _spoil(self, *_: Any) -> None:
        """Between the step and the replay behind it: one bit of the live weights."""
        if self.live is not None:
            parameters = list(self.model.parameters())
            self.live.corrupt(parameters[self.live.seed % len(parameters)], "live")
            self.live = None

    def _heal(self, healthy: int) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                dist.broadcast(parameter, healthy)


class Job:
    """The ranks of one layout, running. ``root`` is where their shared memory lies."""

    def __init__(self, layout: str, plan: Sequence[Round], root: Path, mode: str) -> None:
        self.layout, self.mode = layout, mode
        self.world = WORLDS[layout]
        self.gate = Gate(self.world)
        port = _free_port()
        os.environ["SCOUTD_ROOT"] = str(root)
        sys.stdout.flush()
        self.pids = [self._fork(rank, layout, plan, port) for rank in range(self.world)]

    def _fork(self, rank: int, layout: str, plan: Sequence[Round], port: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            torch.set_num_threads(1)
            store = dist.TCPStore("127.0.0.1", port, self.world, is_master=rank == 0)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=self.world)
            Rank(layout, plan, self.gate, self.mode).train()
            code = 0
        except BaseException:  # noqa: BLE001  a fork must never run the parent's code
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                scoutd.shim.detach()
            sys.stderr.flush()
            os._exit(code)

    @property
    def broken(self) -> bool:
        """Some rank has ended before it was asked to."""
        return any(os.waitpid(pid, os.WNOHANG)[0] for pid in self.pids)

    def end(self) -> None:
        """No rank lives."""
        self.gate.stop()
        deadline = time.monotonic() + 10
        for pid in self.pids:
            with suppress(ChildProcessError):
                while not os.waitpid(pid, os.WNOHANG)[0]:
                    if time.monotonic() > deadline:
                        os.kill(pid, signal.SIGKILL)
                    time.sleep(0.01)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
