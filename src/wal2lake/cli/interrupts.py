"""Ctrl-C, SIGTERM and SIGHUP are answered at once, whatever a command is at; a second one ends it at once.

Python's handlers act in the main thread, between two of its instructions: not while C looks up a name there or writes a
commit. So a thread listens as well. It says that the signal was heard, unless the command has ended by then. After a
second one it waits no longer than the command's cleaning up may take, and then ends the process: what is durable is
durable at any moment, and whoever reads the log or the tables next goes on from there.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from wal2lake.errors import InterruptedByUser
from wal2lake.signals import ENDING


class _Answer(NamedTuple):
    """``after_s``: what ends sooner needs no word. ``grace_s``: what a second signal leaves for cleaning up."""

    sentence: str
    after_s: float
    grace_s: float


class _Heard(Enum):
    SIGNAL = 1
    NOTHING = 2
    END = 3


_answers = [_Answer("Ending … Ctrl-C again ends at once.", 0.3, 1.0)]


@contextmanager
def answering_signals() -> Iterator[None]:
    """Around a whole command line; in the main thread."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # as set_wakeup_fd demands
    listener = threading.Thread(target=_listen, args=(reading,), name="signals", daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        listener.join()
        os.close(reading)


@contextmanager
def answer(sentence: str, *, grace_s: float = _answers[0].grace_s) -> Iterator[None]:
    """In the block, a signal is answered by ``sentence``, always and at once."""
    _answers.append(_Answer(sentence, 0, grace_s))
    try:
        yield
    finally:
        _answers.pop()


def _listen(reading: int) -> None:
    heard = _next(reading, None)
    if heard is _Heard.SIGNAL:
        heard = _next(reading, _answers[-1].after_s)
        if heard is _Heard.NOTHING:
            _say(_answers[-1].sentence)
            heard = _next(reading, None)
    if heard is _Heard.SIGNAL and _next(reading, _answers[-1].grace_s) is not _Heard.END:
        _end_at_once()


def _next(reading: int, timeout_s: float | None) -> _Heard:
    """Wait for a signal that ends a command, or for the end of the command itself."""
    while select.select([reading], [], [], timeout_s)[0]:
        byte = os.read(reading, 1)
        if not byte:
            return _Heard.END
        if byte[0] in ENDING:
            return _Heard.SIGNAL
    return _Heard.NOTHING


def _say(sentence: str) -> None:
    from wal2lake.cli.output import say  # noqa: PLC0415 - signals are heard while this is imported

    say(sentence)


def _end_at_once() -> None:
    if os.isatty(2):
        os.write(2, b"\x1b[?25h\n")  # a live view hides the cursor
    os._exit(InterruptedByUser.exit_code)
