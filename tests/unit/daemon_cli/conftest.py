"""A fake agent: a gRPC server on a Unix socket that says what a test tells it to say."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from scoutd.daemon import runtime
from scoutd.proto.v1 import query_pb2 as query
from scoutd.proto.v1 import query_pb2_grpc
from scoutd.proto.v1 import verdict_pb2 as pb


class FakeAgent(query_pb2_grpc.QueryServicer, query_pb2_grpc.ControlServicer):
    """``known`` is what it has decided so far; ``say`` decides something more, ``end_streams`` hangs up on
    all watchers; ``watched`` counts them. ``hang_up_when_told``: a watch ends after what is known."""

    def __init__(self) -> None:
        self.known: list[pb.Verdict] = []
        self.final: list[pb.Verdict] = []
        self.concluded: list[str] = []
        self.status = query.GetStatusResponse(node="node-a", version="0.1.0", pid=7, stall_timeout_s=30)
        self.topology = query.GetTopologyResponse()
        self.bundle = query.GetBundleResponse()
        self.limits = query.GetLimitsResponse()
        self.watched = 0
        self.hang_up_when_told = False
        self._closed = False
        self._watchers: list[queue.SimpleQueue[pb.Verdict | None]] = []

    def say(self, verdict: pb.Verdict) -> None:
        self.known.append(verdict)
        for watcher in self._watchers:
            watcher.put(verdict)

    def close(self) -> None:
        """No stream goes on, and none that comes late waits for anything."""
        self._closed = True
        self.end_streams()

    def end_streams(self) -> None:
        for watcher in self._watchers:
            watcher.put(None)
        self._watchers.clear()

    def GetStatus(self, request: Any, context: Any) -> query.GetStatusResponse:
        return self.status

    def GetTopology(self, request: Any, context: Any) -> query.GetTopologyResponse:
        return self.topology

    def GetBundle(self, request: Any, context: Any) -> query.GetBundleResponse:
        return self.bundle

    def GetLimits(self, request: Any, context: Any) -> query.GetLimitsResponse:
        return self.limits

    def ListVerdicts(self, request: Any, context: Any) -> query.ListVerdictsResponse:
        found = [v for v in self.known if v.id.startswith(request.id)]
        return query.ListVerdictsResponse(
            verdicts=[v for v in found if request.suppressed or v.state != pb.SUPPRESSED]
        )

    def WatchVerdicts(self, request: Any, context: Any) -> Iterator[pb.Verdict]:
        heard: queue.SimpleQueue[pb.Verdict | None] = queue.SimpleQueue()
        for verdict in self.known:
            heard.put(verdict)
        self._watchers.append(heard)
        self.watched += 1
        if self.hang_up_when_told or self._closed:
            heard.put(None)
        while (each := heard.get()) is not None:
            yield each

    def Conclude(self, request: Any, context: Any) -> query.ConcludeResponse:
        self.concluded.append(request.run)
        return query.ConcludeResponse(verdicts=self.final)


Serve = Callable[[Path], FakeAgent]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A runtime directory and a shared-memory root of the test's own; no agent is configured."""
    monkeypatch.setenv("SCOUTD_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("SCOUTD_ROOT", str(tmp_path / "shm"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("SCOUTD_ADDRESS", raising=False)
    return tmp_path


@pytest.fixture
def serve(place: Path) -> Iterator[Serve]:
    """Starts a fake agent on a socket and leaves its endpoint file, as a ready agent does."""
    stops: list[Callable[[], None]] = []

    def start(socket: Path) -> FakeAgent:
        agent = FakeAgent()
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        query_pb2_grpc.add_QueryServicer_to_server(agent, server)  # type: ignore[no-untyped-call]
        query_pb2_grpc.add_ControlServicer_to_server(agent, server)  # type: ignore[no-untyped-call]
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        run = socket.stem.removeprefix("run-") if socket.stem.startswith("run-") else ""
        runtime.write_endpoint(runtime.Endpoint(socket, 7, 1, 2, "node-a", run))

        def stop() -> None:
            agent.close()
            server.stop(None).wait()

        stops.append(stop)
        return agent

    yield start
    for stop in stops:
        stop()


@pytest.fixture
def node_agent(serve: Serve) -> FakeAgent:
    return serve(runtime.node_socket())
