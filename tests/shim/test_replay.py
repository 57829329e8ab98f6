"""Training with a replay of everything after every step is bit for bit training without scoutd.

Four ranks train every case of ``replayed.py`` twice, plain and replayed, and compare what came out; what they
replayed is read from shared memory, as the agent does. Reference: issue 5, design §6.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from scoutd.proto import replay, shm
from scoutd.proto.replay import Part, RecipeKind, RecipeMode, RecipeState

HERE = Path(__file__).parent
WORLD = 4
CASES = (
    "ddp",
    "ddp-accumulation",
    "ddp-amp",
    "ddp-checkpoint",
    "ddp-reentrant",
    "ddp-sgd",
    "fsdp2",
    "fsdp2-mixed",
    "hsdp",
)
BROADCAST = ("ddp-amp", "ddp-reentrant", "fsdp2-mixed", "hsdp")
UNCHANGED = ("losses", "parameters", "buffers", "gradients", "optimizer", "rng", "hooks", "objects", "tables")

Results = list[dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What each rank wrote."""
    folder = tmp_path_factory.mktemp("replayed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name in ("PYTHONPATH", "SCOUTD_REPLAY_EVERY", "SCOUTD_REPLAY_VARIANTS", "SCOUTD_FAULTS"):
        environment.pop(name, None)
    command = [sys.executable, str(HERE / "replayed.py"), str(folder), ",".join(CASES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORLD)]


def recipes(result: dict[str, Any]) -> list[replay.Recipe]:
    return [replay.Recipe(*each) for each in result["replayed"]["said"]["recipes"]]


def replays(result: dict[str, Any]) -> list[replay.Replay]:
    return [replay.Replay(*each) for each in result["replayed"]["said"]["replays"]]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES)
def test_training_is_bit_for_bit_the_same(results: Results, case: str) -> None:
    for rank in range(WORLD):
        plain, replayed = results[rank][case]["plain"], results[rank][case]["replayed"]
        for name in UNCHANGED:
            assert replayed[name] == plain[name], (rank, name)
        assert plain["hooks"]["pre"] > 0
        assert plain["hooks"]["step"] > 0


@pytest.mark.parametrize("case", CASES)
def test_everything_was_replayed_and_nothing_refused(results: Results, case: str) -> None:
    for rank in range(WORLD):
        assert results[rank][case]["replayed"]["said"]["errors"] == {}
        found = recipes(results[rank][case])
        kinds = [each.kind for each in found]
        assert [kinds.count(kind) for kind in RecipeKind] == [1, 3, 1, 1 + (case == "hsdp")]
        assert {(each.name, each.state, each.reason, each.peers) for each in found} == {
            (each.name, RecipeState.READY, "", WORLD // 2 if "-shard" in each.name else WORLD)
            for each in found
        }
        least = 3 if rank == 0 else 2  # the others wait for its template, and all for parameters to be whole
        assert min(each.replays for each in found) >= least
        assert len(replays(results[rank][case])) == sum(each.replays for each in found)


@pytest.mark.parametrize("case", CASES)
def test_replays_are_equal_on_all_ranks_and_with_themselves(results: Results, case: str) -> None:
    rounds: dict[Any, list[tuple[int, ...]]] = defaultdict(list)
    for rank in range(WORLD):
        for each in replays(results[rank][case]):
            assert each.differing == 0
            assert each.nonfinite == 0
            assert each.module_ns > 0
            assert each.gather_ns == shm.UNKNOWN_U64
            rounds[each.key, each.recipe, each.group, each.scheme].append((each.signed, *each[9:15]))
    shards = {key: values for key, values in rounds.items() if len(values) == WORLD // 2}
    assert len({key[1] for key, values in rounds.items() if len(values) == WORLD}) == 6
    assert case != "hsdp" or len({key[2] for key in shards}) == 2  # a group for each shard
    for values in rounds.values():
        assert len(set(values)) == 1


def test_each_part_that_a_recipe_has_is_signed(results: Results) -> None:
    found = recipes(results[0]["ddp"])
    signed = {each.recipe: each.signed for each in replays(results[0]["ddp"])}
    gradients = 1 << Part.PARAMETER_GRADIENT
    forward = 1 << Part.INPUT | 1 << Part.PARAMETER | 1 << Part.OUTPUT
    expected = {
        RecipeKind.EMBEDDING: forward | gradients,
        RecipeKind.BLOCK: forward | gradients | 1 << Part.INPUT_GRADIENT,
        RecipeKind.HEAD: forward | gradients | 1 << Part.INPUT_GRADIENT,
        RecipeKind.OPTIMIZER: 1 << Part.INPUT | 1 << Part.PARAMETER | 1 << Part.OPTIMIZER,
    }
    assert {each.name: signed[each.recipe] for each in found} == {
        each.name: expected[RecipeKind(each.kind)] for each in found
    }


def test_a_rank_that_replays_alone_waits_for_nobody(results: Results) -> None:
    for rank in range(WORLD):
        plain, replayed = results[rank]["alone"]["plain"], results[rank]["alone"]["replayed"]
        assert replayed["collectives"] == plain["collectives"] > 0
        assert {name: replayed[name] for name in UNCHANGED} == {name: plain[name] for name in UNCHANGED}
        assert bool(replays(results[rank]["alone"])) == (rank == 0)
    assert {each.replays for each in recipes(results[0]["alone"])} == {3, 4}


@pytest.mark.parametrize("case", BROADCAST)
def test_with_broadcasts_training_is_the_same_and_all_ranks_replay_alike(results: Results, case: str) -> None:
    rounds: dict[Any, list[tuple[int, ...]]] = defaultdict(list)
    for rank in range(WORLD):
        found = results[rank]["broadcast"][case]
        plain, replayed = found["plain"], found["replayed"]
        assert {name: replayed[name] for name in UNCHANGED} == {name: plain[name] for name in UNCHANGED}
        assert replayed["collectives"] == plain["collectives"] > 0
        assert replayed["said"]["errors"] == {}
        told = {each.recipe: each for each in recipes(found) if each.mode == RecipeMode.BROADCAST}
        assert {(each.kind, each.state, each.reason) for each in told.values()} == {
            (kind, RecipeState.READY, "") for kind in RecipeKind if kind is not RecipeKind.OPTIMIZER
        }
        assert {each.replays for each in told.values()} == {1}
        for each in replays(found):
            if each.recipe in told:
                assert (each.differing, each.nonfinite) == (0, 0)
                rounds[each.key, each.recipe].append((each.signed, *each[9:15]))
    assert len(rounds) == 5
    assert all(len(values) == WORLD and len(set(values)) == 1 for values in rounds.values())
    assert len({values[0] for values in rounds.values()}) == len(rounds)


def test_a_request_is_carried_out_after_the_same_steps_on_all_ranks(results: Results) -> None:
    found = [
        [replay.Replay(*each) for each in results[rank]["requested"]["replays"]] for rank in range(WORLD)
    ]
    assert [len(each) for each in found] == [6] * WORLD
    assert {each.key for rank in found for each in rank} == {1 << 63 | 77}
    for rank in found[1:]:
        assert [(each.step, *each[9:15]) for each in rank] == [(each.step, *each[9:15]) for each in found[0]]


@pytest.mark.parametrize("case", CASES)
def test_replays_issue_no_collective(results: Results, case: str) -> None:
    for rank in range(WORLD):
        plain, replayed = results[rank][case]["plain"], results[rank][case]["replayed"]
        assert replayed["collectives"] == plain["collectives"] > 0
