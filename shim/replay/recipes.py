"""A recipe: a piece of the trainer's work that can be done again, and what is known of it so far.

It is LEARNING until one real call of its module was seen (and, where the call has arguments that cannot be
invented, until rank 0's have arrived), then READY, and DISABLED for good once it was refused or has failed.
``index`` is its place in the rotation and equal on all peers; ``recipe`` is its identity, a hash of what is
replayed and how, so that ranks which replay something else under the same name are not compared.
"""

from __future__ import annotations

import hashlib
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from scoutd.proto import replay, shm
from scoutd.proto.replay import RecipeKind, RecipeMode, RecipeState
from scoutd.shim.groups import group_id
from scoutd.shim.replay.call import Call, halved

NOT_CALLED = "no call of it in training was seen yet"
NO_TEMPLATE = "waits for the arguments of its group's first rank"
NO_BROADCAST = "waits for a broadcast of its group's first rank"
BROADCAST = "broadcast of "
"""Before the module, in the name of a recipe that replays real input."""


@dataclass(frozen=True)
class Peers:
    """The ranks that have the same parameters. One rank alone has nobody to compare with."""

    ranks: tuple[int, ...]

    @property
    def group(self) -> int:
        return group_id("", self.ranks)

    @property
    def leader(self) -> int:
        return min(self.ranks)


@dataclass
class Recipe:
    """``subject``: the module or optimizer, held weakly. ``half``: the call that is made is the halved
    one."""

    index: int
    kind: RecipeKind
    name: str
    path: str
    subject: weakref.ref[Any]
    indices_below: int = 0
    peers: Peers | None = None
    state: RecipeState = RecipeState.LEARNING
    reason: str = NOT_CALLED
    learnt: Call | None = None
    call: Call | None = None
    half: bool = False
    rehearsed: bool = False
    form: str = ""
    """Structure and shapes of its output, once it was rehearsed."""
    settled: bool = False
    """Its peers are known, and which of its call may be used."""
    replays: int = 0
    cost_ns: int = 0
    running: frozenset[str] = field(default_factory=frozenset)
    """Buffers that the module's forward writes to: peers need not agree on them."""
    broadcast: bool = False
    """Replays what the group's first rank has captured; ``index`` is that of the seeded recipe."""
    shard: bool = False
    """Of an optimizer: what is stepped is the rank's own shard, which only its replicas have."""
    captured: int | None = None
    """On that rank: the signature of the input when it was captured."""

    @property
    def module(self) -> torch.nn.Module | None:
        """The module, None where it is gone or the recipe is the optimizer's."""
        found = self.subject()
        return found if isinstance(found, torch.nn.Module) else None

    @property
    def recipe(self) -> int:
        """64 bits, never 0; equal on all peers that replay the same. A broadcast brings its call along, which
        is no part of its identity."""
        form = self.call.form if self.call is not None else ""
        text = f"{int(self.kind)}|{self.name}|{'broadcast' if self.broadcast else form}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1

    @property
    def mode(self) -> RecipeMode:
        if self.broadcast:
            return RecipeMode.BROADCAST
        return RecipeMode.TEMPLATE if self.call is not None and self.call.needs else RecipeMode.SEEDED

    def learn(self, call: Call) -> None:
        """The call is known; it can be made unless it needs content that is not there."""
        self.learnt = call
        self.use(call)

    def use(self, call: Call) -> None:
        """This call is replayed from now on, halved if that turns out to work."""
        half = halved(call)
        self.half = half is not None
        self.call = half or call
        self.rehearsed = False
        complete = call.needs <= set(call.fixed)
        self.state = RecipeState.READY if complete else RecipeState.LEARNING
        self.reason = "" if complete else NO_TEMPLATE

    def give(self, call: Call, captured: int | None, seeded: Recipe) -> None:
        """This call, which was broadcast, is replayed next; what ``seeded`` has found out holds here, too."""
        self.call, self.captured = call, captured
        self.running, self.rehearsed = self.running | seeded.running, self.rehearsed or seeded.rehearsed
        self.state, self.reason = RecipeState.READY, ""

    def unhalve(self) -> bool:
        """The call is made in full from now on; whether it was halved before."""
        was, self.half = self.half, False
        if was:
            self.call = self.learnt
        return was

    def disable(self, reason: str) -> None:
        self.state = RecipeState.DISABLED
        self.reason = reason

    def record(self) -> replay.Recipe:
        """What RECIPES says of it."""
        peers = self.peers.ranks if self.peers is not None else ()
        return replay.Recipe(
            recipe=self.recipe,
            group=self.peers.group if self.peers is not None else 0,
            replays=self.replays,
            cost_ns=self.cost_ns,
            peers=len(peers) if len(peers) > 1 else 0,
            kind=int(self.kind),
            mode=int(self.mode),
            state=int(self.state),
            name=BROADCAST + self.name if self.broadcast else self.name,
            reason=self.reason,
        )

    @property
    def slot(self) -> int:
        """Those of broadcasts lie at the end."""
        return (-1 - self.index if self.broadcast else self.index) % shm.RECIPES.slots


def broadcast_of(seeded: Recipe) -> Recipe:
    """The recipe that replays broadcasts to this one's module."""
    return Recipe(
        index=seeded.index,
        kind=seeded.kind,
        name=seeded.name,
        path=seeded.path,
        subject=seeded.subject,
        peers=seeded.peers,
        reason=NO_BROADCAST,
        settled=True,
        broadcast=True,
    )
