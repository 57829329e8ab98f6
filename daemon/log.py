"""The agent's log: structlog on stderr, one JSON object a line; short plain lines where a person reads.

Logged are changes of decisions, of the lifecycle and of degradation; never a round that went as the one
before. Records of the standard library's loggers (asyncio, grpc) take the same way out.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, TextIO

from scoutd.daemon.clock import rfc3339, wall_ns

# structlog.dev imports rich wherever it is installed, 4 MB for tracebacks that are never rendered here.
_rich = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]
try:
    import structlog
finally:
    del sys.modules["rich"]
    if _rich is not None:
        sys.modules["rich"] = _rich

Event = MutableMapping[str, Any]
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """Everything logged from now on goes to ``stream`` (stderr), from ``level`` on.

    Args:
        level: One of ``LEVELS``.
        form: "json", "text", or "auto": text if the stream is a terminal.
    """
    stream = stream or sys.stderr
    text = form == "text" or (form == "auto" and stream.isatty())
    renderer = _plain if text else structlog.processors.JSONRenderer(ensure_ascii=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _add_time,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    root.setLevel(max(LEVELS[level], logging.WARNING))


def logger() -> Any:
    return structlog.get_logger()


class _Forward(logging.Handler):
    """Hands a standard library record to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        logger().log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def _add_time(_logger: Any, _method: str, event: Event) -> Event:
    event["time"] = rfc3339(wall_ns())
    return event


def _plain(_logger: Any, _method: str, event: Event) -> str:
    """``12:00:00.250 warning what happened  key=value``."""
    time, level, what = event.pop("time", ""), event.pop("level", ""), event.pop("event", "")
    trace = event.pop("exception", None)
    rest = " ".join(f"{key}={value}" for key, value in event.items())
    line = f"{time[11:23]} {level:<7} {what}" + (f"  {rest}" if rest else "")
    return f"{line}\n{trace}" if trace else line
