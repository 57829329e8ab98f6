"""Whom a rank's replays can be compared with: the ranks that hold the same parameters (SCOUT §1).

The wrapper knows. DDP keeps the parameters of its process group equal; FSDP2 gathers equal parameters on all
ranks of its mesh, HSDP on both axes of it. Where the model is split otherwise, too (tensor or pipeline), the
wrapper's group is already the one with equal coordinates. Without a wrapper nothing is known.

Shards, and the optimizer's state of them, are equal along the replicate axis of HSDP alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from scoutd.shim.replay.recipes import Peers


def peers_of(root: torch.nn.Module, rank: int) -> Peers:
    """The peers of this rank with respect to ``root``; itself alone where no wrapper is known."""
    ranks: list[int] = []
    for module in root.modules():
        if isinstance(module, DistributedDataParallel):
            ranks = dist.get_process_group_ranks(module.process_group)
            break
        mesh = mesh_of(module)
        if mesh is not None:
            ranks = [int(each) for each in mesh.mesh.flatten().tolist()]
            break
    return Peers(tuple(sorted(ranks)) if rank in ranks else (rank,))


def replicas_of(root: torch.nn.Module, rank: int) -> Peers:
    """The ranks that hold the same shards as this one (HSDP); itself alone where there are none."""
    for module in root.modules():
        mesh = mesh_of(module)
        if mesh is None:
            continue
        rows = mesh.mesh.tolist() if mesh.mesh.dim() == 2 else []
        same = [[int(row[k]) for row in rows] for k in range(len(rows[0]) if rows else 0)]
        return Peers(next((tuple(sorted(ranks)) for ranks in same if rank in ranks), (rank,)))
    return Peers((rank,))


def mesh_of(module: torch.nn.Module) -> Any:
    """The mesh on which ``fully_shard`` has sharded this very module, None where it has not."""
    state = getattr(module, "_get_fsdp_state", None)
    group = getattr(state(), "_fsdp_param_group", None) if callable(state) else None
    return None if group is None else group.mesh_info.mesh
