"""``scoutd replay``: the ranks replay now, and with ``--wait`` what came of it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Final

from scoutd.daemon.cli.client import Client
from scoutd.daemon.codec import to_json
from scoutd.proto.v1 import query_pb2 as query
from scoutd.proto.v1 import verdict_pb2 as pb

FAULT_CODE: Final = 3
LATE_CODE: Final = 1
POLL_S: Final = 0.5
JUDGED_S: Final = 1.0
"""The agent reads and judges results within a second of the last rank."""


@dataclass(frozen=True)
class Wish:
    """What was asked for; an empty ``recipe`` stands for all."""

    job: str
    recipe: str
    variants: int
    timeout_s: float
    wait: bool


def replay(address: str | None, wish: Wish, json: bool) -> int:
    """The exit code; what was told, and came of it, is printed.

    Raises:
        NoAgent: no agent answers, or it does not accept the request.
    """
    client = Client(address)
    request = query.RequestReplayRequest(
        job=wish.job, recipe=wish.recipe, variants=wish.variants, expires_s=wish.timeout_s
    )
    response = client.request_replay(request)
    if json:
        print(to_json(response))
    else:
        _tell(response)
    return _wait(client, response, wish, json) if wish.wait else 0


def _tell(response: query.RequestReplayResponse) -> None:
    print(f"request {response.request}: {len(response.ranks)} ranks replay {', '.join(response.recipes)}")
    if response.refused:
        refused = ", ".join(map(str, response.refused))
        print(f"shared memory of ranks {refused} may not be written by their agent", file=sys.stderr)
    if response.elsewhere:
        nodes = ", ".join(response.elsewhere)
        print(f"could not be told, their ranks will be missing: {nodes}", file=sys.stderr)


def _wait(client: Client, response: query.RequestReplayResponse, wish: Wish, json: bool) -> int:
    """Until every rank here has carried the request out, and the agent has judged it: with the results of all
    nodes, or without those that do not come."""
    deadline = time.monotonic() + wish.timeout_s
    carried_out = 0.0
    while time.monotonic() < deadline:
        job = next(iter(client.status(response.job).jobs), None)
        if job is None or job.ended:
            print("the job has ended", file=sys.stderr)
            return LATE_CODE
        if job.replay.request >= response.request:
            carried_out = carried_out or time.monotonic()
            if not job.replay.waiting and time.monotonic() - carried_out >= JUDGED_S:
                return _judged(client, response.job, json)
        time.sleep(POLL_S)
    what = "the results of other nodes have not come" if carried_out else "not all ranks have replayed"
    print(f"{what} within {wish.timeout_s:g} s", file=sys.stderr)
    return LATE_CODE


def _judged(client: Client, name: str, json: bool) -> int:
    """What is known of the job's arithmetic now."""
    found = [
        verdict
        for verdict in client.verdicts(name).verdicts
        if verdict.symptom == pb.SDC and verdict.state == pb.CONFIRMED
    ]
    if json:
        print(to_json(query.ListVerdictsResponse(verdicts=found)))
        return FAULT_CODE if found else 0
    for verdict in found:
        print(f"{verdict.id}  {verdict.summary}")
    job = next(iter(client.status(name).jobs), None)
    if job is not None:
        rounds = job.replay
        print(f"rounds: {rounds.agreed} agreed, {rounds.deviating} deviating, {rounds.undecided} undecided")
    return FAULT_CODE if found else 0
