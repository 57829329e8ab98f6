"""The gRPC services over real sockets, TCP and Unix, with a fake agent behind them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from scoutd.agent.messages import Order, OrderReply
from scoutd.agent.replay import RecipeMode, RecipeState, ReplayCost
from scoutd.daemon import codec
from scoutd.daemon.clock import Stamps
from scoutd.daemon.errors import ConfigError, LocalError
from scoutd.daemon.jobs import Job
from scoutd.daemon.ledger import Ledger
from scoutd.daemon.serve.control import ControlService
from scoutd.daemon.serve.grpc_server import GrpcServer
from scoutd.daemon.serve.query import QueryService, View
from scoutd.daemon.serve.replay_requests import ReplayRequests
from scoutd.daemon.store import Entry
from scoutd.daemon.watchers import Watchers
from scoutd.proto.replay import Request
from scoutd.proto.v1 import query_pb2 as pb
from scoutd.proto.v1 import query_pb2_grpc
from tests.unit.agent import replaying
from tests.unit.daemon_serve import fakes

STAMPS = Stamps(0, 0)


def entry(identity: str, job: str = "j", run: str = "r", state: fakes.State = fakes.State.CONFIRMED) -> Entry:
    message = codec.encode_verdict(fakes.verdict(identity, state, job), STAMPS)
    return Entry(identity, job, 1, run, state.value, codec.to_bytes(message))


class Site:
    """A server on both addresses."""

    def __init__(self, path: Path) -> None:
        clock = fakes.FakeClock()
        self.path = path
        self.ledger = Ledger(None)
        self.watchers = Watchers(length=4)
        self.concluded: list[str] = []
        jobs = [Job(fakes.observation(name), fakes.FakeCore(), clock()) for name in ("j", "k")]
        view = View(
            node="n0",
            version="0.1.0",
            started_ns=0,
            stamps=STAMPS,
            clock=clock,
            stall_timeout_s=lambda: 5.0,
            jobs=lambda: jobs,
            unobserved=lambda: [fakes.Unobserved(3, 77, "python -I")],
            warnings=lambda: ["degraded"],
            ledger=self.ledger,
            watchers=self.watchers,
        )
        self.jobs = jobs
        self.requests: list[Request] = []
        self.orders: list[Order] = []
        replays = ReplayRequests(lambda: self.jobs, self.tell, self.spread, clock)
        self.server = GrpcServer(QueryService(view), ControlService(self.conclude, self.ledger, replays))

    def tell(self, job: str, request: Request) -> dict[int, bool]:
        self.requests.append(request)
        return {0: True, 1: False}

    async def spread(self, job: str, order: Order) -> dict[str, OrderReply | None]:
        self.orders.append(order)
        return {"n1": OrderReply((2,), (3,)), "n2": None}

    async def conclude(self, run: str) -> None:
        self.concluded.append(run)

    @property
    def targets(self) -> tuple[str, str]:
        return f"unix:{self.path}", f"127.0.0.1:{self.server.port}"


def with_site(path: Path, scenario: Callable[[Site, grpc.aio.Channel], Awaitable[None]]) -> None:
    async def body() -> None:
        site = Site(path)
        await site.server.start("127.0.0.1", 0, path)
        try:
            async with grpc.aio.insecure_channel(site.targets[0]) as channel:
                await asyncio.wait_for(scenario(site, channel), 20)
        finally:
            await site.server.stop(0)

    asyncio.run(body())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.sock"


def test_status_lists_jobs_unobserved_and_warnings(path: Path) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        stub = query_pb2_grpc.QueryStub(channel)
        status = await stub.GetStatus(pb.GetStatusRequest())
        assert [job.job for job in status.jobs] == ["j", "k"]
        assert (status.node, status.stall_timeout_s) == ("n0", 5.0)
        assert (status.unobserved[0].rank, status.unobserved[0].reason) == (3, "python -I")
        assert list(status.warnings) == ["degraded"]
        one = await stub.GetStatus(pb.GetStatusRequest(job="k"))
        assert [job.job for job in one.jobs] == ["k"]
        topology = await stub.GetTopology(pb.GetTopologyRequest(job="k"))
        assert [len(job.ranks) for job in topology.jobs] == [4]

    with_site(path, scenario)


def test_suppressed_verdicts_are_listed_when_asked_for(path: Path) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        stub = query_pb2_grpc.QueryStub(channel)
        site.ledger.put(entry("aa"))
        site.ledger.put(entry("ab", state=fakes.State.SUPPRESSED))

        async def ids(**request: object) -> list[str]:
            answer = await stub.ListVerdicts(pb.ListVerdictsRequest(**request))
            return [each.id for each in answer.verdicts]

        assert await ids() == ["aa"]
        assert await ids(suppressed=True) == ["aa", "ab"]
        assert await ids(id="ab") == ["ab"]
        assert await ids(job="other") == []

    with_site(path, scenario)


def test_watch_gives_the_past_then_changes_of_its_run_then_ends(path: Path) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        site.ledger.put(entry("past"))
        stub = query_pb2_grpc.QueryStub(channel)
        call = stub.WatchVerdicts(pb.WatchVerdictsRequest(run="r"))
        stream = call.__aiter__()
        assert (await stream.__anext__()).id == "past"
        site.watchers.publish(entry("other", run="s"))
        site.watchers.publish(entry("mine"))
        assert (await stream.__anext__()).id == "mine"
        site.watchers.close()
        with pytest.raises(StopAsyncIteration):
            await stream.__anext__()
        assert await call.code() is grpc.StatusCode.OK

    with_site(path, scenario)


def test_slow_watcher_is_told_that_it_was_dropped(path: Path) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        site.ledger.put(entry("past"))
        call = query_pb2_grpc.QueryStub(channel).WatchVerdicts(pb.WatchVerdictsRequest())
        stream = call.__aiter__()
        await stream.__anext__()
        for number in range(6):
            site.watchers.publish(entry(str(number)))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _exhaust(stream)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    with_site(path, scenario)


async def _exhaust(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        pass


def test_conclude_is_answered_on_the_unix_socket_only(path: Path) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        site.ledger.put(entry("aa"))
        site.ledger.put(entry("bb", run="s"))
        answer = await query_pb2_grpc.ControlStub(channel).Conclude(pb.ConcludeRequest(run="r"))
        assert [each.id for each in answer.verdicts] == ["aa"]
        async with grpc.aio.insecure_channel(site.targets[1]) as remote:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await query_pb2_grpc.ControlStub(remote).Conclude(pb.ConcludeRequest(run="r"))
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await query_pb2_grpc.ControlStub(channel).Conclude(pb.ConcludeRequest())
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert site.concluded == ["r"]

    with_site(path, scenario)


def test_health_follows_serving_and_reflection_lists_services(path: Path) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        health = health_pb2_grpc.HealthStub(channel)
        for ready, expected in ((False, "NOT_SERVING"), (True, "SERVING")):
            await site.server.serving(ready)
            for service in ("", "scoutd.v1.Query"):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
                assert health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) == expected
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]))
        answer = await call.__aiter__().__anext__()
        names = {each.name for each in answer.list_services_response.service}
        assert {"scoutd.v1.Query", "scoutd.v1.Control", "grpc.health.v1.Health"} <= names

    with_site(path, scenario)


def test_not_serving_before_it_is_told_to(path: Path) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING

    with_site(path, scenario)


def test_socket_is_private_and_a_stale_one_is_replaced(path: Path) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()

    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        assert path.stat().st_mode & 0o777 == 0o600
        await query_pb2_grpc.QueryStub(channel).GetStatus(pb.GetStatusRequest())

    with_site(path, scenario)


def refusal(path: Path, bind: str = "127.0.0.1", port: int = 0) -> str:
    async def body() -> None:
        await Site(path).server.start(bind, port, path)

    with pytest.raises((LocalError, ConfigError)) as caught:
        asyncio.run(body())
    return str(caught.value)


def test_refusals_are_one_clear_line(path: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"agent.port = {port}: Address already in use" in refusal(path, port=port)
    assert "Cannot assign requested address" in refusal(path, bind="192.0.2.1")
    plain = tmp_path / "plain"
    plain.write_text("precious")
    assert "exists and is not a socket" in refusal(plain)
    assert plain.read_text() == "precious"
    assert "No such file or directory" in refusal(tmp_path / "missing" / "a.sock")
    assert "at most 107" in refusal(tmp_path / ("x" * 120))


def test_living_agent_keeps_its_socket(path: Path) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        with pytest.raises(LocalError, match="another agent answers"):
            await Site(path).server.start("127.0.0.1", 0, path)
        await query_pb2_grpc.QueryStub(channel).GetStatus(pb.GetStatusRequest())

    with_site(path, scenario)


def replaying_job() -> Job:
    """A job whose ranks have two recipes, one of them disabled on rank 1, and one of broadcasts."""
    seen = fakes.observation("j", ranks=2)
    views = tuple(replaying.view(recipe=k, name=f"blocks.{k} (Block)") for k in (1, 2))
    shared = replaying.view(recipe=3, name="broadcast of blocks.1 (Block)")
    views = (*views, fakes.replace(shared, mode=RecipeMode.BROADCAST))
    disabled = fakes.replace(views[1], state=RecipeState.DISABLED, reason="RuntimeError: no")
    sick = (views[0], disabled, views[2])
    cost = ReplayCost(50, 1, True, 200, 4, 10**9, 10**7, 7)
    ranks = tuple(
        fakes.replace(rank, recipes=views if not rank.rank else sick, replay_cost=cost)
        for rank in seen.report.ranks
    )
    report = fakes.replace(seen.report, ranks=ranks)
    return Job(fakes.replace(seen, report=report), fakes.FakeCore(), 0)


def test_status_tells_of_replays(path: Path) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        site.jobs[:] = [replaying_job()]
        (job,) = (await query_pb2_grpc.QueryStub(channel).GetStatus(pb.GetStatusRequest())).jobs
        told = job.replay
        assert (told.every, told.variants, told.faults, told.replays, told.share) == (50, 1, True, 8, 0.01)
        states = [(each.name, each.state, each.reason, list(each.disabled)) for each in told.recipes]
        assert states == [
            ("blocks.1 (Block)", "READY", "", []),
            ("blocks.2 (Block)", "DISABLED", "RuntimeError: no", [1]),
            ("broadcast of blocks.1 (Block)", "READY", "", []),
        ]
        assert [each.mode for each in told.recipes] == ["SEEDED", "SEEDED", "BROADCAST"]

    with_site(path, scenario)


def test_a_replay_is_requested_on_the_socket_and_nowhere_else(path: Path) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        site.jobs[:] = [replaying_job()]
        request = pb.RequestReplayRequest(recipe="blocks.1", variants=3)
        answer = await query_pb2_grpc.ControlStub(channel).RequestReplay(request)
        assert (list(answer.ranks), list(answer.refused), list(answer.elsewhere)) == ([0, 2], [1, 3], ["n2"])
        (told,), (order,) = site.requests, site.orders
        assert (told.recipe, told.variants, told.request) == (1, 3, answer.request)
        assert (order.recipe, order.variants, order.request) == (1, 3, answer.request)
        async with grpc.aio.insecure_channel(site.targets[1]) as remote:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await query_pb2_grpc.ControlStub(remote).RequestReplay(request)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED

    with_site(path, scenario)


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        ("heads", "none of the recipes"),
        ("blocks.2", "none of the recipes"),
        ("broadcast of blocks.1", "none of the recipes"),
    ],
)
def test_a_recipe_that_cannot_be_replayed_is_not_accepted(path: Path, recipe: str, why: str) -> None:
    async def scenario(site: Site, channel: grpc.aio.Channel) -> None:
        site.jobs[:] = [replaying_job()]
        with pytest.raises(grpc.aio.AioRpcError, match=why):
            await query_pb2_grpc.ControlStub(channel).RequestReplay(pb.RequestReplayRequest(recipe=recipe))
        assert site.requests == []

    with_site(path, scenario)
