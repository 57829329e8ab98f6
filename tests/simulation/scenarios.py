"""Scenarios whose transcripts are kept as golden files: ``python -m tests.simulation.scenarios --update``.

A transcript has one line per change of a verdict: when the first and the last agent said it, which agents,
what, and whom it names. Read its difference before accepting it: it is what an operator would see.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from pathlib import Path

from scoutd.agent.settings import Settings
from scoutd.agent.verdict import Verdict
from tests.property.program import Op
from tests.simulation.program import Grid
from tests.simulation.trainers import Fault, Training
from tests.simulation.world import World

GOLDEN = Path(__file__).parent / "golden"
STEP = [Op("compute"), Op("sync", "tp"), Op("compute"), Op("start", "dp"), Op("compute"), Op("await", "dp")]
OPS = [*STEP, Op("compute"), Op("sync", "world")]


def cluster(faults: list[Fault], resets: bool = True, nodes: int = 4) -> World:
    """Agents on ``nodes`` nodes with two ranks each, dp × tp; stall timeout 5 s."""
    world = World(7, Settings(stall_timeout_s=5.0))
    world.populate(nodes, 2, training(world, faults, resets, nodes))
    return world


def training(world: World, faults: list[Fault], resets: bool = True, nodes: int = 4) -> Training:
    grid = Grid({"dp": nodes, "tp": 2})
    return Training(world.timeline, random.Random(7), grid, OPS, faults, resets)


def hang(kind: str = "sleep", rank: int = 3) -> list[Fault]:
    return [Fault(kind, rank, 8, 4)]


def hang_on_four_nodes() -> World:
    world = cluster(hang())
    world.run(12)
    return world


def agent_killed_in_mid_round() -> World:
    """Node 2's agent dies while evidence is being exchanged; its ranks live."""
    world = cluster(hang())
    world.timeline.after(6.0, lambda: world.kill_agent("node-2"))
    world.run(14)
    return world


def agent_of_the_culprit_killed() -> World:
    world = cluster(hang())
    world.timeline.after(4.0, lambda: world.kill_agent("node-1"))
    world.run(14)
    return world


def agent_killed_and_restarted() -> World:
    """The restarted agent joins, learns the others' evidence and says the same."""
    world = cluster(hang())
    world.timeline.after(6.0, lambda: world.kill_agent("node-2"))
    world.timeline.after(9.0, lambda: world.agents["node-2"].start(forget=True))
    world.run(18)
    return world


def agent_stopped_and_returning() -> World:
    world = cluster(hang())
    world.timeline.after(4.0, lambda: world.stop_agent("node-2"))
    world.timeline.after(10.0, lambda: world.agents["node-2"].go_on())
    world.run(18)
    return world


def one_of_four_cut_while_training_goes_on() -> World:
    """Agents cannot speak, trainers can: nobody says anything."""
    world = cluster([])
    world.timeline.after(2.0, lambda: world.cut(["node-2"]))
    world.run(14)
    return world


def one_of_four_cut_and_its_rank_hangs() -> World:
    world = cluster(hang())
    world.timeline.after(1.0, lambda: world.cut(["node-1"]))
    world.run(14)
    return world


def two_of_four_cut_then_healed() -> World:
    """No side has a majority: nobody is named until the network is whole again."""
    world = cluster(hang())
    world.timeline.after(3.0, lambda: world.cut(["node-2", "node-3"]))
    world.timeline.after(13.0, world.network.heal)
    world.run(22)
    return world


def node_lost() -> World:
    """Power fails on node 1; connections to its ranks break."""
    world = cluster([])
    world.timeline.after(3.0, lambda: world.lose_node("node-1"))
    world.run(12)
    return world


def node_lost_without_a_reset() -> World:
    """Power fails on node 1, and the others' collectives just wait."""
    world = cluster([], resets=False)
    world.timeline.after(3.0, lambda: world.lose_node("node-1"))
    world.run(14)
    return world


def rank_killed() -> World:
    world = cluster(hang("kill"))
    world.run(8)
    return world


def restart_as_a_new_generation() -> World:
    world = cluster(hang())
    world.timeline.after(10.0, lambda: world.restart_job(training(world, hang("sleep", 5))))
    world.run(24)
    return world


def a_pause_then_a_hang() -> World:
    """Every report that was exchanged during the pause is stale when the hang begins."""
    world = cluster(hang("sleep", 3))
    world.pause(0.5, 3.5)
    world.run(18)
    return world


def clock_jumps_an_hour() -> World:
    """Node 2's monotonic clock leaps: its agent has stood still, and no rank has."""
    world = cluster(hang())
    world.timeline.after(3.0, lambda: world.jump("node-2", 3600))
    world.run(14)
    return world


SCENARIOS: tuple[Callable[[], World], ...] = (
    hang_on_four_nodes,
    agent_killed_in_mid_round,
    agent_of_the_culprit_killed,
    agent_killed_and_restarted,
    agent_stopped_and_returning,
    one_of_four_cut_while_training_goes_on,
    one_of_four_cut_and_its_rank_hangs,
    two_of_four_cut_then_healed,
    node_lost,
    node_lost_without_a_reset,
    rank_killed,
    restart_as_a_new_generation,
    a_pause_then_a_hang,
    clock_jumps_an_hour,
)


def transcript(scenario: Callable[[], World]) -> str:
    """What all agents said, one line per change of a verdict."""
    world = scenario()
    lines: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for said in world.said:
        lines.setdefault(_words(said.verdict), []).append((said.at_ns, said.node))
    title = f"{scenario.__name__.replace('_', ' ')}: {(scenario.__doc__ or '').strip()}".rstrip(": ")
    faults = ", ".join(
        f"{world.training.faults[r].kind if r in world.training.faults else 'lost'} of rank {r}"
        f" at {at / 1e9:.1f} s"
        for r, at in sorted(world.training.struck.items())
    )
    body = [f"{_when(moments)}  {_who(moments)}  {' '.join(words)}" for words, moments in lines.items()]
    return "\n".join([f"# {title}", f"# {faults or 'no fault'}", *body]) + "\n"


def _words(verdict: Verdict) -> tuple[str, ...]:
    named = ", ".join(f"{i.rank} on {i.node}" for i in verdict.implicated) or "nobody"
    because = f" ({verdict.suppressed_because})" if verdict.suppressed_because else ""
    return (
        verdict.id,
        f"{verdict.state.value:9}",
        verdict.cause.value,
        f"[{named}]",
        verdict.summary + because,
    )


def _when(moments: list[tuple[int, str]]) -> str:
    """To half a second: a finer clock would show nothing but the dice of the network."""
    first, last = (round(at / 5e8) / 2 for at in (moments[0][0], moments[-1][0]))
    return f"{first:5.1f}–{last:4.1f} s"


def _who(moments: list[tuple[int, str]]) -> str:
    return f"{','.join(sorted({node.removeprefix('node-') for _, node in moments})):8}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Transcripts of all scenarios.")
    parser.add_argument("--update", action="store_true", help="rewrite the golden files")
    options = parser.parse_args()
    for scenario in SCENARIOS:
        text = transcript(scenario)
        sys.stdout.write(text + "\n")
        if options.update:
            (GOLDEN / f"{scenario.__name__}.txt").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
