"""The read commands' way to an agent: which one, and calls with a deadline.

The address is ``--address``, else ``$SCOUTD_ADDRESS``, else the node agent of this host, else the one private
agent of a ``scoutd run`` that is alive. Several runs and no node agent: the user chooses, nothing is guessed.
Whatever goes wrong is a NoAgent whose text is one clear line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import grpc

from scoutd.daemon import runtime
from scoutd.daemon.errors import ScoutdError
from scoutd.proto.v1 import query_pb2 as query
from scoutd.proto.v1 import query_pb2_grpc
from scoutd.proto.v1 import verdict_pb2 as pb

DEADLINE_S: Final = 5.0
OPTIONS: Final = [("grpc.max_receive_message_length", 64 << 20), ("grpc.enable_http_proxy", 0)]


class NoAgent(ScoutdError):
    """No agent answers where one was looked for."""


def find(address: str | None) -> str:
    """The gRPC target to talk to.

    Raises:
        NoAgent: none is given and none is found, or several are.
    """
    if chosen := address or os.environ.get("SCOUTD_ADDRESS"):
        return chosen
    if runtime.answers(runtime.node_socket()):
        return f"unix:{runtime.node_socket()}"
    found = runtime.live_endpoints()
    if not found:
        raise NoAgent(
            "no agent is running here; start one with `scoutd agent` or `scoutd run`, or give --address"
        )
    if len(found) > 1:
        choices = "".join(
            f"\n  --address {each.target}  (run {each.run}, node {each.node})" for each in found
        )
        raise NoAgent(f"{len(found)} runs are watched here, choose one:{choices}")
    return found[0].target


class Client:
    """Calls to one agent. Raises NoAgent where it does not answer."""

    def __init__(self, address: str | None) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log is nothing for people
        self.target: Final = find(address)
        self._channel = grpc.insecure_channel(self.target, options=OPTIONS)
        self._stub: Any = query_pb2_grpc.QueryStub(self._channel)
        self._control: Any = query_pb2_grpc.ControlStub(self._channel)

    def status(self, job: str) -> query.GetStatusResponse:
        answer: query.GetStatusResponse = self._call("GetStatus", query.GetStatusRequest(job=job))
        return answer

    def verdicts(self, job: str = "", suppressed: bool = False, id_: str = "") -> query.ListVerdictsResponse:
        request = query.ListVerdictsRequest(job=job, suppressed=suppressed, id=id_)
        answer: query.ListVerdictsResponse = self._call("ListVerdicts", request)
        return answer

    def topology(self, job: str) -> query.GetTopologyResponse:
        answer: query.GetTopologyResponse = self._call("GetTopology", query.GetTopologyRequest(job=job))
        return answer

    def bundle(self, id_: str) -> query.GetBundleResponse:
        answer: query.GetBundleResponse = self._call("GetBundle", query.GetBundleRequest(id=id_))
        return answer

    def limits(self, job: str = "") -> query.GetLimitsResponse:
        answer: query.GetLimitsResponse = self._call("GetLimits", query.GetLimitsRequest(job=job))
        return answer

    def request_replay(self, request: query.RequestReplayRequest) -> query.RequestReplayResponse:
        """Answered through the agent's own Unix socket only."""
        answer: query.RequestReplayResponse = self._call("RequestReplay", request, self._control)
        return answer

    def watch(self, job: str) -> Iterator[pb.Verdict]:
        """Every verdict known and each change, until the agent ends."""
        try:
            yield from self._stub.WatchVerdicts(query.WatchVerdictsRequest(job=job))
        except grpc.RpcError as error:
            raise NoAgent(self._why(error)) from error

    def _call(self, name: str, request: object, stub: Any = None) -> Any:
        try:
            return getattr(stub or self._stub, name)(request, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            raise NoAgent(self._why(error)) from error

    def _why(self, error: grpc.RpcError) -> str:
        code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
        if code is grpc.StatusCode.UNAVAILABLE:
            return f"no agent answers at {self.target}"
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"the agent at {self.target} did not answer within {DEADLINE_S:g} s"
        details = error.details() if isinstance(error, grpc.Call) else str(error)
        return f"the agent at {self.target} refused: {details or code.name}"
