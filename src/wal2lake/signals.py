"""SIGINT, SIGTERM and SIGHUP, heard in one way: they act in a block, and what held before it holds again after it.

SIGHUP, which a terminal sends when it is closed, is left alone where it is ignored: nohup has a command live on.

What a handler raises is KeyboardInterrupt, which is no Exception: nobody who collects errors takes it for one of them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

_HANGUP = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
ENDING = (signal.SIGINT, signal.SIGTERM, *_HANGUP)
_Handler = Callable[[int, FrameType | None], object]


@contextmanager
def on_signals(act: Callable[[], object]) -> Iterator[None]:
    """Each of these signals calls ``act`` in the main thread, which has to be the one that enters the block. What
    ``act`` raises is raised where that thread is."""
    with _handlers({number: lambda _number, _frame: act() for number in ENDING}):
        yield


def interrupt() -> None:
    """What such a signal does to a command that has no end of its own to come to."""
    raise KeyboardInterrupt


@contextmanager
def stop_on_signals(signalled: Callable[[], bool] = lambda: False) -> Iterator[threading.Event]:
    """An event that such a signal sets, for an end in good order; a second signal changes nothing.

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


@contextmanager
def interruptible() -> Iterator[None]:
    """In the block, a signal that has a handler calls it and then raises KeyboardInterrupt: for what waits long and
    asks no event. Only the main thread hears signals; in any other the block is as without this."""

    def then_interrupt(handler: _Handler) -> _Handler:
        def act(number: int, frame: FrameType | None) -> None:
            handler(number, frame)
            raise KeyboardInterrupt

        return act

    handlers = {}
    if threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in ENDING}
        handlers = {number: then_interrupt(handler) for number, handler in found.items() if callable(handler)}
    with _handlers(handlers):
        yield


@contextmanager
def _handlers(handlers: Mapping[signal.Signals, _Handler]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
