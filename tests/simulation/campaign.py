"""Thousands of random clusters: ``python -m tests.simulation.campaign --seeds 1000``.

Prints recall, wrong names (must be none), how long after the stall timeout the verdict came, and whether all
agents said the same. Every failure prints its seed; ``--seed S --trace`` runs that one and shows what all
agents said. Exit code 1 if a healthy rank was named.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field

from scoutd.agent.verdict import State, Verdict
from tests.simulation import cases, oracle
from tests.simulation.agent import Said
from tests.simulation.timeline import ns
from tests.simulation.world import World

QUIET_S = 3.0
MOST_MORE_S = 20.0
"""What agents hold is compared when none has said anything for a while: who is cut off from others late in a
run is missed by each of them when it has tried in vain for long enough, one after the other."""


@dataclass
class Outcome:
    """``missed``: agents that named nobody of ``must``. ``latency_s``: per agent, from the moment when its
    verdict was due to the confirmation. ``agree``: all agents that were never away say the same in every
    word; ``same_names``: they name the same ranks for the same cause under the same id."""

    seed: int
    text: str
    wrong: list[oracle.Wrong]
    must: set[int]
    missed: list[str] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    agree: bool = True
    same_names: bool = True


def run(seed: int, most_nodes: int = 64) -> tuple[Outcome, World]:
    """The case of this seed has been played and judged."""
    case = cases.build(seed, most_nodes)
    world = case.world
    while world.timeline.now_s < case.horizon_s and not _settled(world, case):
        world.run(world.timeline.now_s + 0.5)
    while world.timeline.now_s < case.horizon_s + MOST_MORE_S and _speaks(world):
        world.run(world.timeline.now_s + 0.5)
    return judge(case), world


def _speaks(world: World) -> bool:
    """Somebody confirmed or closed something a moment ago: the others may be about to do the same."""
    return bool(world.said) and world.timeline.now_ns - world.said[-1].at_ns < ns(QUIET_S)


def _settled(world: World, case: cases.Case) -> bool:
    """Every agent confirmed something three seconds ago, and nothing more is to come."""
    if any(at + 6.5 > world.timeline.now_s for at, _, _ in case.troubles):
        return False
    if len(case.faults) != len(world.training.struck) or any(f.kind == "busy" for f in case.faults):
        return False
    last: dict[str, int] = {}
    for said in world.said:
        if said.verdict.state is State.CONFIRMED:
            last[said.node] = said.at_ns
    everybody = len(last) == len(world.agents)
    return everybody and all(world.timeline.now_ns - at > 3e9 for at in last.values())


def judge(case: cases.Case) -> Outcome:
    """Recall and agreement are asked of agents that were never away, and only of a majority."""
    world = case.world
    outcome = Outcome(case.seed, case.text, oracle.wrong_names(world), oracle.must_name(world))
    steady = [n for n in world.agents if n not in world.ever_away]
    if 2 * len(steady) <= len(world.agents):
        outcome.must = set()
        return outcome
    seen = [*steady, *world.lost_nodes]
    if not outcome.must <= {r for n in seen for r in world.agents[n].ranks}:
        outcome.must = set()
    for node in steady if outcome.must else []:
        first = next((s for s in world.said if s.node == node and _hits(s, outcome.must)), None)
        if first is None:
            outcome.missed.append(node)
        else:
            outcome.latency_s.append((first.at_ns - oracle.due_ns(world, first.verdict)) / 1e9)
    held = {n: [oracle.words(v) for v in standing(world, n) if v.implicated] for n in steady}
    outcome.agree = len({frozenset(words) for words in held.values()}) <= 1
    outcome.same_names = len({frozenset(w[:3] for w in words) for words in held.values()}) <= 1
    return outcome


def _hits(said: Said, must: set[int]) -> bool:
    return said.verdict.state is State.CONFIRMED and any(i.rank in must for i in said.verdict.implicated)


def standing(world: World, node: str) -> list[Verdict]:
    """The confirmed verdicts that are not resolved, in their last words."""
    return [v for v in world.agents[node].party.verdicts if v.state is State.CONFIRMED]


def _percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    last = len(ordered) - 1
    shares = {f"p{q}": ordered[min(last, len(ordered) * q // 100)] for q in (50, 90, 95, 99)}
    return {name: round(value, 2) for name, value in {**shares, "max": ordered[-1]}.items()}


def summarise(outcomes: list[Outcome]) -> dict[str, object]:
    due = [o for o in outcomes if o.must]
    found = [o for o in due if not o.missed]
    return {
        "seeds": len(outcomes),
        "wrong_names": sum(len(o.wrong) for o in outcomes),
        "wrong_seeds": [o.seed for o in outcomes if o.wrong],
        "must_name": len(due),
        "recall": round(len(found) / len(due), 4) if due else 1.0,
        "missed_seeds": [o.seed for o in due if o.missed],
        "agreement": round(sum(o.agree for o in outcomes) / len(outcomes), 4),
        "disagreed_seeds": [o.seed for o in outcomes if not o.agree],
        "same_names": round(sum(o.same_names for o in outcomes) / len(outcomes), 4),
        "other_names_seeds": [o.seed for o in outcomes if not o.same_names],
        "latency_s": _percentiles([x for o in outcomes for x in o.latency_s]),
    }


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def trace(outcome: Outcome, world: World) -> None:
    struck = {r: f"{at / 1e9:.2f}" for r, at in world.training.struck.items()}
    say(f"{outcome.text}\nstruck {struck}, must name {outcome.must}, away {world.ever_away}")
    for said in world.said:
        v = said.verdict
        named = [i.rank for i in v.implicated]
        what = f"{v.state.value:10} {v.cause.value:20} {v.id} {named} {v.summary}"
        say(f"{said.at_ns / 1e9:8.2f} {said.node:8} {what}")


def complain(outcome: Outcome) -> None:
    for what in outcome.wrong[:1]:
        said = f"rank {what.rank} named by {what.node} at {what.at_s:.2f}: {what.verdict.summary}"
        say(f"WRONG {said}\n  {outcome.text}")
    if outcome.missed:
        say(f"MISSED {sorted(outcome.must)} by {len(outcome.missed)} agents\n  {outcome.text}")
    if not outcome.agree:
        where = "in details" if outcome.same_names else "in names"
        say(f"DISAGREE {where}\n  {outcome.text}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random clusters in virtual time.")
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="play this one only")
    parser.add_argument("--most-nodes", type=int, default=64)
    parser.add_argument("--trace", action="store_true", help="show what all agents said")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(arguments)
    some = range(options.first, options.first + options.seeds)
    outcomes = []
    for seed in some if options.seed is None else [options.seed]:
        outcome, world = run(seed, options.most_nodes)
        outcomes.append(outcome)
        if options.trace:
            trace(outcome, world)
        complain(outcome)
    report = summarise(outcomes)
    text = "\n".join(f"{key:16} {value}" for key, value in report.items())
    say(json.dumps(report) if options.json else text)
    return 1 if report["wrong_names"] else 0


if __name__ == "__main__":
    sys.exit(main())
