"""What the user is told about the agent of a run, beside its verdicts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from scoutd.daemon import runtime
from scoutd.daemon.cli.listen import Listener

from .conftest import FakeAgent, Serve
from .verdicts import hang


async def listen(socket: Path, said: list[str], heard: list[str]) -> None:
    """A run that ends as soon as the agent is known to be ready."""
    ready = asyncio.Event()

    def say(line: str) -> None:
        said.append(line)
        ready.set()

    listener = Listener(socket, "aaaa", lambda verdict: heard.append(verdict.id), say)
    listener.start()
    await asyncio.wait_for(ready.wait(), 20)
    await listener.conclude()
    await listener.close()


def say_unobserved(agent: FakeAgent) -> None:
    agent.status.unobserved.add(rank=3, pid=77, reason="no shim: python -I")
    agent.status.warnings.extend(["no permission for stacks", "no permission for stacks"])


def test_what_the_agent_of_the_run_cannot_see_is_said_once(serve: Serve) -> None:
    agent = serve(runtime.run_socket("aaaa"))
    say_unobserved(agent)
    said: list[str] = []
    asyncio.run(listen(runtime.run_socket("aaaa"), said, []))
    assert said == [
        "watching (node node-a, status: scoutd status, metrics: http://127.0.0.1:2/metrics)",
        "rank 3 (pid 77) is not observed: no shim: python -I",
        "no permission for stacks",
    ]


def test_a_node_agents_other_troubles_are_not_ours(node_agent: FakeAgent) -> None:
    say_unobserved(node_agent)
    said: list[str] = []
    asyncio.run(listen(runtime.node_socket(), said, []))
    assert len(said) == 1


def test_the_last_word_is_handed_on(node_agent: FakeAgent) -> None:
    node_agent.final = [hang()]
    heard: list[str] = []
    asyncio.run(listen(runtime.node_socket(), [], heard))
    assert heard == ["0a1b2c3d4e5f"]
    assert node_agent.concluded == ["aaaa"]


def test_an_agent_that_never_came_is_not_waited_for(place: Path) -> None:
    async def scenario() -> None:
        listener = Listener(runtime.run_socket("aaaa"), "aaaa", lambda verdict: None, print)
        listener.start()
        await asyncio.wait_for(listener.conclude(), 1.0)
        await listener.close()

    asyncio.run(scenario())
