"""Ways in which ranks come to life, one process tree per way; ``test_launches.py`` runs it.

``python launched.py WAY FOLDER``: every rank writes what its shim says to FOLDER/rank-<r>.json before it
ends. Nothing here knows of scoutd except ``report``.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 2


class Numbers(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Each item is what its worker process knows of the shim."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        module = sys.modules.get("scoutd.shim")
        return int(bool(module and module.status()["attached"]))


def report(folder: str, rank: int, **more: Any) -> None:
    module = sys.modules.get("scoutd.shim")
    found = {**(module.status() if module else {"attached": False}), "pid": os.getpid(), **more}
    Path(folder, f"rank-{rank}.json").write_text(json.dumps(found))


def train(rank: int, folder: str, store: str = "store") -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.FileStore(f"{folder}/{store}", WORLD), rank=rank, world_size=WORLD
    )
    dist.all_reduce(torch.ones(2))
    report(folder, rank)
    dist.barrier()
    dist.destroy_process_group()


def forked(folder: str) -> None:
    children = []
    for rank in range(WORLD):
        pid = os.fork()
        if pid == 0:
            train(rank, folder)
            sys.exit(0)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert codes == [0, 0], codes
    Path(folder, "parent.json").write_text(json.dumps({"shim": "scoutd.shim" in sys.modules}))


def workers(folder: str, method: str) -> None:
    """Rank 0 of 1 with two DataLoader workers; the workers must not be observed."""
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
    loader = torch.utils.data.DataLoader(Numbers(), num_workers=2, multiprocessing_context=method)
    seen = [int(item) for item in loader]
    report(folder, 0, workers=seen)
    dist.destroy_process_group()


def forked_after(folder: str) -> None:
    """An attached rank forks; the child passes boundaries, which must leave no trace in the parent's file."""
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
    dist.all_reduce(torch.ones(2))
    pid = os.fork()
    if pid == 0:
        torch.save({}, f"{folder}/saved")  # a collective would hang: Gloo's threads are not forked
        next(iter(torch.utils.data.DataLoader(torch.ones(1))))  # type: ignore[arg-type,var-annotated]
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    path = Path(sys.modules["scoutd.shim"].status()["file"])
    kept = Path(folder, "copy")
    kept.write_bytes(path.read_bytes())
    report(folder, 0)
    dist.destroy_process_group()


def calls_of_this_rank() -> list[dict[str, Any]]:
    from scoutd.proto import shm
    from tests.unit.shim.reading import slots

    path = Path(sys.modules["scoutd.shim"].status()["file"])
    found = sorted(slots(path, shm.CALLS), key=lambda call: call.entered_ns)
    return [call._asdict() for call in found if call.kind != shm.CallKind.STORE]


def converse(rank: int, folder: str, backend: str | None) -> None:
    """P2P in both directions and, where the backend has been named, a monitored barrier, between
    collectives."""
    x = torch.ones(3)
    dist.all_reduce(x)
    if rank == 0:
        dist.send(x, 1)
        dist.send(x, 1)
        work = dist.isend(x, 1, tag=3)
    else:
        dist.recv(x, 0)
        dist.recv(x, 0)
        work = dist.irecv(x, 0, tag=3)
    work.wait()
    dist.all_reduce(x)
    if backend is not None:
        dist.monitored_barrier()
    if rank == 0:
        dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1, tag=5)])[0].wait()
    else:
        dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 0, tag=5)])[0].wait()
    dist.all_reduce(x)
    report(folder, rank, calls=calls_of_this_rank())


def talk(rank: int, folder: str, backend: str | None = "gloo") -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        backend, store=dist.FileStore(f"{folder}/store", WORLD), rank=rank, world_size=WORLD
    )
    converse(rank, folder, backend)
    dist.barrier()
    dist.destroy_process_group()


def fail(rank: int, folder: str) -> None:
    """Rank 1 raises in a child of multiprocessing, where no exception hook hears of it."""
    dist.init_process_group(
        "gloo", store=dist.FileStore(f"{folder}/store", WORLD), rank=rank, world_size=WORLD
    )
    if rank == 1:
        raise ValueError("odd batch")


def children(target: Any, folder: str, method: str) -> None:
    """Ranks by multiprocessing, joined without looking at their exit codes."""
    context = mp.get_context(method)
    ranks = [context.Process(target=target, args=(rank, folder)) for rank in range(WORLD)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()


def main(way: str, folder: str) -> None:
    if way == "fork":
        forked(folder)
    elif way == "spawn":
        mp.spawn(train, args=(folder,), nprocs=WORLD)  # type: ignore[attr-defined]
    elif way in ("workers-fork", "workers-spawn"):
        workers(folder, way.partition("-")[2])
    elif way == "fork-after":
        forked_after(folder)
    elif way == "talk":
        children(talk, folder, "fork")
    elif way == "talk-default":
        children(functools.partial(talk, backend=None), folder, "fork")
    elif way == "fail-fork":
        children(fail, folder, "fork")
    elif way == "fail-spawn":
        try:
            mp.spawn(fail, args=(folder,), nprocs=WORLD)  # type: ignore[attr-defined]
        except mp.ProcessRaisedException:
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
