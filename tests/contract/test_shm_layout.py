"""The byte layout of a rank's shared-memory file: golden bytes, round trips, torn copies.

The golden values are the contract between a shim and an agent of different releases: whoever has to change
one of them raises ``LAYOUT_VERSION``.
"""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoutd.proto import shm
from tests.contract.shm_examples import EXAMPLES, SECTIONS, records

GOLDEN = json.loads(Path(__file__).with_name("shm_golden.json").read_text())
each_section = pytest.mark.parametrize("name", list(SECTIONS))


class File:
    """Memory as a shim has it; ``data`` is what an agent reads."""

    def __init__(self) -> None:
        self.memory = bytearray(shm.FILE_SIZE)
        self.view = memoryview(self.memory)
        self.words = self.view.cast("Q")

    def write(self, section: shm.Section[Any], slot: int, sequence: int, record: Any) -> None:
        shm.write(self.view, self.words, section, slot, sequence, record)

    def slot(self, section: shm.Section[Any], slot: int) -> bytes:
        """All copies of one slot, as a reader gets them with one ``pread``."""
        at = section.offset + slot * section.copies * section.copy_bytes
        return bytes(self.memory[at : at + section.copies * section.copy_bytes])

    def copy_range(self, section: shm.Section[Any], slot: int, sequence: int) -> range:
        """The bytes that publishing ``sequence`` touches at most."""
        at = section.position(slot, sequence)
        return range(at, at + section.copy_bytes)


def other(record: Any) -> Any:
    """A record that differs from ``record`` in its first number or text."""
    first = record[0]
    return record._replace(**{record._fields[0]: first + 1 if isinstance(first, int) else first + "!"})


def test_prefix() -> None:
    assert shm.prefix().hex() == GOLDEN["prefix"]
    assert GOLDEN["version"] == shm.LAYOUT_VERSION
    assert GOLDEN["file_size"] == shm.FILE_SIZE
    shm.check_prefix(shm.prefix())


@each_section
def test_place_of_every_section(name: str) -> None:
    section = SECTIONS[name]
    place = [section.offset, section.slots, section.copies, section.copy_bytes]
    assert place == GOLDEN["sections"][name]["place"]
    assert section.codec.struct.format == GOLDEN["sections"][name]["format"]


@each_section
def test_golden_bytes(name: str) -> None:
    packed = SECTIONS[name].codec.pack(EXAMPLES[name]).rstrip(b"\0").hex()
    assert packed == GOLDEN["sections"][name]["payload"]


def test_every_section_has_an_example_and_they_do_not_overlap() -> None:
    assert set(EXAMPLES) == set(SECTIONS) == set(GOLDEN["sections"])
    ends = [shm.PREFIX.size, *(section.end for section in shm.SECTIONS)]
    assert [section.offset for section in shm.SECTIONS] == ends[:-1]
    assert ends[-1] == shm.FILE_SIZE
    assert all(section.offset % 64 == 0 and section.copy_bytes % 64 == 0 for section in shm.SECTIONS)


@each_section
def test_examples_use_every_field(name: str) -> None:
    """A field at its zero would hide a swapped or shortened format."""
    empty = [field for field, value in EXAMPLES[name]._asdict().items() if value in ("", 0)]
    assert empty in ([], ["destroyed"])


def test_the_table_in_the_docstring_is_true() -> None:
    rows = [line.split() for line in (shm.__doc__ or "").splitlines()]
    table = {row[0]: row[1:4] for row in rows if len(row) > 4 and (row[0] in SECTIONS or row[0] == "PREFIX")}
    told = {name: [_product(slots), int(copies), int(size)] for name, (slots, copies, size) in table.items()}
    true = {s.name: [s.slots, s.copies, s.copy_bytes] for s in shm.SECTIONS}
    assert told == {"PREFIX": [1, 1, shm.PREFIX.size], **true}


def _product(text: str) -> int:
    product = 1
    for factor in text.split("x"):
        product *= int(factor)
    return product


@each_section
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    section = SECTIONS[name]
    record = data.draw(records(section))
    slot = data.draw(st.integers(0, section.slots - 1))
    sequence = data.draw(st.integers(1, 2**64 - 1))
    file = File()
    file.write(section, slot, sequence, record)
    assert shm.read(bytes(file.memory), 0, section, slot) == record


@each_section
def test_a_slot_never_written_is_none_and_neighbours_stay_none(name: str) -> None:
    section, file = SECTIONS[name], File()
    assert shm.read(bytes(file.memory), 0, section, 0) is None
    file.write(section, section.slots - 1, 1, EXAMPLES[name])
    touched = {at for at, byte in enumerate(file.memory) if byte}
    assert touched <= set(file.copy_range(section, section.slots - 1, 1))


@each_section
def test_the_newest_copy_is_read(name: str) -> None:
    section, file, record = SECTIONS[name], File(), EXAMPLES[name]
    for sequence in range(1, 6):
        record = other(record)
        file.write(section, 0, sequence, record)
        assert shm.read(bytes(file.memory), 0, section, 0) == record


@each_section
def test_a_flipped_bit_is_never_believed(name: str) -> None:
    """Whatever byte of the newest copy is damaged: the older record or none, never something else.

    The checksum starts from the lower half of the sequence. The sequence itself is one aligned store, so
    its upper half cannot be torn apart from the lower one; damaged alone, it leaves the record as it was.
    """
    section, file = SECTIONS[name], File()
    older, newest = EXAMPLES[name], other(EXAMPLES[name])
    if section.copies > 1:
        file.write(section, 0, 1, older)
    file.write(section, 0, 2, newest)
    honest = {older, None} if section.copies > 1 else {None}
    slot = file.slot(section, 0)
    at = section.position(0, 2) - section.offset
    for byte in range(16 + len(section.codec.pack(newest))):
        for bit in (0, 7):
            torn = bytearray(slot)
            torn[at + byte] ^= 1 << bit
            seen = shm.read(bytes(torn), section.offset, section, 0)
            assert seen in (honest | {newest} if 4 <= byte < 8 else honest), f"byte {byte}, bit {bit}"


@each_section
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_partial_write_is_never_believed(name: str, data: st.DataObject) -> None:
    """A reader in the middle of a write sees any mixture of old and new 8-byte words."""
    section, file = SECTIONS[name], File()
    first, second, third = (data.draw(records(section)) for _ in range(3))
    file.write(section, 0, 1, first)
    file.write(section, 0, 2, second)
    before = file.slot(section, 0)
    file.write(section, 0, 3, third)
    after = file.slot(section, 0)
    at = section.position(0, 3) - section.offset
    words = range(at, at + section.copy_bytes, 8)
    is_new = data.draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
    mixture = bytearray(before)
    for where, new in zip(words, is_new, strict=True):
        if new:
            mixture[where : where + 8] = after[where : where + 8]
    allowed = [first, second, third] if section.copies > 1 else [second, third, None]
    assert shm.read(bytes(mixture), section.offset, section, 0) in allowed


def test_a_reused_slot_does_not_revive_an_old_payload() -> None:
    """The checksum covers the sequence: an old payload under a new sequence is torn, not new."""
    section, file = SECTIONS["PROGRESS"], File()
    file.write(section, 0, 2, EXAMPLES["PROGRESS"])
    file.words[section.position(0, 2) >> 3] = 4
    assert shm.read(bytes(file.memory), 0, section, 0) is None


def test_a_valid_checksum_of_a_short_payload_is_not_a_record() -> None:
    section, file = SECTIONS["COUNTERS"], File()
    at = section.position(0, 2)
    payload = b"short"
    file.view[at : at + 8] = shm.SEQUENCE.pack(2)
    sealed = shm.HEAD.pack(zlib.crc32(payload, 2), len(payload)) + payload
    file.view[at + 8 : at + 8 + len(sealed)] = sealed
    assert shm.read(bytes(file.memory), 0, section, 0) is None


def test_random_bytes_are_not_records() -> None:
    noise = random.Random(7).randbytes(shm.FILE_SIZE)
    for section in SECTIONS.values():
        for slot in range(min(section.slots, 64)):
            assert shm.read(noise, 0, section, slot) is None


def test_text_is_cut_at_a_character() -> None:
    file, section = File(), SECTIONS["TOPOLOGY"]
    file.write(section, 0, 1, shm.Topology("é" * 4064))
    assert shm.read(bytes(file.memory), 0, section, 0) == shm.Topology("é" * 2032)


def test_more_runs_than_fit_are_cut() -> None:
    file, section = File(), SECTIONS["GROUPS"]
    runs = tuple((i, 1, 1) for i in range(shm.MAX_RUNS + 3))
    file.write(section, 5, 1, EXAMPLES["GROUPS"]._replace(runs=runs))
    found = shm.read(bytes(file.memory), 0, section, 5)
    assert found is not None
    assert found.runs == runs[: shm.MAX_RUNS]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "truncated"),
        (shm.prefix()[:63], "truncated"),
        (b"\x7fELF" + bytes(60), "not a scoutd file"),
        (shm.PREFIX.pack(shm.MAGIC, shm.LAYOUT_VERSION + 1, 64, shm.FILE_SIZE), "layout version"),
        (shm.PREFIX.pack(shm.MAGIC, shm.LAYOUT_VERSION, 64, 4096), "file size"),
    ],
)
def test_foreign_files_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(shm.LayoutError, match=words):
        shm.check_prefix(data)


@each_section
def test_a_slot_outside_of_the_data_is_an_error(name: str) -> None:
    section = SECTIONS[name]
    for slot, data in ((section.slots, bytes(section.end)), (0, bytes(section.offset + 8))):
        with pytest.raises(shm.LayoutError):
            shm.read(data, 0, section, slot)
