from __future__ import annotations

import json
from pathlib import Path

import pytest

from scoutd.daemon.cli.app import run_app
from scoutd.daemon.cli.journal import Journal
from scoutd.proto.v1 import query_pb2 as query
from scoutd.proto.v1 import verdict_pb2 as pb

from .conftest import FakeAgent
from .verdicts import hang

Capture = pytest.CaptureFixture[str]


def job(ranks: int = 4) -> query.JobStatus:
    return query.JobStatus(
        job="run7-9f3a",
        generation=2,
        world_size=ranks,
        run="aaaa",
        suppressed=1,
        open=[hang(state=pb.OPEN)],
        ranks=[
            query.RankStatus(
                rank=r,
                pid=100 + r,
                process="STOPPED" if r == 1 else "RUNNING",
                step=12,
                phase=pb.COLLECTIVE,
                operation="all_reduce",
                silent_s=r,
                pending="all_reduce #7 of default_pg",
                node="node-a",
            )
            for r in range(ranks)
        ],
    )


@pytest.mark.parametrize("command", [["status"], ["verdicts"], ["topology"], ["explain", "0a"], ["watch"]])
def test_no_agent_is_one_clear_line_and_code_2(place: Path, capsys: Capture, command: list[str]) -> None:
    assert run_app(command) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("scoutd: no agent is running here")
    assert len(output.err.splitlines()) == 1


@pytest.mark.parametrize("columns", ["80", "120"])
def test_status_cuts_nothing(
    node_agent: FakeAgent, capsys: Capture, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    node_agent.status.jobs.append(job())
    node_agent.status.unobserved.add(rank=9, pid=77, reason="python -I ignores PYTHONPATH")
    node_agent.status.warnings.append("no permission for stacks")
    assert run_app(["status"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= int(columns)
    assert "\x1b" not in out
    words = " ".join(out.split())
    for part in (
        "agent 0.1.0 on node-a",
        "job run7-9f3a, generation 2, 4 of 4 ranks here, run aaaa",
        "1 suppressed alarm",
        "rank 9, pid 77 is not observed: python -I ignores PYTHONPATH",
        "degraded: no permission for stacks",
        "0a1b2c3d4e5f HANG · RANK_STALLED · rank 2 · OPEN",
    ):
        assert part in words
    assert "…" not in out


def test_status_counts_recipes_by_where_their_inputs_come_from(
    node_agent: FakeAgent, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    replay = query.ReplayStatus(every=50, variants=1)
    for mode in ("SEEDED", "BROADCAST", "SEEDED"):
        replay.recipes.add(name="blocks.0 (Block)", mode=mode, state="READY")
    node_agent.status.jobs.append(query.JobStatus(job="run7", replay=replay))
    assert run_app(["status"]) == 0
    assert "3 of 3 recipes ready (1 broadcast, 2 seeded)" in capsys.readouterr().out


def test_status_of_thousands_shows_the_most_silent(node_agent: FakeAgent, capsys: Capture) -> None:
    node_agent.status.jobs.append(job(1000))
    assert run_app(["status"]) == 0
    out = capsys.readouterr().out
    assert "running 1099" in out
    assert "running 100\n" not in out
    assert "… and 936 ranks that are less silent" in out


def member(index: int, state: str = "ALIVE") -> query.Member:
    return query.Member(
        node=f"node-{index}", address=f"10.0.0.{index}:7641", state=state, incarnation=3, heard_ago_s=0.2,
        me=index == 0,
    )  # fmt: skip


def test_status_shows_the_agents_of_a_job_on_several_nodes(node_agent: FakeAgent, capsys: Capture) -> None:
    shared = job()
    shared.members.extend([member(0), member(1, "UNREACHABLE")])
    node_agent.status.jobs.append(shared)
    assert run_app(["status"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.split()}
    assert "this one" in lines["node-0"]
    assert "10.0.0.1:7641" in lines["node-1"]
    assert "unreachable" in lines["node-1"]


def test_many_agents_are_one_line_that_names_the_lost_ones(node_agent: FakeAgent, capsys: Capture) -> None:
    shared = job()
    shared.members.extend(member(i, "UNREACHABLE" if i == 7 else "ALIVE") for i in range(100))
    node_agent.status.jobs.append(shared)
    assert run_app(["status"]) == 0
    assert "100 agents, 1 unreachable: node-7" in capsys.readouterr().out


def test_status_json_is_the_response(node_agent: FakeAgent, capsys: Capture) -> None:
    node_agent.status.jobs.append(job())
    assert run_app(["status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"][0]["ranks"][1]["process"] == "STOPPED"
    assert found["jobs"][0]["ranks"][3]["phase"] == "COLLECTIVE"
    assert found["stall_timeout_s"] == 30.0


def test_verdicts_hide_suppressed_ones_unless_asked(node_agent: FakeAgent, capsys: Capture) -> None:
    node_agent.known = [
        hang(),
        hang(id="5555", state=pb.SUPPRESSED, suppressed_because="checkpoint, limit 60 s"),
    ]
    assert run_app(["verdicts"]) == 0
    assert "5555" not in capsys.readouterr().out
    assert run_app(["verdicts", "--suppressed"]) == 0
    assert "checkpoint, limit 60 s" in " ".join(capsys.readouterr().out.split())


def test_verdicts_json_is_one_object(node_agent: FakeAgent, capsys: Capture) -> None:
    node_agent.known = [hang()]
    assert run_app(["verdicts", "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["verdicts"]] == ["0a1b2c3d4e5f"]


def test_explain_takes_the_beginning_of_an_id(node_agent: FakeAgent, capsys: Capture) -> None:
    node_agent.known = [hang(), hang(id="0aff")]
    assert run_app(["explain", "0a1"]) == 0
    assert "Stack of rank 2" in capsys.readouterr().out
    assert run_app(["explain", "0a"]) == 2
    assert "the beginning of several: 0a1b2c3d4e5f, 0aff" in capsys.readouterr().err
    assert run_app(["explain", "77"]) == 2
    assert capsys.readouterr().err == "scoutd: there is no verdict 77\n"


def test_a_file_of_verdicts_needs_no_agent(place: Path, capsys: Capture) -> None:
    path = place / "verdicts.jsonl"
    with path.open("w") as file:
        Journal(file).hear(hang())
    assert run_app(["explain", "0a", "--file", str(path)]) == 0
    assert "Stack of rank 2" in capsys.readouterr().out
    assert run_app(["verdicts", "--file", str(path)]) == 0
    assert "0a1b2c3d4e5f" in capsys.readouterr().out


def test_a_file_of_something_else_is_one_line(place: Path, capsys: Capture) -> None:
    path = place / "notes.txt"
    path.write_text("dear diary\n")
    assert run_app(["verdicts", "--file", str(path)]) == 2
    assert f"{path}: not a file of verdicts" in capsys.readouterr().err


def test_topology_shows_places_and_groups(node_agent: FakeAgent, capsys: Capture) -> None:
    place = query.RankPlace(rank=1, node="node-a", local_rank=1, device="cpu", coordinates={"d": 1})
    group = query.ProcessGroup(id="ab", name="0", description="default_pg", backend="gloo", ranks=range(4))
    node_agent.topology.jobs.add(job="run7", generation=1, world_size=4, ranks=[place], groups=[group])
    assert run_app(["topology"]) == 0
    out = capsys.readouterr().out
    assert "d=1" in out
    assert "ranks 0–3" in out


def test_topology_says_whose_ranks_it_does_not_know(node_agent: FakeAgent, capsys: Capture) -> None:
    place = query.RankPlace(rank=0, node="a", local_rank=0, device="cpu")
    node_agent.topology.jobs.add(job="run7", generation=1, world_size=4, ranks=[place], missing=["b", "c"])
    assert run_app(["topology"]) == 0
    shown = capsys.readouterr().out
    assert "4 ranks, 1 of them known" in shown
    assert "not told: the ranks of b, c" in shown


def test_topology_shows_meshes_peers_and_warnings(node_agent: FakeAgent, capsys: Capture) -> None:
    job = node_agent.topology.jobs.add(job="run7", generation=1, world_size=6, warnings=["mesh is too small"])
    job.meshes.add(names=["dp", "tp"], shape=[3, 2])
    job.peer_groups.add(kind="REPLICATED", ranks=[0, 2, 4])
    assert run_app(["topology"]) == 0
    out = capsys.readouterr().out
    assert "mesh dp=3 × tp=2" in out
    assert "replicated" in out
    assert "ranks 0, 2, 4" in out
    assert "warning: mesh is too small" in out


def test_watch_prints_each_change_once(node_agent: FakeAgent, capsys: Capture) -> None:
    node_agent.known = [hang(state=pb.OPEN), hang(), hang()]
    node_agent.hang_up_when_told = True
    assert run_app(["watch", "--json"]) == 0
    states = [json.loads(line)["state"] for line in capsys.readouterr().out.splitlines()]
    assert states == ["OPEN", "CONFIRMED"]
