"""What a process tells while it works: a line each on standard error, as text or as JSON, written and read here alone.

Our own loggers tell from the level on that is wanted, INFO unless it is said, everybody else's from WARNING on. A
sentence never holds a credential or a cell value (see errors.py); other libraries make no such promise, which is why
they are kept quiet.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Any, NamedTuple

from wal2lake.config import MonitorConfig
from wal2lake.names import printable

_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)")
_FORMAT = "%(asctime)s %(levelname)s %(message)s"
_BEGIN = '{"time": "'  # of a line that is JSON, and ours


class Line(NamedTuple):
    """What was told; ``level`` is empty for a line that no logger wrote, and so is ``time``, when it was told."""

    level: str
    text: str
    time: str = ""

    @property
    def is_routine(self) -> bool:
        """Told in the course of things, so no reason for anything."""
        return self.level in ("DEBUG", "INFO")


class _OneLine(logging.Formatter):
    """A message is a line, whatever names stand in it; only a traceback has more."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


class _Json(logging.Formatter):
    """An object a line: ``time`` (ISO 8601, UTC), ``level``, ``role``, ``logger``, ``message``, the values of an event
    under their names in ``event``, and ``exception`` (a traceback)."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": _utc(record.created), "level": record.levelname, "role": self._role, "logger": record.name,
            "message": record.getMessage(),
        }  # fmt: skip
        event = getattr(record, "wal2lake", None)
        if event is not None:
            document["event"] = event
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


class _StandardError(logging.Handler):
    """Asks for sys.stderr each time: a live view on a terminal puts itself in its place meanwhile."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _write(self.format(record))
        except Exception:  # noqa: BLE001 - as every handler: telling of the work must not end it
            self.handleError(record)


def mute_logging() -> None:
    """For a process that shows what happens in another way."""
    logging.getLogger("wal2lake").addHandler(logging.NullHandler())


def configure_logging(settings: MonitorConfig | None = None, role: str = "") -> None:
    """Once a process, before its work begins; ``role``: which one it is, for lines that are JSON."""
    settings = settings or MonitorConfig()
    handler = _StandardError()
    handler.setFormatter(_Json(role) if settings.log_format == "json" else _OneLine(_FORMAT))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("wal2lake").setLevel(settings.log_level.upper())


def read_line(line: str) -> Line:
    """The inverse of what configure_logging has written; any other text is a line of no level."""
    if line.startswith(_BEGIN) and (document := _document(line)) is not None:
        return Line(*(str(document.get(key, "")) for key in ("level", "message", "time")))
    found = _LINE.fullmatch(line)
    return Line(found[2], found[3], found[1]) if found else Line("", line)


def relay(line: str, role: str, log_format: str) -> None:
    """Tell on standard error what the process of ``role`` has told, as who it was. A line that is not its loggers'
    (Spark's, a traceback's) becomes JSON where the others are."""
    if log_format != "json":
        found = _LINE.fullmatch(line)
        _write(f"{found[1]} {found[2]} {role}: {found[3]}" if found else f"{role}: {printable(line)}")
    elif line.startswith(_BEGIN) and _document(line) is not None:
        _write(line)
    else:
        document = {"time": _utc(time.time()), "level": "", "role": role, "logger": "", "message": printable(line)}
        _write(json.dumps(document))


def _write(line: str) -> None:
    """In one piece, for threads write as well."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _document(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _utc(ts: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ts)) + f".{int(ts * 1000) % 1000:03d}Z"
