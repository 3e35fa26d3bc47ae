"""What a process tells while it works: one line each on standard error, written and read here alone.

Our own loggers tell from INFO on, everybody else's from WARNING on. A sentence never holds a credential or a cell value
(see errors.py); other libraries make no such promise, which is why they are kept quiet.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import NamedTuple

from wal2lake.names import printable

_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)")
_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class Line(NamedTuple):
    """What was told; ``level`` is empty for a line that no logger wrote."""

    level: str
    text: str

    @property
    def is_routine(self) -> bool:
        """Told in the course of things, so no reason for anything."""
        return self.level in ("DEBUG", "INFO")


class _OneLine(logging.Formatter):
    """A message is a line, whatever names stand in it; only a traceback has more."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


class _StandardError(logging.Handler):
    """Asks for sys.stderr each time: a live view on a terminal puts itself in its place meanwhile."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:  # noqa: BLE001 - as every handler: telling of the work must not end it
            self.handleError(record)


def mute_logging() -> None:
    """For a process that shows what happens in another way."""
    logging.getLogger("wal2lake").addHandler(logging.NullHandler())


def configure_logging() -> None:
    """Once a process, before its work begins."""
    handler = _StandardError()
    handler.setFormatter(_OneLine(_FORMAT))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("wal2lake").setLevel(logging.INFO)


def read_line(line: str) -> Line:
    """The inverse of what configure_logging has written; any other text is a line of no level."""
    found = _LINE.fullmatch(line)
    return Line(found[1], found[2]) if found else Line("", line)
