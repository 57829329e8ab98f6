"""One example of every kind of record, with every field used, and strategies that make others."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from scoutd.proto import replay, shm

U64 = 0xFEDC_BA98_7654_3210

EXAMPLES: dict[str, Any] = {
    "HEADER": shm.Header(
        pid=4242,
        start_ticks=987654,
        attached_ns=1_000_000_007,
        generation=3,
        uid=1000,
        rank=2,
        world_size=4,
        local_rank=-1,
        local_world_size=4,
        job="train-7f3a",
        run="c0ffee",
        launcher_id="none",
        node="node-17.example",
        device="cuda:2",
        backend="cpu:gloo,cuda:nccl",
        python="3.11.7",
        torch="2.13.0+cpu",
    ),
    "HEARTBEAT": shm.Heartbeat(5_000, 17, 2, 123_456, 9_876, 1, "recorder: OSError"),
    "PROGRESS": shm.Progress(U64, 77_000, 12, 3_456, shm.Phase.FORWARD, 1, "blocks.1 (Block)"),
    "RECORDER": shm.RecorderState(11, 22, 33, 1),
    "PENDING": shm.Pending(22, U64, 7, 9_999, 4_096, "all_reduce", "float32", "[64, 64]"),
    "COUNTERS": shm.Counters(U64, 41, shm.UNKNOWN_U64, 123),
    "GROUPS": shm.Group(
        group=U64,
        created_ns=5,
        size=4096,
        my_index=2,
        destroyed=0,
        truncated=1,
        name="default_pg",
        description="mesh_dp × tp",
        backend="gloo",
        runs=((0, 2, 4), (9, 0, 1)),
    ),
    "CALLS": shm.Call(
        group=U64,
        sequence=41,
        entered_ns=100,
        left_ns=200,
        fingerprint=0x1234_5678_9ABC_DEF0,
        numel=1024,
        thread=4243,
        state=shm.CallState.FAILED,
        waiting=1,
        kind=shm.CallKind.P2P_RECV,
        peer=-1,
        tag=-7,
        operation="recv",
        dtype="bfloat16",
        argument="root=3",
        shape="[8, 128]",
        sends=(256, 768, 0),
        receives=(1, 2, shm.UNKNOWN_U32),
    ),
    "HISTORY": shm.History(U64, 41, 0x1234_5678_9ABC_DEF0),
    "NOTES": shm.Note(
        55,
        4242,
        shm.NoteSource.THREAD,
        "ValueError",
        "bad batch 17",
        "loader.py:8 in next",
        "train.py:3 in main",
    ),
    "TOPOLOGY": shm.Topology('{"coordinates": {"d": 2}, "mesh": null, "wrapper": "DDP"}'),
    "COMMAND": shm.Command(99, 123_456_789, 250_000_000, "[fd00::1]:7641"),
    "DISCOVERY": shm.Discovery("10.0.0.1:7641,node-2:7641", "0f" * 32),
    "REPLAY": replay.ReplayState(50, 3, 1, 900, 18, 77_000_000_000, 81_000_000, 4),
    "RECIPES": replay.Recipe(
        recipe=U64,
        group=0x0123_4567_89AB_CDEF,
        replays=18,
        cost_ns=81_000_000,
        peers=8,
        kind=replay.RecipeKind.HEAD,
        mode=replay.RecipeMode.BROADCAST,
        state=replay.RecipeState.DISABLED,
        name="layers.3 (Block)",
        reason="the module changes its input in place",
    ),
    "REPLAYS": replay.Replay(
        key=(1 << 63) | 4,
        recipe=U64,
        group=0x0123_4567_89AB_CDEF,
        step=900,
        at_ns=123_456_789,
        scheme=2,
        signed=0b01_1111,
        differing=0b00_0100,
        nonfinite=0b00_1000,
        input=11,
        parameter=12,
        output=13,
        input_gradient=14,
        parameter_gradient=15,
        optimizer=16,
        module_ns=1_500_000,
        gather_ns=shm.UNKNOWN_U64,
    ),
    "REQUEST": replay.Request(4, U64, 99_000_000_000, 3),
}

SECTIONS: dict[str, shm.Section[Any]] = {section.name: section for section in shm.SECTIONS}


def _number(code: str) -> st.SearchStrategy[int]:
    bits = {"Q": 64, "I": 32, "i": 32, "H": 16}[code]
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if code == "i" else (0, 2**bits - 1)
    return st.integers(low, high)


def _text(size: int) -> st.SearchStrategy[str]:
    """Text that fits; NUL is padding and cannot be part of it."""
    letters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    return st.text(letters, max_size=size).filter(lambda text: len(text.encode()) <= size)


def _values(layout: str) -> list[st.SearchStrategy[Any]]:
    found: list[st.SearchStrategy[Any]] = []
    digits = ""
    for char in layout.lstrip("<"):
        if char.isdigit():
            digits += char
            continue
        if char == "s":
            found.append(_text(min(int(digits), 96)))
        elif char != "x":
            found += [_number(char)] * int(digits or "1")
        digits = ""
    return found


def records(section: shm.Section[Any]) -> st.SearchStrategy[Any]:
    """Any record that the section can hold."""
    values = _values(section.codec.struct.format)
    if section.name == "GROUPS":
        run = st.tuples(*[_number("I")] * 3)
        values[-1] = st.lists(run, max_size=shm.MAX_RUNS).map(tuple)
    if section.name == "CALLS":
        values += [st.lists(_number("I"), max_size=shm.MAX_SPLITS).map(tuple)] * 2
    return st.tuples(*values).map(lambda fields: section.codec.make(*fields))
