from __future__ import annotations

from pathlib import Path

import pytest

from scoutd.daemon import runtime
from scoutd.daemon.cli.client import Client, NoAgent, find

from .conftest import FakeAgent, Serve


def test_an_address_given_wins(node_agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOUTD_ADDRESS", "host:1")
    assert find("host:2") == "host:2"
    assert find(None) == "host:1"


def test_the_node_agent_comes_before_a_run(node_agent: FakeAgent, serve: Serve) -> None:
    serve(runtime.run_socket("aaaa"))
    assert find(None) == f"unix:{runtime.node_socket()}"


def test_the_only_run_is_found(serve: Serve) -> None:
    serve(runtime.run_socket("aaaa"))
    assert find(None) == f"unix:{runtime.run_socket('aaaa')}"


def test_of_several_runs_the_user_chooses(serve: Serve) -> None:
    for tag in ("aaaa", "bbbb"):
        serve(runtime.run_socket(tag))
    with pytest.raises(NoAgent, match="2 runs are watched here, choose one") as caught:
        find(None)
    assert f"--address unix:{runtime.run_socket('bbbb')}" in str(caught.value)


def test_a_stale_socket_is_no_agent(place: Path) -> None:
    runtime.write_endpoint(runtime.Endpoint(runtime.run_socket("aaaa"), 1, 1, 1, "n", "aaaa"))
    with pytest.raises(NoAgent, match="no agent is running here"):
        find(None)


def test_an_address_where_nobody_answers_is_one_line(place: Path) -> None:
    with pytest.raises(NoAgent, match=r"^no agent answers at unix:"):
        Client(f"unix:{place}/nobody.sock").status("")


def test_a_watch_ends_with_its_agent(node_agent: FakeAgent) -> None:
    from .verdicts import hang

    node_agent.say(hang())
    heard = Client(None).watch("")
    assert next(heard).id == "0a1b2c3d4e5f"
    node_agent.end_streams()
    assert list(heard) == []
