"""Results go to standard output, words about them to standard error; a terminal gets colour, a pipe plain lines.

All of it goes through a console to which text is text: no name, value or message in it is markup, moves the cursor or
begins a line of its own, whoever chose it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from wal2lake.errors import LogFullError
from wal2lake.files import Trouble, trouble
from wal2lake.lsn import LSN
from wal2lake.names import printable

_PIPE_WIDTH = 140  # where there is no terminal, names must not be cut to 80 columns


class PlainConsole(Console):
    """Rich's, for text that others have chosen; what is to have colour or more than one line comes as Text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string that is printed, a table's cells and headings included."""
        return super().render_str(printable(text), **{**options, "markup": False, "emoji": False})

    def print(self, *objects: Any, **options: Any) -> None:
        """As Rich's. Raises LogFullError where what reads it has no room."""
        with _told_if_full():
            super().print(*objects, **options)

    def out(self, *objects: Any, **options: Any) -> None:
        """A line as it is, however long."""
        with _told_if_full():
            super().out(*(printable(str(item)) for item in objects), **options)


@contextmanager
def _told_if_full() -> Iterator[None]:
    """A full disk under the output is not one on which something is kept: what was told is not whole, that is all."""
    try:
        yield
    except OSError as error:
        if trouble(error) is not Trouble.FULL:
            raise
        hint = "What it has is not whole: make room there, and ask again."
        raise LogFullError(f"The output cannot be written: {os.strerror(error.errno or 0)}.", hint=hint) from error


console = PlainConsole(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
err_console = PlainConsole(stderr=True, width=None if sys.stderr.isatty() else _PIPE_WIDTH)


_logger = logging.getLogger("wal2lake.cli")
_telling: list[str] = []  # not empty: sentences are lines of the log


def tell_by_log() -> None:
    """From now on standard error is a log, and what is said to the user a line of it."""
    _telling.append("log")


def say(text: str, level: int = logging.INFO) -> None:
    """A sentence to the user, which is no result."""
    if _telling:
        _logger.log(level, "%s", text)
    else:
        err_console.print(text, soft_wrap=True)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, LSN) else value


def print_json(value: object) -> None:
    """One line of JSON, the last thing a command prints; an LSN is written as PostgreSQL does."""
    with _told_if_full():
        sys.stdout.write(json.dumps(_plain(value), default=str) + "\n")
        sys.stdout.flush()
