"""Reads the configuration's three sources and says exactly which key of which is wrong.

A value travels with its origin (``scoutd.toml: stall.timeout_s``, ``environment: SCOUTD_STALL_TIMEOUT``,
``flag --stall-timeout``), so every ConfigError can name the key, the source, the bad value and what would be
accepted. Unknown keys of the file are errors, with the nearest known name; unknown SCOUTD_ variables are not,
because the shim and the command line have variables of their own.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from scoutd.daemon.config import BY_PATH, SECTIONS, Config, Key
from scoutd.daemon.errors import ConfigError

MAX_FILE_BYTES: Final = 1 << 20
_toml: Final[Any] = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def load(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Config:
    """The configuration from all sources.

    Args:
        file: The TOML file; None for none.
        environ: The environment; None for an empty one.
        flags: Values by key path ("stall.timeout_s"); a None value means that the flag was not given.

    Raises:
        ConfigError: the file cannot be read, or any key or value is not acceptable.
    """
    values: dict[str, object] = {}
    if file is not None:
        values |= _from_file(file)
    values |= _from_environment(environ or {})
    values |= _from_flags(flags or {})
    sections = {
        section: cls(
            **{
                path.partition(".")[2]: value
                for path, value in values.items()
                if path.startswith(section + ".")
            }
        )
        for section, cls in SECTIONS.items()
    }
    return Config(**sections)


def _from_file(file: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for section, content in _parse(file).items():
        if section not in SECTIONS:
            raise ConfigError(f"{file}: unknown section [{section}]{_suggest(section, SECTIONS)}")
        if not isinstance(content, dict):
            raise ConfigError(f"{file}: {section} must be a section, [{section}], not a value")
        for name, value in content.items():
            path = f"{section}.{name}"
            if path not in BY_PATH:
                names = [key.name for key in BY_PATH.values() if key.section == section]
                raise ConfigError(f"{file}: unknown key {path}{_suggest(name, names)}")
            found[path] = _check(BY_PATH[path], value, f"{file}: {path}")
    return found


def _parse(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot read the configuration: {error.strerror}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"{file}: more than {MAX_FILE_BYTES} bytes, this is no configuration")
    try:
        document: dict[str, Any] = _toml.loads(raw.decode("utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error
    return document


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for path, key in BY_PATH.items():
        text = environ.get(key.env)
        if text is None or _is_service_link(key, text):
            continue
        found[path] = _check(key, _from_text(key, text), f"environment: {key.env}")
    return found


def _is_service_link(key: Key, text: str) -> bool:
    """Kubernetes sets ``<SERVICE>_PORT=tcp://…`` in every pod; "scoutd-agent" hits our name."""
    return key.name.endswith("port") and "://" in text


def _from_flags(flags: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for path, value in flags.items():
        if value is not None:
            key = BY_PATH[path]
            parsed = _from_text(key, value) if isinstance(value, str) else value
            found[path] = _check(key, parsed, f"flag {flag_name(key)}")
    return found


def flag_name(key: Key) -> str:
    """The flag of a key: ``--stall-timeout``, ``--http-port``; agent and observe keys have no prefix."""
    plain = key.bare_name.replace("_", "-")
    return f"--{plain}" if key.section in ("agent", "observe") else f"--{key.section}-{plain}"


def _from_text(key: Key, text: str) -> object:
    """The text as the key's kind, or the text itself where it is not one: ``_check`` refuses it then."""
    try:
        if key.kind == "int":
            return int(text)
        if key.kind == "float":
            return float(text)
    except ValueError:
        pass
    return text


def _check(key: Key, value: object, origin: str) -> object:
    if key.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value).__name__ != key.kind or not _in_range(key, value):
        raise ConfigError(f"{origin} = {value!r} is not accepted: {key.path} takes {key.accepted}")
    return value


def _in_range(key: Key, value: object) -> bool:
    """NaN compares false with everything, so it is refused with the rest."""
    if isinstance(value, int | float):
        return key.rule.low <= value <= key.rule.high
    return not key.rule.choices or value in key.rule.choices


def _suggest(name: str, known: Iterable[str]) -> str:
    """The nearest known name, else all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; known are: {', '.join(known)}"
