"""What is told of an exception that a plugin's code raised: its class and the plugin's own line, never its text, which
may hold cell values or what the plugin keeps secret. Errors of this house hold neither, and are quoted.
"""

from __future__ import annotations

import traceback
from typing import Final

from wal2lake.errors import InterruptedByUser, Wal2LakeError

INTERRUPTS: Final = (KeyboardInterrupt, InterruptedByUser)  # Ctrl-C, which is nobody's failure


def describe_error(error: BaseException, module: str) -> str:
    """``ValueError at mine.py, line 12.``: the innermost line of the plugin's ``module`` where one is in the traceback,
    for what it called may be a library's."""
    if isinstance(error, Wal2LakeError):
        return error.message
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{type(error).__name__} at {_place(error.filename, error.lineno)}."
    places = [
        (frame.f_globals.get("__name__") == module, frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    _, filename, line = next((place for place in reversed(places) if place[0]), places[-1])
    return f"{type(error).__name__} at {_place(filename, line)}."


def _place(filename: str, line: int | None) -> str:
    return f"{filename.rpartition('/')[2]}, line {line}"
