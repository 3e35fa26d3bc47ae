"""Waiting for the log's next segment: told by the system where it can tell, else looked for every now and then.

The rule: being told is believed until it proves wrong. Linux tells of a folder's new files (inotify) what is done on
this machine, and nothing of what another one does in a folder that several share. So the folder is looked into twice a
second all the same; and when that finds a segment of which nothing was told, often, until one comes of which something
was.

Source: inotify(7).
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Callable
from typing import Final

from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.places import SEGMENTS

_LOOK_S: Final = 0.02  # between two looks where nothing is told
_ALL_THE_SAME_S: Final = 0.5  # and where it is
_CREATED: Final = 0x100 | 0x80  # IN_CREATE and IN_MOVED_TO: a segment is linked to its name, or renamed
_MANY: Final = 1 << 16  # bytes of what was told, which nobody reads


class News:
    """Of ``log``; not for two threads at once."""

    def __init__(self, log: ChangeLog, sleep: Callable[[float], None] = time.sleep) -> None:
        self._log = log
        self._sleep = sleep
        self._look_s = max(_LOOK_S, log.storage.look_s)
        folder = log.storage.watchable(SEGMENTS)
        watch = None if folder is None else Watch(folder)
        self._told = watch if watch is not None and watch.works else None
        self._believed = self._told is not None

    def wait(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """So long, or until the log has a segment that it had not at its last ``refresh``."""
        until = clock() + seconds
        if self._told is not None:
            self._told.wait(0)  # what is told from here on is of what is not there yet
            if self._log.has_more():
                return
        while (left := until - clock()) > 0:
            if self._told is not None and self._believed:
                told = self._told.wait(min(left, _ALL_THE_SAME_S))
            else:
                self._sleep(min(self._look_s, left))
                told = self._told is not None and self._told.wait(0)
            if self._log.has_more():
                self._believed = told
                return


class Watch:
    """Of the files that come into a folder of this machine; ``works``: the system watches it, and tells of them."""

    def __init__(self, folder: str) -> None:
        system = ctypes.CDLL(None)
        begin = getattr(system, "inotify_init1", None)
        self._handle: int = -1 if begin is None else begin(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle >= 0 and system.inotify_add_watch(self._handle, os.fsencode(folder), _CREATED) < 0:
            self.close()

    @property
    def works(self) -> bool:
        return self._handle >= 0

    def wait(self, seconds: float) -> bool:
        """Until something is told, or so long; whether something was, since the last call."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return False
        os.read(self._handle, _MANY)
        return True

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

    def __del__(self) -> None:
        self.close()
