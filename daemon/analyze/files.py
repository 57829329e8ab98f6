"""Which files of a directory are dumps, and of which rank and host each is.

torch writes <prefix><rank>; people add hosts, folders and endings: ``_dump_7``, ``nccl_trace_rank_3.json``,
``host-3_rank_5``, ``trace_5.gpu-07``. The numbers of a name are candidates, those after "rank" first, then
the last. A dump knows the groups that its rank is in: a candidate that is missing in one of them is passed
over.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scoutd.daemon.analyze import unpickle
from scoutd.daemon.analyze.dump import Dump, Unreadable, parse
from scoutd.daemon.errors import ConfigError

MAX_FILES: Final = 65_536
ENDINGS: Final = (".gz", ".json", ".pickle", ".pkl", ".bin", ".dump", ".trace", ".txt")
NOT_DUMPS: Final = (".log", ".md", ".err", ".out", ".py", ".yaml", ".yml", ".toml", ".csv")
MARKED: Final = re.compile(r"rank[_\-.]?(\d+)", re.IGNORECASE)
NUMBER: Final = re.compile(r"\d+")
HOST: Final = re.compile(r"^(?P<host>.*?)[_\-.]*(?:global)?[_\-.]*rank[_\-.]?\d+", re.IGNORECASE)
NO_HOST: Final = re.compile(
    r"^(?:nccl|gloo|fr|flight|recorder|trace|dump|debug|comm|lib|[_\-.\d])*$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file that was read. ``host`` is empty where its name tells none. ``dump`` is None and ``trouble``
    says why where it could not be read: its rank is known to have left something."""

    path: Path
    rank: int
    host: str
    dump: Dump | None
    trouble: str = ""


def read(path: Path) -> tuple[list[DumpFile], list[str]]:
    """The dumps at ``path``, a file or a directory with all below it, by rank; and what could not be used.

    Raises:
        ConfigError: there is nothing to read, or not one dump could be read.
    """
    paths = _paths(path)
    trouble: list[str] = []
    loaded: list[tuple[Path, Dump | None, str]] = []
    for each in paths:
        try:
            loaded.append((each, parse(_bytes(each)), ""))
        except (Unreadable, OSError, EOFError) as error:
            loaded.append((each, None, str(error) or type(error).__name__))
    files = _assign(loaded, trouble)
    trouble += [f"{f.path.name}: {f.trouble}" for f in files if f.dump is None]
    if not any(f.dump for f in files):
        why = f": {trouble[0]}" if trouble else ""
        raise ConfigError(f"{path}: no Flight Recorder dump that can be read{why}")
    return files, trouble


def candidates(name: str) -> list[int]:
    """The ranks that a file's name may mean, most likely first."""
    stem = _stem(name)
    numbers = [*MARKED.findall(stem)[::-1], *NUMBER.findall(stem)[::-1]]
    return list(dict.fromkeys(int(n) for n in numbers if len(n) < 8))


def host_of(name: str, folder: str = "") -> str:
    """The host in a file's name, or the folder it lies in; empty where neither tells."""
    found = HOST.match(_stem(name))
    host = found["host"].strip("_-.") if found else ""
    return folder if not host or NO_HOST.match(host) else host


def _stem(name: str) -> str:
    while name.lower().endswith(ENDINGS):
        name = name[: name.rindex(".")]
    return name


def _paths(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.is_file() and _may_be_dump(p))
        else:
            found = [path] if path.stat() else []
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if not found:
        raise ConfigError(f"{path}: no file with a rank in its name")
    if len(found) > MAX_FILES:
        raise ConfigError(f"{path}: {len(found)} files, at most {MAX_FILES} are read")
    return found


def _may_be_dump(path: Path) -> bool:
    hidden = path.name.startswith(".")
    return not hidden and not path.name.lower().endswith(NOT_DUMPS) and bool(NUMBER.search(_stem(path.name)))


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > unpickle.MAX_BYTES:
        raise Unreadable(f"larger than {unpickle.MAX_BYTES >> 20} MB")
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        with gzip.open(path) as stream:
            data = stream.read(unpickle.MAX_BYTES + 1)
        if len(data) > unpickle.MAX_BYTES:
            raise Unreadable(f"larger than {unpickle.MAX_BYTES >> 20} MB unpacked")
    return data


def _assign(loaded: Iterable[tuple[Path, Dump | None, str]], trouble: list[str]) -> list[DumpFile]:
    """One file per rank. Of two that claim a rank the newer one counts, as torch overwrites its own."""
    taken: dict[int, DumpFile] = {}
    files = list(loaded)
    folders = {path.parent for path, _, _ in files}
    for path, dump, why in files:
        found = [r for r in candidates(path.name) if _plausible(r, dump)]
        rank = found[0] if found else None
        if rank is None:
            trouble.append(f"{path.name}: {why or 'its name tells no rank of the groups that it is in'}")
            continue
        host = host_of(path.name, path.parent.name if len(folders) > 1 else "")
        new = DumpFile(path, rank, host, dump, why)
        old = taken.get(rank)
        if old is not None:
            trouble.append(f"{path.name} and {old.path.name} are both of rank {rank}; the newer one is used")
            new = _newer(old, new)
        taken[rank] = new
    return [taken[rank] for rank in sorted(taken)]


def _plausible(rank: int, dump: Dump | None) -> bool:
    """The rank is in every group of the dump that tells its members."""
    known = [g.ranks for g in dump.groups.values() if g.ranks is not None] if dump is not None else []
    return all(rank in ranks for ranks in known)


def _newer(one: DumpFile, other: DumpFile) -> DumpFile:
    if one.dump is None or other.dump is None:
        return one if other.dump is None else other
    last = [max((e.created_ns for e in f.dump.entries), default=0) if f.dump else 0 for f in (one, other)]
    return other if last[1] > last[0] else one
