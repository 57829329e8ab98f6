"""Recipes and replays in a report on the wire: tables, because ranks that agree say the same.

Reading trusts nothing: numbers of entries and of values are bounded, an index outside its table is a
ValueError.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from scoutd.agent.evidence import RankReport
from scoutd.agent.replay import Part, RecipeKind, RecipeMode, RecipeState, RecipeView, ReplayResult
from scoutd.daemon.peer.tables import Reader, Writer, at
from scoutd.proto.v1 import evidence_pb2 as pb

MOST_REPLAYS: Final = 64
"""Recipes and replays of one rank; shared memory holds no more."""

KINDS: Final = {
    RecipeKind.EMBEDDING: pb.RECIPE_EMBEDDING,
    RecipeKind.BLOCK: pb.RECIPE_BLOCK,
    RecipeKind.HEAD: pb.RECIPE_HEAD,
    RecipeKind.OPTIMIZER: pb.RECIPE_OPTIMIZER,
}
MODES: Final = {
    RecipeMode.SEEDED: pb.RECIPE_SEEDED,
    RecipeMode.TEMPLATE: pb.RECIPE_TEMPLATE,
    RecipeMode.BROADCAST: pb.RECIPE_BROADCAST,
}
STATES: Final = {
    RecipeState.LEARNING: pb.RECIPE_LEARNING,
    RecipeState.READY: pb.RECIPE_READY,
    RecipeState.DISABLED: pb.RECIPE_DISABLED,
}
KINDS_READ: Final = {wire: kind for kind, wire in KINDS.items()}
MODES_READ: Final = {wire: mode for mode, wire in MODES.items()}
STATES_READ: Final = {wire: state for state, wire in STATES.items()}

Signature = tuple[int, int, int, int, int, tuple[int | None, ...], int, int]
"""Recipe, group, key, scheme, step, signatures, differing, nonfinite."""


def write(message: pb.RankEvidence, rank: RankReport, writer: Writer) -> None:
    """The rank's recipes and replays are in its message and in the tables."""
    whole = writer.message
    for view in rank.recipes[:MOST_REPLAYS]:
        key = (view.recipe, view.group, view.peers, view.kind, view.mode, view.state, view.name, view.reason)
        message.recipes.append(writer.entry("recipe", key, partial(_add_recipe, whole, view, writer)))
    for result in rank.replays[:MOST_REPLAYS]:
        message.replays.add(
            signature=writer.entry("replay", _signature(result), partial(_add_replay, whole, result)),
            module_ns=result.module_ns,
            gather_ns=result.gather_ns,
            age_ns=result.age_ns,
        )


def _signature(r: ReplayResult) -> Signature:
    return r.recipe, r.group, r.key, r.scheme, r.step, r.signatures, r.differing, r.nonfinite


def _add_recipe(whole: pb.NodeEvidence, view: RecipeView, writer: Writer) -> None:
    whole.recipes.add(
        recipe=view.recipe,
        group=view.group,
        peers=view.peers,
        kind=KINDS[view.kind],
        mode=MODES[view.mode],
        state=STATES[view.state],
        name=writer.text(view.name),
        reason=writer.text(view.reason),
    )


def _add_replay(whole: pb.NodeEvidence, r: ReplayResult) -> None:
    whole.replays.add(
        recipe=r.recipe,
        group=r.group,
        key=r.key,
        scheme=r.scheme,
        step=r.step,
        signed=sum(1 << part for part in Part if r.signature(part) is not None),
        values=[value for value in r.signatures if value is not None],
        differing=r.differing,
        nonfinite=r.nonfinite,
    )


def _recipe(message: pb.RecipeIdentity, reader: Reader) -> RecipeView:
    known = message.kind in KINDS_READ and message.mode in MODES_READ and message.state in STATES_READ
    if not known:
        raise ValueError("a recipe of an unknown kind, mode or state")
    return RecipeView(
        recipe=message.recipe,
        group=message.group,
        peers=message.peers,
        kind=KINDS_READ[message.kind],
        mode=MODES_READ[message.mode],
        state=STATES_READ[message.state],
        name=reader.text(message.name),
        reason=reader.text(message.reason),
    )


def _read_signature(message: pb.ReplaySignature) -> Signature:
    parts = [part for part in Part if message.signed >> part & 1]
    if len(parts) != len(message.values) or message.signed >> len(Part):
        raise ValueError("a replay with other values than it has signed parts")
    values = dict(zip(parts, message.values, strict=True))
    told = tuple(values.get(part) for part in Part)
    m = message
    return m.recipe, m.group, m.key, m.scheme, m.step, told, m.differing, m.nonfinite


class Tables:
    """Both tables of a message that came in. Raises ValueError where they are not acceptable."""

    def __init__(self, message: pb.NodeEvidence, reader: Reader) -> None:
        self._recipes: Final = [_recipe(each, reader) for each in message.recipes]
        self._replays: Final = [_read_signature(each) for each in message.replays]

    def recipes(self, message: pb.RankEvidence) -> tuple[RecipeView, ...]:
        """Those of one rank. Raises as above."""
        return tuple(at(self._recipes, index) for index in message.recipes[:MOST_REPLAYS])

    def replays(self, message: pb.RankEvidence) -> tuple[ReplayResult, ...]:
        """Those of one rank. Raises as above."""
        return tuple(
            ReplayResult(
                *at(self._replays, each.signature),
                module_ns=each.module_ns,
                gather_ns=each.gather_ns if each.HasField("gather_ns") else None,
                age_ns=each.age_ns,
            )
            for each in message.replays[:MOST_REPLAYS]
        )
