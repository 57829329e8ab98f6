"""Bundles and limits over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from scoutd.daemon.analyze.bundle import unpack
from scoutd.daemon.clock import Stamps
from scoutd.daemon.config import Config, StallSection
from scoutd.daemon.jobs import Job
from scoutd.daemon.ledger import Ledger
from scoutd.daemon.serve.control import ControlService
from scoutd.daemon.serve.grpc_server import GrpcServer
from scoutd.daemon.serve.query import QueryService, View
from scoutd.daemon.shelf import Shelf
from scoutd.daemon.watchers import Watchers
from scoutd.proto.v1 import query_pb2 as pb
from scoutd.proto.v1 import query_pb2_grpc
from tests.unit.agent import job as words
from tests.unit.daemon_serve import fakes

CONFIG = Config(stall=StallSection(timeout_s=5.0))


def hung() -> words.Job:
    """Rank 2 of four hangs after a checkpoint of three seconds."""
    job = words.Job(4)
    job.at(0, words.Phase.CHECKPOINT, "save", 0.0)
    job.observe()
    job.run(3)
    job.at(0, words.Phase.FORWARD, "", 0.0)
    job.observe()
    for rank in (0, 1, 3):
        job.waits(rank)
    job.hangs(2)
    job.run(1)
    return job


def ask(path: Path, question: Callable[[Any, words.Job], Awaitable[None]], copies: int = 1) -> None:
    job = hung()
    (verdict,) = job.core.verdicts
    shelf = Shelf()
    for k in range(copies):
        shelf.put(f"{verdict.id}{k or ''}", job.core.moment(verdict.id), job.now)
    observed = Job(fakes.observation("job"), job.core, job.now)

    async def body() -> None:
        view = View(
            node="n0",
            version="0.1.0",
            started_ns=0,
            stamps=Stamps(0, 10**18),
            clock=lambda: job.now,
            stall_timeout_s=lambda: 5.0,
            jobs=lambda: [observed],
            unobserved=list,
            warnings=list,
            ledger=Ledger(None),
            watchers=Watchers(),
            shelf=shelf,
            config=lambda: CONFIG,
        )

        async def conclude(run: str) -> None: ...

        server = GrpcServer(QueryService(view), ControlService(conclude, view.ledger, fakes.no_replays()))
        await server.start("127.0.0.1", 0, path)
        try:
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                await asyncio.wait_for(question(query_pb2_grpc.QueryStub(channel), job), 20)
        finally:
            await server.stop(0)

    asyncio.run(body())


def test_a_bundle_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    async def question(stub: Any, job: words.Job) -> None:
        (verdict,) = job.core.verdicts
        answer = await stub.GetBundle(pb.GetBundleRequest(id=verdict.id[:5]))
        assert answer.id == verdict.id
        bundle = unpack(answer.archive)
        assert bundle.moment == job.core.moment(verdict.id)
        assert bundle.decided_ns == 10**18 + job.now

    ask(tmp_path / "a.sock", question)


@pytest.mark.parametrize(
    ("id_", "copies", "code"),
    [
        ("ffff", 1, grpc.StatusCode.NOT_FOUND),
        ("", 1, grpc.StatusCode.NOT_FOUND),
        ("beginning", 2, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_no_such_bundle_or_several(tmp_path: Path, id_: str, copies: int, code: grpc.StatusCode) -> None:
    async def question(stub: Any, job: words.Job) -> None:
        wanted = job.core.verdicts[0].id[:5] if id_ == "beginning" else id_
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.GetBundle(pb.GetBundleRequest(id=wanted))
        assert error.value.code() is code

    ask(tmp_path / "a.sock", question, copies)


def test_limits_from_the_history(tmp_path: Path) -> None:
    async def question(stub: Any, job: words.Job) -> None:
        answer = await stub.GetLimits(pb.GetLimitsRequest())
        (told,) = answer.jobs
        assert (told.confirmed, told.suppressed) == (1, 0)
        limits = {each.setting: each for each in told.limits}
        checkpoint = limits["stall.checkpoint_s"]
        assert list(checkpoint.phases) == ["CHECKPOINT"]
        assert (checkpoint.limit_s, checkpoint.longest_s, checkpoint.suggested_s) == (600.0, 3.0, 9.0)
        assert checkpoint.ended == 1

    ask(tmp_path / "a.sock", question)


def test_the_shelf_is_bounded_and_keeps_the_first_time() -> None:
    shelf = Shelf(limit=2)
    moment = hung().core.moment(hung().core.verdicts[0].id)
    assert moment is not None
    for now, identity in enumerate(["a1", "b1", "b1", "c1"]):
        shelf.put(identity, moment, now)
    shelf.put("d1", None, 9)
    assert [kept.decided_ns for kept in shelf.find("b")] == [1]
    assert shelf.find("a") == []
    assert shelf.find("d") == []
