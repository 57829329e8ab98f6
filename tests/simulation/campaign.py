"""Thousands of random clusters: ``python -m tests.simulation.campaign --seeds 1000``.

Prints recall, wrong names (must be none), how long after the stall timeout the verdict came, and whether all
agents said the same. Every failure prints its seed; ``--seed S --trace`` runs that one and shows what all
agents said. Exit code 1 if a healthy rank was named.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass, field

from scoutd.agent.verdict import State
from tests.simulation import cases, oracle
from tests.simulation.trainers import DEATHS
from tests.simulation.world import World


@dataclass
class Outcome:
    """``latency_s``: per agent, from the moment when the verdict was due to its confirmation."""

    seed: int
    text: str
    wrong: list[oracle.Wrong]
    must: set[int]
    named: dict[str, set[int]]
    latency_s: list[float] = field(default_factory=list)
    agree: bool = True
    missed: list[str] = field(default_factory=list)
    size: str = ""


def run(seed: int) -> tuple[Outcome, World]:
    case = cases.build(seed)
    world = case.world
    while world.timeline.now_s < case.horizon_s and not _settled(world, case):
        world.run(world.timeline.now_s + 0.5)
    return judge(case), world


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
    world = case.world
    must = oracle.must_name(world)
    steady = [n for n in world.agents if n not in world.ever_away]
    outcome = Outcome(case.seed, case.text, oracle.wrong_names(world), must, {})
    majority = 2 * len(steady) > len(world.agents)
    reach = {r for n in steady for r in world.agents[n].ranks} | {
        r for n in world.lost_nodes for r in world.agents[n].ranks
    }
    due = _due_s(world, case)
    for node in steady:
        verdicts = world.confirmed(node)
        outcome.named[node] = {i.rank for v in verdicts for i in v.implicated}
        if must and majority and must <= reach and not outcome.named[node] & must:
            outcome.missed.append(node)
        first = next((s for s in world.said if s.node == node and _hits(s, must)), None)
        if first is not None:
            outcome.latency_s.append(first.at_ns / 1e9 - due)
    if majority:
        held = {n: frozenset(oracle.words(v) for v in _standing(world, n)) for n in steady}
        outcome.agree = len(set(held.values())) <= 1
    return outcome


def _hits(said, must) -> bool:  # type: ignore[no-untyped-def]
    return said.verdict.state is State.CONFIRMED and any(i.rank in must for i in said.verdict.implicated)


def _standing(world: World, node: str):  # type: ignore[no-untyped-def]
    """The confirmed verdicts that are not resolved, as they were confirmed."""
    newest = {v.id: v.state for v in world.agents[node].party.verdicts}
    return [v for v in world.confirmed(node) if newest.get(v.id) is State.CONFIRMED]


def _due_s(world: World, case: cases.Case) -> float:
    """When a verdict is due: the stall timeout after the last movement, or the settling of a death."""
    struck = {r: at for r, at in world.training.struck.items()}
    kinds = {f.rank: f.kind for f in case.faults}
    at = min(struck.values(), default=0) / 1e9
    if any(kinds.get(r) in DEATHS for r in struck):
        return min(v for r, v in struck.items() if kinds.get(r) in DEATHS) / 1e9 + world.settings.settle_s
    return at + world.settings.stall_timeout_s


def _percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {f"p{q}": round(ordered[min(len(ordered) - 1, int(len(ordered) * q / 100))], 2) for q in (50, 90, 95, 99)} | {
        "max": round(ordered[-1], 2)
    }


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
        "latency_s": _percentiles([x for o in outcomes for x in o.latency_s]),
    }


def trace(world: World) -> None:
    for said in world.said:
        v = said.verdict
        print(
            f"{said.at_ns / 1e9:8.2f} {said.node:8} {v.state.value:10} {v.cause.value:20} {v.id} "
            f"{[i.rank for i in v.implicated]} {v.summary}"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="show what all agents said")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(arguments)
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    outcomes = []
    for seed in seeds:
        outcome, world = run(seed)
        outcomes.append(outcome)
        if options.trace:
            print(outcome.text, "struck", {r: f"{at / 1e9:.2f}" for r, at in world.training.struck.items()})
            print("must", outcome.must, "away", world.ever_away, "missed by", outcome.missed)
            trace(world)
        _complain(outcome)
    report = summarise(outcomes)
    if options.json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            print(f"{key:16} {value}")
    return 1 if report["wrong_names"] else 0


def _complain(outcome: Outcome) -> None:
    for what in outcome.wrong[:1]:
        print(f"WRONG rank {what.rank} named by {what.node} at {what.at_s:.2f}: {what.verdict.summary}\n  {outcome.text}")
    if outcome.missed:
        print(f"MISSED {sorted(outcome.must)} by {len(outcome.missed)} of {len(outcome.named)} agents\n  {outcome.text}")
    if not outcome.agree:
        print(f"DISAGREE\n  {outcome.text}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
