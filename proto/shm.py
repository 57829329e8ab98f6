"""The shared-memory file of one rank: byte layout, record format, torn-read detection.

One file per rank lives at ``/dev/shm/scoutd/<uid>/<job>/<generation>/rank-<r>``. The shim writes it,
the agent reads it (with ``pread``, never through a mapping, so that a truncated file is an error and
not a signal). Every section is a table of *records*; this is the whole layout, little-endian:

========== ======= ====== ========== ===============================================================
section    slots   copies copy bytes one record says
========== ======= ====== ========== ===============================================================
PREFIX     1       1      64         magic, layout version, file size (plain bytes, written once)
HEADER     1       2      512        who wrote the file: process, job, generation, rank, device
HEARTBEAT  1       2      128        the publisher thread is alive; the shim's own errors and cost
PROGRESS   8       2      192        the progress coordinate of one writing thread
RECORDER   1       2      64         when the Flight Recorder was last polled and dumped
PENDING    16      2      192        one unfinished collective seen by the Flight Recorder
COUNTERS   128     2      64         per process group: enqueued and retired collectives
GROUPS     128     2      320        per process group: identity and membership
CALLS      64      2      384        one public collective, P2P or store call, pending or recent
HISTORY    128x16  1      64         per process group: fingerprint of one recent collective
NOTES      4       2      768        a death note: an exception that ended a thread or the process
TOPOLOGY   1       2      4096       parallel coordinates and mesh, as JSON text
COMMAND    1       2      128        written by the agent: who observes, when it last looked, its address
DISCOVERY  1       2      1088       how the job's agents find and recognise each other
REPLAY     1       2      128        how often replays run and what they have cost
RECIPES    64      2      384        one recipe: what is replayed, among whom, or why it is not
REPLAYS    64      2      192        the result of one replay: signatures and times
REQUEST    1       2      64         written by the agent: a replay that somebody asked for
========== ======= ====== ========== ===============================================================

How a record is sealed, so that a torn one is never believed, is said in ``scoutd.proto.records``. Slot ``k``
of PROGRESS belongs to one thread; slot ``k`` of COUNTERS, GROUPS and HISTORY belong to the same process
group; REPLAYS is a ring, replay ``n`` of a process lies in slot ``n % 64``. Collective ``n`` of the group in
slot ``k`` has its fingerprint in slot ``16 k + n % 16`` of HISTORY; the highest bit of a fingerprint
(RECORDED) says that the recorder told it, which knows less than a public call: the two kinds are not
comparable.

Times are nanoseconds of CLOCK_MONOTONIC, which all processes of one host share. Text is UTF-8 in
fixed fields, padded with NUL, cut at the field's end.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from scoutd.proto.records import HEAD as HEAD
from scoutd.proto.records import SEQUENCE as SEQUENCE
from scoutd.proto.records import Codec as Codec
from scoutd.proto.records import LayoutError as LayoutError
from scoutd.proto.records import Record
from scoutd.proto.records import Section as Section
from scoutd.proto.records import encode_text as encode_text
from scoutd.proto.records import read as read
from scoutd.proto.records import seal as seal
from scoutd.proto.records import write as write
from scoutd.proto.replay import Recipe, Replay, ReplayState, Request

MAGIC: Final = b"SCOUTSHM"
LAYOUT_VERSION: Final = 4
ROOT: Final = "/dev/shm/scoutd"
UNKNOWN_U64: Final = (1 << 64) - 1
"""A counter whose value the writer does not know."""

RECORDED: Final = 1 << 63

HISTORY_DEPTH: Final = 16
MAX_RUNS: Final = 12
MAX_SPLITS: Final = 16
"""Members of a group whose share of an all_to_all is stored; of larger groups the first."""
UNKNOWN_U32: Final = (1 << 32) - 1
PREFIX: Final = struct.Struct("<8sIIQ40x")
SPLIT_COUNTS: Final = struct.Struct("<HH")


class Phase(IntEnum):
    """What a rank is doing (design §3). NONE: nothing was published yet."""

    NONE = 0
    INIT = 1
    INPUT = 2
    FORWARD = 3
    BACKWARD = 4
    OPTIMIZER = 5
    COLLECTIVE = 6
    CHECKPOINT = 7
    COMPILE = 8
    EVAL = 9
    STORE = 10
    EXITING = 11
    BETWEEN = 12
    """Between two boundaries: the user's own code, outside every phase above."""


class CallState(IntEnum):
    """PENDING: entered and not left. DONE: returned or completed. FAILED: left by an exception."""

    FREE = 0
    PENDING = 1
    DONE = 2
    FAILED = 3


class CallKind(IntEnum):
    COLLECTIVE = 0
    P2P_SEND = 1
    P2P_RECV = 2
    STORE = 3


class NoteSource(IntEnum):
    """Who wrote the death note: the main thread's hook, a thread's hook, or a library's watchdog."""

    EXCEPTION = 0
    THREAD = 1
    WATCHDOG = 2


class Header(NamedTuple):
    """Identity of the writer. ``pid`` is in the writer's PID namespace; ``start_ticks`` is field 22 of
    /proc/pid/stat, so that a reused pid is recognised. ``local_rank`` is -1 where unknown."""

    pid: int
    start_ticks: int
    attached_ns: int
    generation: int
    uid: int
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    job: str
    run: str
    """The run tag of ``scoutd run`` (environment SCOUTD_RUN), empty elsewhere."""
    launcher_id: str
    node: str
    device: str
    backend: str
    python: str
    torch: str


class Heartbeat(NamedTuple):
    """``cost_ns``: time the shim has spent inside the trainer's calls since attach, sampled."""

    beat_ns: int
    beats: int
    errors: int
    cost_ns: int
    boundaries: int
    dropped: int
    """Publications that found no free slot."""
    disabled: str
    """Parts of the shim that were switched off after an error, comma-separated."""


class Progress(NamedTuple):
    """A progress coordinate, written before a boundary that may block. ``waiting``: the host is inside
    a call that returns only when other ranks arrive."""

    thread: int
    entered_ns: int
    step: int
    ordinal: int
    phase: int
    waiting: int
    operation: str


class RecorderState(NamedTuple):
    polled_ns: int
    dumped_ns: int
    pending: int
    """Unfinished collectives at the last dump, may exceed the slots of PENDING."""
    blind: int
    """1: no recorder on this backend, or TORCH_DISTRIBUTED_DEBUG=DETAIL hides everything."""


class Pending(NamedTuple):
    """One unfinished collective of the last dump; ``dump_ns`` names the dump it belongs to."""

    dump_ns: int
    group: int
    sequence: int
    created_ns: int
    numel: int
    operation: str
    dtype: str
    shape: str


class Counters(NamedTuple):
    """``enqueued``: highest collective sequence this rank has entered or enqueued, exact at ``as_of_ns``.
    ``retired``: highest sequence known to be finished, or UNKNOWN_U64."""

    group: int
    enqueued: int
    retired: int
    as_of_ns: int


class Group(NamedTuple):
    """A process group. Members are the global ranks of ``runs``, triples (start, stride, count), in group
    order; ``truncated`` = 1 where they did not fit and membership is unknown beyond them."""

    group: int
    created_ns: int
    size: int
    my_index: int
    destroyed: int
    truncated: int
    name: str
    description: str
    backend: str
    runs: tuple[tuple[int, int, int], ...]


class Call(NamedTuple):
    """A public call, published before it is made. ``sequence`` is the collective sequence within the
    group (the Flight Recorder's ``collective_seq_id``); for P2P it counts calls to this peer with this
    tag; for STORE it counts store waits. ``shape`` has at most 8 dimensions. ``sends`` and ``receives`` are
    elements to and from each member of the group in an all_to_all (the first MAX_SPLITS members; UNKNOWN_U32
    where a number does not fit), empty elsewhere."""

    group: int
    sequence: int
    entered_ns: int
    left_ns: int
    fingerprint: int
    numel: int
    thread: int
    state: int
    waiting: int
    kind: int
    peer: int
    tag: int
    operation: str
    dtype: str
    argument: str
    shape: str
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()


class History(NamedTuple):
    group: int
    sequence: int
    fingerprint: int


class Note(NamedTuple):
    """A death note. ``location`` is the innermost frame, ``user_location`` the innermost one outside
    torch, site-packages and the standard library; both ``file:line in function``."""

    at_ns: int
    thread: int
    source: int
    kind: str
    message: str
    location: str
    user_location: str


class Topology(NamedTuple):
    text: str


class Command(NamedTuple):
    """``address``: host:port at which other nodes' agents reach the observer, empty while they cannot."""

    observer_pid: int
    observed_ns: int
    interval_ns: int
    address: str = ""


class Discovery(NamedTuple):
    """``seeds``: addresses of some of the job's agents, comma-separated, empty while none is known.
    ``key``: the job's key, 64 hexadecimal digits, empty while it is not known."""

    seeds: str
    key: str


class _GroupCodec(Codec[Group]):
    """GROUPS has a table inside: the runs of its members follow the fixed fields."""

    def pack(self, record: Group) -> bytes:
        flat = [number for run in record.runs[:MAX_RUNS] for number in run]
        head = super().pack(record._replace(runs=len(flat) // 3))  # type: ignore[arg-type]
        return head + struct.pack(f"<{len(flat)}I", *flat)

    def unpack(self, payload: bytes) -> Group:
        head = super().unpack(payload)
        count = min(int(head.runs), MAX_RUNS)  # type: ignore[call-overload]
        flat = struct.unpack_from(f"<{3 * count}I", payload, self.struct.size)
        return head._replace(runs=tuple(zip(flat[::3], flat[1::3], flat[2::3], strict=True)))


class _CallCodec(Codec[Call]):
    """CALLS of an all_to_all carry their splits behind the fixed fields: two counts, then the numbers."""

    def pack(self, record: Call) -> bytes:
        fields = self.struct.pack(*self._encoded(record))
        if not record.sends and not record.receives:
            return fields
        return fields + pack_splits(record.sends, record.receives)

    def unpack(self, payload: bytes) -> Call:
        head = super().unpack(payload)
        if len(payload) <= self.struct.size:
            return head
        sent, received = SPLIT_COUNTS.unpack_from(payload, self.struct.size)
        if sent > MAX_SPLITS or received > MAX_SPLITS:
            raise struct.error(f"{sent} and {received} splits")
        numbers = struct.unpack_from(f"<{sent + received}I", payload, self.struct.size + SPLIT_COUNTS.size)
        return head._replace(sends=numbers[:sent], receives=numbers[sent:])

    def _encoded(self, record: Call) -> list[object]:
        fields: list[object] = list(record[:-2])
        for i, size in self.texts:
            fields[i] = encode_text(str(fields[i]), size)
        return fields


def pack_splits(sends: tuple[int, ...], receives: tuple[int, ...]) -> bytes:
    """What follows the fixed fields of an all_to_all."""
    numbers = [min(n, UNKNOWN_U32) for n in (*sends[:MAX_SPLITS], *receives[:MAX_SPLITS])]
    counts = SPLIT_COUNTS.pack(min(len(sends), MAX_SPLITS), min(len(receives), MAX_SPLITS))
    return counts + struct.pack(f"<{len(numbers)}I", *numbers)


def _section(
    name: str, after: int, slots: int, copies: int, copy_bytes: int, codec: Codec[Record]
) -> Section[Record]:
    section = Section(name, after, slots, copies, copy_bytes, codec)
    tail = MAX_RUNS * 12 if isinstance(codec, _GroupCodec) else 0
    if isinstance(codec, _CallCodec):
        tail = SPLIT_COUNTS.size + 2 * MAX_SPLITS * 4
    if codec.struct.size + tail > section.payload_limit or copy_bytes % 64:
        raise LayoutError(f"section {name}: records of {codec.struct.size + tail} bytes do not fit")
    return section


HEADER = _section("HEADER", PREFIX.size, 1, 2, 512, Codec("QQQQIIIiI4x96s48s64s64s32s32s16s24s", Header))
HEARTBEAT = _section("HEARTBEAT", HEADER.end, 1, 2, 128, Codec("QQQQQQ64s", Heartbeat))
PROGRESS = _section("PROGRESS", HEARTBEAT.end, 8, 2, 192, Codec("QQQQHH96s", Progress))
RECORDER = _section("RECORDER", PROGRESS.end, 1, 2, 64, Codec("QQII", RecorderState))
PENDING = _section("PENDING", RECORDER.end, 16, 2, 192, Codec("QQQQQ48s16s48s", Pending))
COUNTERS = _section("COUNTERS", PENDING.end, 128, 2, 64, Codec("QQQQ", Counters))
GROUPS = _section("GROUPS", COUNTERS.end, 128, 2, 320, _GroupCodec("QQIIHH48s48s16sI", Group))
CALLS = _section("CALLS", GROUPS.end, 64, 2, 384, _CallCodec("QQQQQQQHHHxxii32s16s48s48s", Call))
HISTORY = _section("HISTORY", CALLS.end, 128 * HISTORY_DEPTH, 1, 64, Codec("QQQ", History))
NOTES = _section("NOTES", HISTORY.end, 4, 2, 768, Codec("QQH64s256s192s192s", Note))
TOPOLOGY = _section("TOPOLOGY", NOTES.end, 1, 2, 4096, Codec("4064s", Topology))
COMMAND = _section("COMMAND", TOPOLOGY.end, 1, 2, 128, Codec("QQQ64s", Command))
DISCOVERY = _section("DISCOVERY", COMMAND.end, 1, 2, 1088, Codec("960s64s", Discovery))
REPLAY = _section("REPLAY", DISCOVERY.end, 1, 2, 128, Codec("IIIIQQQQ", ReplayState))
RECIPES = _section("RECIPES", REPLAY.end, 64, 2, 384, Codec("QQQQIHHH6x96s192s", Recipe))
REPLAYS = _section("REPLAYS", RECIPES.end, 64, 2, 192, Codec("QQQQQHHHHQQQQQQQQ", Replay))
REQUEST = _section("REQUEST", REPLAYS.end, 1, 2, 64, Codec("QQQI", Request))

SECTIONS: Final = (
    HEADER,
    HEARTBEAT,
    PROGRESS,
    RECORDER,
    PENDING,
    COUNTERS,
    GROUPS,
    CALLS,
    HISTORY,
    NOTES,
    TOPOLOGY,
    COMMAND,
    DISCOVERY,
    REPLAY,
    RECIPES,
    REPLAYS,
    REQUEST,
)
FILE_SIZE: Final = REQUEST.end


def prefix() -> bytes:
    return PREFIX.pack(MAGIC, LAYOUT_VERSION, PREFIX.size, FILE_SIZE)


def check_prefix(data: bytes) -> None:
    """Raises LayoutError unless ``data`` begins a file of this layout version and size."""
    if len(data) < PREFIX.size:
        raise LayoutError(f"truncated: {len(data)} bytes")
    magic, version, _, size = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise LayoutError("not a scoutd file")
    if version != LAYOUT_VERSION:
        raise LayoutError(f"layout version {version}, this build reads {LAYOUT_VERSION}")
    if size != FILE_SIZE:
        raise LayoutError(f"file size {size}, expected {FILE_SIZE}")
