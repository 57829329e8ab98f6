"""One Flight Recorder file as a value: what one rank's recorder held when it was written.

NCCL and Gloo write the same fields, as a pickle or as JSON, in versions 2.x; what a version lacks is None
here, and what is malformed is left out. Sequences of collectives and of transfers (P2P) are different
counters of a group. Status counters are keyed by a number of the process, not of the job: see ``membership``.
An entry is unfinished while it is not retired; of a coalesced collective there are several entries under one
sequence, of which the one that covers the whole stands for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from scoutd.daemon.analyze import unpickle

MAX_ENTRIES: Final = 1 << 20
DONE_STATES: Final = frozenset({"completed"})


class Unreadable(ValueError):
    """The file is no Flight Recorder dump, or only part of one; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded call. ``sequence`` counts the group's collectives (of a transfer: those before it),
    ``backend`` is "" where the name does not tell. ``sizes`` and ``out_sizes``: shapes of all tensors."""

    record: int
    status_key: str
    group: str
    description: str
    backend: str
    operation: str
    sequence: int
    p2p: bool
    op_id: int
    retired: bool
    started: bool
    created_ns: int
    timeout_ms: int
    sizes: tuple[tuple[int, ...], ...]
    out_sizes: tuple[tuple[int, ...], ...]
    dtype: str
    frames: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """``ranks`` is None where the file does not tell them."""

    name: str
    description: str
    ranks: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Counters:
    """``started`` is None unless the recorder times its collectives."""

    enqueued: int
    completed: int
    started: int | None


@dataclass(frozen=True, slots=True)
class Dump:
    """``groups`` by name, ``counters`` by status key, ``entries`` oldest first."""

    version: str
    groups: Mapping[str, GroupConfig]
    counters: Mapping[str, Counters]
    entries: tuple[Entry, ...]

    @property
    def whole(self) -> bool:
        """The recorder's ring has not wrapped: every call since the start is here."""
        return bool(self.entries) and self.entries[0].record == 0


def parse(data: bytes) -> Dump:
    """The dump in these bytes.

    Raises:
        Unreadable: there is none.
    """
    if not data.strip():
        raise Unreadable("the file is empty")
    trace = _value(data)
    if not isinstance(trace, dict) or not {"entries", "pg_status", "pg_config"} & trace.keys():
        raise Unreadable("it is no Flight Recorder dump")
    version = str(trace.get("version", ""))[:16]
    if version and not version.startswith("2"):
        raise Unreadable(f"version {version} of the recorder is not known here, only 2.x")
    raw = trace.get("entries")
    entries = [e for each in (raw if isinstance(raw, list) else [])[:MAX_ENTRIES] if (e := _entry(each))]
    return Dump(
        version,
        _groups(trace.get("pg_config")),
        _counters(trace.get("pg_status")),
        tuple(sorted(entries, key=lambda e: e.record)),
    )


def _value(data: bytes) -> Any:
    """JSON begins with a brace, a pickle with its protocol."""
    if data.lstrip()[:1] == b"{":
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"damaged or truncated JSON: {error}") from error
    try:
        return unpickle.load(data)
    except ValueError as error:
        raise Unreadable(str(error)) from error


def _groups(raw: Any) -> dict[str, GroupConfig]:
    found = {}
    for key, config in raw.items() if isinstance(raw, dict) else ():
        if isinstance(config, dict):
            name = str(config.get("name") or key)[:256]
            if not name:
                continue
            found[name] = GroupConfig(name, str(config.get("desc", "")), _ranks(config.get("ranks")))
    return found


def _ranks(raw: Any) -> tuple[int, ...] | None:
    """A list, or its text "[0, 1]"; None for anything else and for an empty one."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            return None
    if not isinstance(raw, (list, tuple)) or not raw or not all(_is_count(r) for r in raw):
        return None
    return tuple(raw) if len(set(raw)) == len(raw) else None


def _counters(raw: Any) -> dict[str, Counters]:
    found = {}
    for key, status in raw.items() if isinstance(raw, dict) else ():
        if not isinstance(status, dict):
            continue
        names = ("last_enqueued_collective", "last_completed_collective", "last_started_collective")
        enqueued, completed, started = (_number(status.get(name), -1) for name in names)
        if enqueued >= 0:
            found[str(key)] = Counters(enqueued, max(completed, 0), started if started > 0 else None)
    return found


def _entry(raw: Any) -> Entry | None:
    """None for an entry without a group or a sequence."""
    if not isinstance(raw, dict):
        return None
    group, description = _names(raw)
    sequence = _number(raw.get("collective_seq_id", raw.get("seq_id")), -1)
    if not group or sequence < 0:
        return None
    state = str(raw.get("state", ""))[:16]
    backend, _, operation = str(raw.get("profiling_name", ""))[:128].rpartition(":")
    return Entry(
        record=_number(raw.get("record_id", raw.get("id")), 0),
        status_key=str(raw.get("pg_id", "")),
        group=group,
        description=description,
        backend=backend,
        operation=operation,
        sequence=sequence,
        p2p=bool(raw.get("is_p2p")) or operation.startswith(("send ", "recv ")),
        op_id=_number(raw.get("op_id"), 0),
        retired=bool(raw.get("retired")) or state in DONE_STATES,
        started=state == "started" or _number(raw.get("time_discovered_started_ns"), 0) > 0,
        created_ns=_number(raw.get("time_created_ns"), 0),
        timeout_ms=_number(raw.get("timeout_ms"), 0),
        sizes=_shapes(raw.get("input_sizes")),
        out_sizes=_shapes(raw.get("output_sizes")),
        dtype=_first(raw.get("input_dtypes")),
        frames=_frames(raw.get("frames")),
    )


def _names(raw: Mapping[str, Any]) -> tuple[str, str]:
    """(name, description) of the group; older versions tell one of them or only a number."""
    pair = raw.get("process_group")
    if isinstance(pair, (list, tuple)) and pair:
        return str(pair[0])[:256], str(pair[1])[:256] if len(pair) > 1 else ""
    return str(raw.get("pg_name") or raw.get("pg_id") or "")[:256], ""


def _shapes(raw: Any) -> tuple[tuple[int, ...], ...]:
    shapes = raw if isinstance(raw, (list, tuple)) else ()
    return tuple(
        tuple(n for n in shape if _is_count(n)) for shape in shapes[:4096] if isinstance(shape, (list, tuple))
    )


def _first(raw: Any) -> str:
    return str(raw[0])[:32] if isinstance(raw, (list, tuple)) and raw else ""


def _frames(raw: Any) -> tuple[tuple[str, str, int], ...]:
    """(function, file, line), innermost first."""
    frames: Iterable[Any] = raw if isinstance(raw, (list, tuple)) else ()
    return tuple(
        (str(f.get("name", ""))[:128], str(f.get("filename", ""))[:512], _number(f.get("line"), 0))
        for f in list(frames)[:64]
        if isinstance(f, dict)
    )


def _number(value: Any, otherwise: int) -> int:
    if isinstance(value, str) and value.lstrip("-").isdigit() and len(value) < 20:
        value = int(value)
    return value if isinstance(value, int) and abs(value) < 1 << 63 else otherwise


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 48
