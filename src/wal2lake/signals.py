"""SIGINT and SIGTERM, heard in one way: they act in a block, and what held before it holds again after it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def on_signals(act: Callable[[], object]) -> Iterator[None]:
    """Either signal calls ``act`` in the main thread, which has to be the one that enters the block. What ``act``
    raises is raised where that thread is."""
    before = [signal.signal(number, lambda _number, _frame: act()) for number in _ENDING]
    try:
        yield
    finally:
        for number, handler in zip(_ENDING, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def stop_on_signals(signalled: Callable[[], bool] = lambda: False) -> Iterator[threading.Event]:
    """An event that either signal sets, for an end in good order; a second signal changes nothing.

    Where ``signalled`` says True, an output plugin's code runs, which may take minutes and knows nothing of us: there
    they raise KeyboardInterrupt as well.
    """
    stop = threading.Event()

    def act() -> None:
        stop.set()
        if signalled():
            raise KeyboardInterrupt

    with on_signals(act):
        yield stop
