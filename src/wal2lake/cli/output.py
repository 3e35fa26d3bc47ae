"""Results go to standard output, words about them to standard error; a terminal gets colour, a pipe plain lines."""

from __future__ import annotations

import json
import sys

from rich.console import Console

from wal2lake.lsn import LSN

_PIPE_WIDTH = 140  # where there is no terminal, names must not be cut to 80 columns
console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
err_console = Console(stderr=True, width=None if sys.stderr.isatty() else _PIPE_WIDTH)


def say(text: str) -> None:
    """A sentence to the user, which is no result."""
    err_console.print(text, highlight=False, markup=False, soft_wrap=True)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, LSN) else value


def print_json(value: object) -> None:
    """One line of JSON, the last thing a command prints; an LSN is written as PostgreSQL does."""
    sys.stdout.write(json.dumps(_plain(value), default=str) + "\n")
    sys.stdout.flush()
