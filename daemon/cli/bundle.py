"""``scoutd bundle``: everything that a verdict was decided on, as one file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from scoutd.daemon.cli.client import Client
from scoutd.daemon.errors import LocalError


def bundle(address: str | None, id_: str, output: Path | None) -> None:
    """The archive is written to ``output``, "-" for standard output, or scoutd-<id>.tar.gz here; its path is
    printed. It is readable by this user alone, because it holds stacks and host names.

    Raises:
        LocalError: the file cannot be written.
    """
    response = Client(address).bundle(id_)
    path = output or Path(f"scoutd-{response.id}.tar.gz")
    if str(path) == "-":
        sys.stdout.buffer.write(response.archive)
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(response.archive)
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error
    print(path)
