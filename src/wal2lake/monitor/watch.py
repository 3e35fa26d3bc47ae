"""Looks again and again, for whoever shows it: what was seen last, and how it went over the last hour.

The rule: whoever shows asks nobody, so a page costs the same however many look at it, and a server that does not
answer keeps no page waiting. What children say is read each second; server, log and lake in a thread of their own, for
they may take long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from wal2lake.changelog.events import read_events
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.status import CaptureStatus
from wal2lake.config import Config
from wal2lake.errors import Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.monitor.places import Places, PlacesReader
from wal2lake.monitor.status import Status, status_of
from wal2lake.postgres.slots import SlotState

_LOOK_S, _PLACES_S = 1.0, 5.0
_SAMPLE_S = 2.0
KEPT_S = 3600.0
_BATCHES_S = 10.0  # over which what batches applied is taken to be even
_MOST_BATCHES = 5000
_RATE_S = 600.0  # over which the server's WAL is taken to grow evenly
LAKE_SHARE = 0.1  # of the time, for asking the lake's tables
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment, ``ts`` in Unix seconds; rates per second, sizes and the position ``server_lsn`` in bytes. None: not
    known then."""

    ts: float
    changes_per_s: float
    received_per_s: float
    lag_s: float | None
    lag_bytes: int
    wal_kept: int | None
    server_lsn: int | None


@dataclass(frozen=True, slots=True)
class WalKept:
    """The WAL that the slot keeps on the server, in bytes: ``kept`` by now, ``safe`` more until the slot is lost (None:
    the server sets no limit), which takes ``left_s`` at the present rate if the slot stands still (None: nobody can
    tell)."""

    kept: int
    safe: int | None
    per_s: float
    left_s: float | None


@dataclass(frozen=True)
class Look:
    """What was seen last. ``places_at``: when server, log and lake were looked at, in Unix seconds; None: not yet."""

    status: Status
    capture: CaptureStatus
    places_at: float | None
    history: Sequence[Sample] = ()
    wal: WalKept | None = None
    ts: float = field(default_factory=time.time)


class Watcher:
    """A context manager; ``look`` is what was seen last. ``pids``: of the roles known to live, where somebody knows;
    ``read_places``: how server, log and lake are looked at, PlacesReader's way else."""

    def __init__(
        self,
        config: Config,
        pids: Callable[[], Mapping[str, int]] = dict,
        read_places: Callable[[], Places] | None = None,
    ) -> None:
        self._config = config
        self._pids = pids
        self._read_places = read_places or PlacesReader(config, LAKE_SHARE).read
        self._places = Places(None, None, None, {}, False, ())
        self._places_at: float | None = None
        self._history: deque[Sample] = deque(remembered(config), maxlen=int(KEPT_S / _SAMPLE_S))
        self._received: tuple[float, int, int] | None = None
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self.look = self._see()

    def __enter__(self) -> Self:
        for work, every_s in ((self.refresh, _LOOK_S), (self.refresh_places, _PLACES_S)):
            thread = threading.Thread(target=self._repeat, args=(work, every_s), name="watch", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._threads[0].join()  # the other may be waiting for a server

    def refresh(self) -> None:
        """See what the children say."""
        self.look = self._see()

    def refresh_places(self) -> None:
        """Look at server, log and lake."""
        self._places = self._read_places()
        self._places_at = self._places.ts

    def _see(self) -> Look:
        status = status_of(self._config, self._places, self._pids())
        capture = CaptureStatus.read(storage_at(self._config.log.path)) or CaptureStatus()
        self._sample(status, capture)
        history = tuple(self._history)
        return Look(status, capture, self._places_at, history, wal_kept(status.slot, status.server_wal_lsn, history))

    def _sample(self, status: Status, capture: CaptureStatus) -> None:
        now, progress = time.time(), status.progress
        if self._history and now - self._history[-1].ts < _SAMPLE_S:
            return
        lives = progress.pipeline_lives
        slot, server_lsn = status.slot, status.server_wal_lsn
        self._history.append(
            Sample(
                ts=now,
                changes_per_s=sum(table.changes_per_s for table in progress.tables) if lives else 0.0,
                received_per_s=self._received_per_s(now, capture),
                lag_s=progress.lag_s,
                lag_bytes=progress.lag_bytes,
                wal_kept=_kept(slot, server_lsn),
                server_lsn=None if server_lsn is None else int(server_lsn),
            )
        )

    def _received_per_s(self, now: float, capture: CaptureStatus) -> float:
        """Changes that capture received; its count begins anew with its process."""
        last, self._received = self._received, (now, capture.pid, capture.changes)
        if last is None or last[1] != capture.pid or now <= last[0]:
            return 0.0
        return max(0.0, (capture.changes - last[2]) / (now - last[0]))

    def _repeat(self, work: Callable[[], None], every_s: float) -> None:
        failed = False
        while not self._ended.is_set():
            try:
                work()
                failed = False
            except (Wal2LakeError, OSError) as error:  # the next look may do better
                if not failed:
                    _logger.warning("What is shown cannot be brought up to date: %s", error)
                failed = True
            self._ended.wait(every_s)


def remembered(config: Config) -> list[Sample]:
    """How many changes were applied in the hour before anybody looked, by the batches that were told of."""
    now = time.time()
    batches = read_events(
        config.log.path, limit=_MOST_BATCHES, pipeline=config.pipeline.name, kinds={"batch"}, since=now - KEPT_S
    )
    if not batches:
        return []
    changes = [0] * (int((now - batches[0].ts) / _BATCHES_S) + 1)
    for batch in batches:
        place = min(len(changes) - 1, int((batch.ts - batches[0].ts) / _BATCHES_S))
        changes[place] += int(batch.values.get("changes", 0))
    began = batches[0].ts
    return [
        Sample(began + number * _BATCHES_S, count / _BATCHES_S, 0.0, None, 0, None, None)
        for number, count in enumerate(changes)
    ]


def wal_kept(slot: SlotState | None, server_lsn: LSN | None, history: Iterable[Sample]) -> WalKept | None:
    """What ``slot`` keeps, and how long that can go on at the rate of ``history``; None where nobody can tell."""
    kept = _kept(slot, server_lsn)
    if slot is None or kept is None:
        return None
    points = [(s.ts, s.server_lsn) for s in history if s.server_lsn is not None and s.ts > time.time() - _RATE_S]
    seconds = points[-1][0] - points[0][0] if points else 0.0
    per_s = max(0.0, (points[-1][1] - points[0][1]) / seconds) if seconds else 0.0
    safe = slot.safe_wal_size
    left_s = None if safe is None or not per_s else max(0.0, safe / per_s)
    return WalKept(kept, safe, per_s, left_s)


def _kept(slot: SlotState | None, server_lsn: LSN | None) -> int | None:
    if slot is None or slot.restart_lsn is None or server_lsn is None:
        return None
    return max(0, server_lsn - slot.restart_lsn)
