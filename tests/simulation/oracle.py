"""The truth about a simulated run, and what the agents said of it. Knows nothing of graphs, rules or rounds.

*May be named*: a rank to which a fault happened; every rank of a node that lost its power; and, by
NODE_UNREACHABLE alone, the ranks of a node whose agent was out of reach, provided that nothing in reach
explains the stall. Anybody else is healthy, and naming a healthy rank once, anywhere, fails the run.

*Must be named*: ranks that died first; stopped ranks; hung ranks that others directly wait for; the odd one
of three or more at a mismatch; a lost node. Where faults of several kinds meet, one of them must be named.
"""

from __future__ import annotations

from dataclasses import dataclass

from scoutd.agent.verdict import Cause, State, Verdict
from tests.simulation.timeline import ns
from tests.simulation.trainers import DEATHS, HANGS
from tests.simulation.world import World


@dataclass(frozen=True)
class Wrong:
    node: str
    at_s: float
    rank: int
    verdict: Verdict


def wrong_names(world: World) -> list[Wrong]:
    """Every healthy rank that some agent implicated at some time."""
    return [
        Wrong(said.node, said.at_ns / 1e9, i.rank, said.verdict)
        for said in world.said
        if said.verdict.state in (State.CONFIRMED, State.RESOLVED)
        for i in said.verdict.implicated
        if not _may(world, said.verdict, i.rank, i.node)
    ]


def _may(world: World, verdict: Verdict, rank: int, node: str) -> bool:
    if verdict.generation == world.generation and rank in world.training.struck:
        return True
    if rank in world.ever_struck:
        return True
    nodes = set(node.split(" or "))
    if nodes <= world.lost_nodes:
        return True
    if verdict.cause is not Cause.NODE_UNREACHABLE or not nodes <= world.ever_away:
        return False
    struck = {_node_of(world, r) for r in world.training.struck}
    return bool(nodes & struck) or not struck - world.ever_away


def _node_of(world: World, rank: int) -> str:
    return next(a.node for a in world.agents.values() if rank in a.ranks)


def must_name(world: World) -> set[int]:
    """Ranks of which one must be named; empty if nobody needs to be."""
    training = world.training
    lost = {r for n in world.lost_nodes for r in world.agents[n].ranks}
    kinds = {r: training.faults[r].kind for r in training.struck if r in training.faults}
    dead = {r: at for r, at in training.struck.items() if kinds.get(r) in DEATHS and r not in lost}
    if dead:
        first = min(dead.values())
        return {r for r in kinds if training.struck[r] <= first} - lost
    if lost and training.broken:
        return set()  # the dead cannot vote on the collective that differs, and it stalls without them
    if lost and (_awaited(world) & lost or any(t.note for t in training.ranks)):
        return lost | set(kinds)
    stopped = {r for r, kind in kinds.items() if kind == "stop"}
    hung = {r for r, kind in kinds.items() if kind in HANGS}
    return stopped | (hung & _awaited(world)) | _odd(world)


def _awaited(world: World) -> set[int]:
    training = world.training
    living = [t for t in training.ranks if t.alive]
    return {r for t in living for place in t.open for r in training.lacks(place)}


def _odd(world: World) -> set[int]:
    training = world.training
    found = set()
    for place in training.broken:
        group = next(g for g in training.grid.groups if g.identity == place[0])
        if len(group.ranks) >= 3 and not training.lacks(place):
            found |= {r for r in group.ranks if place in training.ranks[r].odd}
    return found


def due_ns(world: World, verdict: Verdict) -> int:
    """When this verdict was due: the limit after the first of its ranks stood still, or the settling."""
    settings, training = world.settings, world.training
    moments = []
    for rank in (i.rank for i in verdict.implicated):
        fault = training.faults.get(rank)
        kind = fault.kind if fault is not None and rank in training.struck else "lost"
        if kind == "lost" and any(t.note for t in training.ranks):
            kind = "kill"
        at = training.struck.get(rank, training.ranks[rank].gone_ns or 0)
        limit = settings.settle_s if kind in DEATHS else settings.stall_timeout_s
        moments.append(at + ns(limit * (settings.busy_factor if kind == "busy" else 1)))
    return min(moments)


def words(verdict: Verdict) -> tuple[object, ...]:
    """What all agents must say alike."""
    return (
        verdict.id,
        verdict.cause.value,
        tuple((i.rank, i.node) for i in verdict.implicated),
        verdict.cleared,
        verdict.phase.value,
        verdict.operation,
        verdict.summary,
    )


def held(world: World, node: str) -> set[tuple[object, ...]]:
    """What this agent holds to be confirmed, in its last words."""
    verdicts = world.agents[node].party.verdicts
    return {words(v) for v in verdicts if v.state is State.CONFIRMED}
