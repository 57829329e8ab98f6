"""What agents say to each other, as values; ``daemon/codec`` turns them into ``scoutd.v1`` messages.

Every request has one reply. Reports travel as opaque bytes: an agent forwards what it has not read, and
decodes a report once, when its core wants it. Marks and blobs are named tuples: there are as many in one
message as there are nodes, and they are made and compared at the pace of C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from scoutd.agent.tally import Tally

LAST_BEAT: Final = 1 << 62
"""The beat of an agent whose part in the job is over. The largest there is, so a merge keeps it; only a new
incarnation comes after it."""


class Mark(NamedTuple):
    """How new somebody's knowledge of one node is. ``incarnation`` counts the agent's lifetimes,
    ``version`` its reports, ``beat`` its rounds: a beat that grows says that the node is alive and has
    published nothing newer than ``version``. ``held`` is the version of the report that the sender of
    this mark can hand over, 0 for none; it is no part of the knowledge."""

    node: str
    address: str
    incarnation: int
    version: int
    beat: int
    held: int = 0

    @property
    def left(self) -> bool:
        """The node has taken its leave: its last report is final, and no beat follows."""
        return self.beat >= LAST_BEAT


class Columns(NamedTuple):
    """Marks without names: one number per node in each column, in the order of the names of all nodes that
    the sender knows. ``roster`` is the digest of who that is (``roster.Roster``); to whoever knows others,
    columns say nothing. ``at``: the positions of the nodes, None where all are told."""

    roster: int
    version: tuple[int, ...]
    beat: tuple[int, ...]
    held: tuple[int, ...]
    at: tuple[int, ...] | None = None


class Blob(NamedTuple):
    """A report of ``mark.node`` at ``mark.version``, encoded by its owner."""

    mark: Mark
    data: bytes
    age_ns: int
    """Age of the report when it was sent; every hop adds the time that it kept it."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Are you there? ``marks``: the sender's own first, then a bounded piggyback of others.
    ``alarm_ns``: how long evidence should still be exchanged, because some core is suspicious; 0: no need.
    It only runs down on its way, so an alarm ends when its cause has. ``tallies``: news of replay rounds.
    ``roster``, ``known``: the digest of all nodes that the sender knows, and their number."""

    marks: tuple[Mark, ...]
    alarm_ns: int
    tallies: tuple[Tally, ...] = ()
    roster: int = 0
    known: int = 0


@dataclass(frozen=True, slots=True)
class ProbeReply:
    marks: tuple[Mark, ...]
    alarm_ns: int
    tallies: tuple[Tally, ...] = ()
    roster: int = 0
    known: int = 0


@dataclass(frozen=True, slots=True)
class Relay:
    """Please probe ``node`` for me: is it only I who cannot reach it?"""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class RelayReply:
    reached: bool
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """Push-pull, first half: everything I know, as columns if there are any, else as marks. ``alarm_ns`` as
    in a probe; 0: I want to know the others."""

    marks: tuple[Mark, ...]
    alarm_ns: int = 0
    tallies: tuple[Tally, ...] = ()
    columns: Columns | None = None


@dataclass(frozen=True, slots=True)
class SyncReply:
    """What you lack (``blobs``), and what I lack (``wanted``, by node); ``marks`` or ``columns``: what I know
    better. ``strange``: your columns say nothing to me; tell marks."""

    blobs: tuple[Blob, ...]
    wanted: tuple[str, ...]
    marks: tuple[Mark, ...]
    tallies: tuple[Tally, ...] = ()
    columns: Columns | None = None
    strange: bool = False


@dataclass(frozen=True, slots=True)
class Push:
    """Push-pull, second half: what you wanted."""

    blobs: tuple[Blob, ...]


@dataclass(frozen=True, slots=True)
class PushReply:
    taken: int


@dataclass(frozen=True, slots=True)
class Order:
    """Have your ranks replay. ``request`` is new and equal on all ranks of the job, ``recipe`` 0: all;
    ``expires_ns``: from now on. Not part of the exchange: it is carried out by who hears it."""

    request: int
    recipe: int
    variants: int
    expires_ns: int


@dataclass(frozen=True, slots=True)
class OrderReply:
    """The ranks that were told, and those whose shared memory may not be written."""

    ranks: tuple[int, ...]
    refused: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """What do you see of the job's parallel layout? Not part of the exchange, like an order."""


@dataclass(frozen=True, slots=True)
class LayoutReply:
    """``topology``: in the form in which it is shown to people, empty where there is nothing to tell."""

    topology: bytes


Request = Probe | Relay | Sync | Push | Order | Layout
Reply = ProbeReply | RelayReply | SyncReply | PushReply | OrderReply | LayoutReply


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to be sent to a peer; its reply or failure comes back to ``Exchange``."""

    node: str
    address: str
    request: Request
    timeout_ns: int
