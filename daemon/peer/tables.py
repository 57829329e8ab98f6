"""The tables of a report on the wire: texts, process groups, call signatures, each stored once.

Writing hands out an index per distinct value; reading resolves an index or raises ValueError. What is read
is bounded here, because it came from outside: numbers of entries, lengths, sizes of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeVar

from scoutd.agent.evidence import Call, CallKind, Fingerprint, GroupView, Members
from scoutd.proto.v1 import evidence_pb2 as pb

MAX_TEXT: Final = 1024
"""Longer than any text of shared memory (256 bytes) or path of a stack frame that helps anybody."""

MAX_MEMBERS: Final = 1 << 20
"""A group that claims more is not believed: whoever walks its members would never return."""

MAX_RUNS: Final = 1 << 12
CALL_KINDS: Final = {
    CallKind.COLLECTIVE: pb.CALL_COLLECTIVE,
    CallKind.P2P_SEND: pb.CALL_P2P_SEND,
    CallKind.P2P_RECV: pb.CALL_P2P_RECV,
    CallKind.STORE: pb.CALL_STORE,
}
KINDS_READ: Final = {wire: kind for kind, wire in CALL_KINDS.items()}

Value = TypeVar("Value")
Signature = tuple[CallKind, Fingerprint, str]


def at(table: Sequence[Value], index: int) -> Value:
    """Raises ValueError for an index outside of the table."""
    if index >= len(table):
        raise ValueError(f"index {index} of a table of {len(table)}")
    return table[index]


class Writer:
    """Fills the tables of one message."""

    def __init__(self, message: pb.NodeEvidence) -> None:
        self.message: Final = message
        self._known: Final[dict[Hashable, int]] = {}
        self._groups: Final[dict[int, int]] = {}
        self._counts: Final = {"text": 0, "group": 0, "signature": 0, "hash": 0, "recipe": 0, "replay": 0}

    def text(self, text: str) -> int:
        return self._index("text", text, lambda: self.message.texts.append(cut(text)))

    def group(self, view: GroupView) -> int:
        """The entry of the group as this member sees it."""
        key = (view.group, view.name, view.description, view.backend, view.members)
        index = self._index("group", key, lambda: self._add_group(view))
        self._groups.setdefault(view.group, index)
        return index

    def group_of(self, group: int) -> int | None:
        """The first entry of a group with this identity, None if no member described it."""
        return self._groups.get(group)

    def signature(self, call: Call) -> int:
        key = (call.kind, call.fingerprint, call.shape)
        return self._index("signature", key, lambda: self._add_signature(call))

    def hash(self, value: int) -> int:
        return self._index("hash", value, lambda: self.message.hashes.append(value))

    def entry(self, table: str, value: Hashable, add: Callable[[], object]) -> int:
        """The entry of ``value`` in this table, which ``add`` makes where there is none."""
        return self._index(table, value, add)

    def _index(self, table: str, value: Hashable, add: Callable[[], object]) -> int:
        key = (table, value)
        index = self._known.get(key)
        if index is None:
            add()
            index = self._known[key] = self._counts[table]
            self._counts[table] += 1
        return index

    def _add_group(self, view: GroupView) -> None:
        members = view.members
        self.message.groups.add(
            id=view.group,
            name=self.text(view.name),
            description=self.text(view.description),
            backend=self.text(view.backend),
            members_known=members is not None,
            runs=[number for run in members.runs for number in run] if members is not None else (),
        )

    def _add_signature(self, call: Call) -> None:
        print_ = call.fingerprint
        self.message.signatures.add(
            kind=CALL_KINDS[call.kind],
            operation=self.text(print_.operation),
            dtype=self.text(print_.dtype),
            numel=print_.numel,
            argument=None if print_.argument is None else self.text(print_.argument),
            shape=self.text(call.shape),
        )


class Reader:
    """The tables of a message that came in. Raises ValueError where they are not acceptable."""

    def __init__(self, message: pb.NodeEvidence) -> None:
        self.texts: Final = list(message.texts)
        if any(len(text) > MAX_TEXT for text in self.texts):
            raise ValueError("a text is too long")
        self.hashes: Final = list(message.hashes)
        self.groups: Final = [self._group(each) for each in message.groups]
        self.signatures: Final = [self._signature(each) for each in message.signatures]

    def text(self, index: int) -> str:
        return at(self.texts, index)

    def _group(self, message: pb.GroupIdentity) -> tuple[int, str, str, str, Members | None]:
        members = _members(message.runs) if message.members_known else None
        texts = (self.text(message.name), self.text(message.description), self.text(message.backend))
        return (message.id, *texts, members)

    def _signature(self, message: pb.CallSignature) -> Signature:
        if message.kind not in KINDS_READ:
            raise ValueError(f"unknown kind of call {message.kind}")
        print_ = Fingerprint(
            operation=self.text(message.operation),
            dtype=self.text(message.dtype),
            numel=message.numel if message.HasField("numel") else None,
            argument=self.text(message.argument) if message.HasField("argument") else None,
        )
        return KINDS_READ[message.kind], print_, self.text(message.shape)


def cut(text: str) -> str:
    """At most ``MAX_TEXT`` characters, without lone surrogates, which have no UTF-8 form."""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()


def _members(flat: Sequence[int]) -> Members:
    if len(flat) % 3 or len(flat) > 3 * MAX_RUNS:
        raise ValueError("members are not a bounded list of triples")
    members = Members(tuple(zip(flat[::3], flat[1::3], flat[2::3], strict=True)))
    if len(members) > MAX_MEMBERS:
        raise ValueError(f"a group of {len(members)} members")
    return members
