"""Ways in which ranks wait for one that never comes, one function per way; ``visible.py`` runs them.

A way prepares whatever needs everybody and returns what only the present ranks do. Every job has four
ranks; rank ``LATE`` prepares, too, and then sleeps for ever.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from typing import Final

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WORLD: Final = 4
LATE: Final = 2
Act = Callable[[], object]
Way = Callable[[int], Act]

WAYS: Final[dict[str, Way]] = {}
ENVIRONMENT: Final[dict[str, dict[str, str]]] = {}


def way(name: str, **environment: str) -> Callable[[Way], Way]:
    def register(function: Way) -> Way:
        WAYS[name] = function
        ENVIRONMENT[name] = environment
        return function

    return register


def plain(name: str, act: Callable[[int], object]) -> None:
    """A way that needs no preparation."""
    WAYS[name] = lambda rank: lambda: act(rank)
    ENVIRONMENT[name] = {}


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape)


def parts(count: int = WORLD) -> list[Tensor]:
    return [torch.empty(2) for _ in range(count)]


plain("all_reduce", lambda rank: dist.all_reduce(ones(2)))
plain("all_reduce async, waited for", lambda rank: dist.all_reduce(ones(2), async_op=True).wait())
plain("broadcast", lambda rank: dist.broadcast(ones(2), src=LATE))
plain("reduce", lambda rank: dist.reduce(ones(2), dst=0))
plain("all_gather", lambda rank: dist.all_gather(parts(), ones(2)))
plain("all_gather_into_tensor", lambda rank: dist.all_gather_into_tensor(ones(8), ones(2)))
plain("gather", lambda rank: dist.gather(ones(2), parts() if rank == 0 else None, dst=0))
plain("scatter", lambda rank: dist.scatter(ones(2), None, src=LATE))
plain("reduce_scatter", lambda rank: dist.reduce_scatter(ones(2), parts()))
plain("reduce_scatter_tensor", lambda rank: dist.reduce_scatter_tensor(ones(2), ones(8)))
plain("all_to_all_single", lambda rank: dist.all_to_all_single(ones(8), ones(8)))
plain(
    "all_to_all_single, splits",
    lambda rank: dist.all_to_all_single(ones(2 * WORLD), ones(8), [2] * WORLD, [2] * WORLD),
)
plain("all_to_all", lambda rank: dist.all_to_all(parts(), parts()))
plain("barrier", lambda rank: dist.barrier())
plain("monitored_barrier", lambda rank: dist.monitored_barrier())
plain("all_gather_object", lambda rank: dist.all_gather_object([None] * WORLD, {"rank": rank}))
plain("gather_object", lambda rank: dist.gather_object(rank, [None] * WORLD if rank == 0 else None))
plain("broadcast_object_list", lambda rank: dist.broadcast_object_list([None], src=LATE))
plain("scatter_object_list", lambda rank: dist.scatter_object_list([None], None, src=LATE))
plain("functional all_reduce", lambda rank: funcol.all_reduce(ones(2), "sum", dist.group.WORLD) + 1)
plain("functional all_gather_tensor", lambda rank: funcol.all_gather_tensor(ones(2), 0, dist.group.WORLD) + 1)
plain(
    "functional reduce_scatter_tensor",
    lambda rank: funcol.reduce_scatter_tensor(ones(8), "sum", 0, dist.group.WORLD) + 1,
)
plain(
    "functional all_to_all_single",
    lambda rank: funcol.all_to_all_single(ones(8), None, None, dist.group.WORLD) + 1,
)
plain("new_group", lambda rank: dist.new_group([0, 1, 2, 3]))
plain("init_device_mesh", lambda rank: init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")))
plain("store.get", lambda rank: dist.distributed_c10d._get_default_store().get("never"))


@way("all_reduce async, not waited for")
def prefetch(rank: int) -> Act:
    """The host is elsewhere while the collective is under way."""

    def act() -> None:
        work = dist.all_reduce(ones(2), async_op=True)
        time.sleep(1_000_000)
        work.wait()

    return act


@way("all_reduce async, work dropped")
def dropped(rank: int) -> Act:
    """Nobody can wait for it any more, and still it is under way."""

    def act() -> None:
        dist.all_reduce(ones(2), async_op=True)
        time.sleep(1_000_000)

    return act


@way("send")
def send(rank: int) -> Act:
    big = ones(1 << 20)
    return lambda: dist.send(big, LATE)


@way("recv")
def recv(rank: int) -> Act:
    return lambda: dist.recv(ones(2), LATE)


@way("isend")
def isend(rank: int) -> Act:
    big = ones(1 << 20)

    def act() -> None:
        work = dist.isend(big, LATE)
        assert work is not None
        work.wait()

    return act


@way("irecv")
def irecv(rank: int) -> Act:
    def act() -> None:
        work = dist.irecv(ones(2), LATE)
        assert work is not None
        work.wait()

    return act


@way("batch_isend_irecv")
def batch(rank: int) -> Act:
    """A ring: each rank receives from the one before; the late rank's neighbour waits."""

    def act() -> None:
        after, before = (rank + 1) % WORLD, (rank - 1) % WORLD
        operations = [
            dist.P2POp(dist.isend, ones(2), after),
            dist.P2POp(dist.irecv, ones(2), before),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        dist.all_reduce(ones(2))

    return act


@way("recv_object_list")
def recv_objects(rank: int) -> Act:
    return lambda: dist.recv_object_list([None], src=LATE)


@way("coalesced all_reduce")
def coalesced(rank: int) -> Act:
    def act() -> None:
        with dist.distributed_c10d._coalescing_manager():
            for _ in range(3):
                dist.all_reduce(ones(2))

    return act


@way("coalesced all_gather_into_tensor")
def coalesced_gather(rank: int) -> Act:
    def act() -> None:
        with dist.distributed_c10d._coalescing_manager():
            for _ in range(2):
                dist.all_gather_into_tensor(ones(8), ones(2))

    return act


@way("coalesced, asynchronous")
def coalesced_async(rank: int) -> Act:
    def act() -> None:
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
            for _ in range(3):
                dist.all_reduce(ones(2))
        manager.wait()

    return act


@way("all_reduce of a subgroup")
def subgroup(rank: int) -> Act:
    """Groups of rank pairs: only the late rank's mate waits in its pair, the others for it."""
    pairs = [dist.new_group(list(ranks)) for ranks in ((0, 1), (2, 3))]

    def act() -> None:
        dist.all_reduce(ones(2), group=pairs[rank // 2])
        dist.all_reduce(ones(2))

    return act


class Net(nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        out: Tensor = self.norm(x)
        return out


def backward_of(model: nn.Module) -> Act:
    """The backward of one more forward. Holds the model: without its wrapper a gradient stays here."""
    loss = model(ones(2, 8)).sum()

    def act() -> nn.Module:
        loss.backward()
        return model

    return act


@way("DDP forward (buffers)")
def ddp_forward(rank: int) -> Act:
    model = DistributedDataParallel(Net(norm=True))
    model(ones(2, 8)).sum().backward()
    return lambda: model(ones(2, 8)).sum().item()


@way("DDP backward")
def ddp_backward(rank: int) -> Act:
    model = DistributedDataParallel(Net())
    model(ones(2, 8)).sum().backward()
    return backward_of(model)


@way("DDP backward, DEBUG=INFO", TORCH_DISTRIBUTED_DEBUG="INFO")
def ddp_info(rank: int) -> Act:
    return ddp_backward(rank)


@way("all_reduce, DEBUG=INFO", TORCH_DISTRIBUTED_DEBUG="INFO")
def reduce_info(rank: int) -> Act:
    return lambda: dist.all_reduce(ones(2))


@way("all_reduce, DEBUG=DETAIL", TORCH_DISTRIBUTED_DEBUG="DETAIL")
def reduce_detail(rank: int) -> Act:
    return lambda: dist.all_reduce(ones(2))


@way("DDP()")
def ddp_made(rank: int) -> Act:
    return lambda: DistributedDataParallel(Net())


def sharded(mesh: DeviceMesh) -> Net:
    model = Net()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def step(model: nn.Module) -> None:
    model(ones(2, 8)).sum().backward()


@way("FSDP2 forward")
def fsdp_forward(rank: int) -> Act:
    model = sharded(init_device_mesh("cpu", (WORLD,)))
    step(model)
    return lambda: model(ones(2, 8))


@way("FSDP2 backward")
def fsdp_backward(rank: int) -> Act:
    model = sharded(init_device_mesh("cpu", (WORLD,)))
    step(model)
    return backward_of(model)


@way("HSDP forward")
def hsdp_forward(rank: int) -> Act:
    model = sharded(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    step(model)
    return lambda: step(model)


@way("HSDP backward")
def hsdp_backward(rank: int) -> Act:
    model = sharded(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    step(model)
    return backward_of(model)


@way("DTensor redistribute")
def redistribute(rank: int) -> Act:
    mesh = init_device_mesh("cpu", (WORLD,))
    tensor = distribute_tensor(ones(8, 2), mesh, [Shard(0)])
    return lambda: tensor.redistribute(mesh, [Replicate()]).to_local().sum().item()


@way("DTensor full_tensor")
def full_tensor(rank: int) -> Act:
    mesh = init_device_mesh("cpu", (WORLD,))
    tensor = DTensor.from_local(ones(2, 2), mesh, [Shard(0)])
    return lambda: tensor.full_tensor().sum().item()


@way("distribute_tensor")
def distribute(rank: int) -> Act:
    mesh = init_device_mesh("cpu", (WORLD,))
    return lambda: distribute_tensor(ones(8, 2), mesh, [Shard(0)])


@way("tensor parallel forward")
def tensor_parallel(rank: int) -> Act:
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    plan = {"layers.0": ColwiseParallel(), "layers.1": RowwiseParallel()}
    model = parallelize_module(Net(), mesh, plan)
    model(ones(2, 8))
    return lambda: model(ones(2, 8)).sum().item()


@way("compiled all_reduce")
def compiled(rank: int) -> Act:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def function(x: Tensor) -> Tensor:
        return funcol.all_reduce(x, "sum", dist.group.WORLD) + 1

    function(ones(2))
    return lambda: function(ones(2)).sum().item()


@way("compiled DDP backward")
def compiled_ddp(rank: int) -> Act:
    model = torch.compile(DistributedDataParallel(Net()), backend="aot_eager")
    model(ones(2, 8)).sum().backward()
    return backward_of(model)


@way("compiled module")
def compiled_module(rank: int) -> Act:
    """Functional collectives in a compiled module, and a graph break after them."""
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    plan = {"layers.0": ColwiseParallel(), "layers.1": RowwiseParallel()}
    model = torch.compile(parallelize_module(Net(), mesh, plan), backend="aot_eager")
    model(ones(2, 8))
    return lambda: model(ones(2, 8)).sum().item()


@way("ZeroRedundancyOptimizer step")
def zero(rank: int) -> Act:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = Net()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    step(model)
    optimizer.step()
    return optimizer.step


@way("distributed checkpoint")
def checkpoint(rank: int) -> Act:
    import torch.distributed.checkpoint as dcp

    state = {"weight": ones(4)}
    return lambda: dcp.save(state, checkpoint_id=os.environ["SCOUTD_TEST_FOLDER"])


@way("FSDP1 forward")
def fsdp1(rank: int) -> Act:
    from torch.distributed.fsdp import FullyShardedDataParallel

    warnings.simplefilter("ignore")
    model = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"))
    step(model)
    return lambda: model(ones(2, 8))


def prelude(rank: int) -> None:
    """P2P calls of unequal number and a monitored barrier: counters of ranks must agree all the same."""
    x = ones(2)
    dist.all_reduce(x)
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL":
        return  # its own check of sequences counts P2P calls and fails on these
    if rank == 0:
        dist.send(x, 1)
        dist.send(x, 3)
    elif rank in (1, 3):
        dist.recv(x, 0)
    dist.monitored_barrier()
    dist.all_reduce(x)
