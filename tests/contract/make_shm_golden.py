"""Writes shm_golden.json from the code. Run it only together with a new LAYOUT_VERSION, and read the diff."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scoutd.proto import shm
from tests.contract.shm_examples import EXAMPLES


def section(section: shm.Section[Any]) -> dict[str, object]:
    return {
        "place": [section.offset, section.slots, section.copies, section.copy_bytes],
        "format": section.codec.struct.format,
        "payload": section.codec.pack(EXAMPLES[section.name]).rstrip(b"\0").hex(),
    }


def golden() -> dict[str, object]:
    return {
        "version": shm.LAYOUT_VERSION,
        "file_size": shm.FILE_SIZE,
        "prefix": shm.prefix().hex(),
        "sections": {each.name: section(each) for each in shm.SECTIONS},
    }


if __name__ == "__main__":
    Path(__file__).with_name("shm_golden.json").write_text(json.dumps(golden(), indent=1) + "\n")
