"""The managed pipeline: snapshot what is not in the lake yet, then follow the log batch by batch, all tables at once.

The stream says where batches end, and remembers that in its checkpoint; what a batch holds is planned here, from the
log's index.

The rule: nothing is decided from memory. What is applied stands in the tables' commits, what is read in the log's
folder, how far the stream is in its checkpoint; so it may be killed anywhere and started again. Every table of a
batch ends at the same LSN. A table that cannot go on is quarantined, durably and with its reason; the others go on,
the log keeps what it will need, and each start tries it again.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from wal2lake.changelog.local import storage_at
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.requests import Requests
from wal2lake.errors import InterruptedByUser, LockedError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.pipeline.batches import Batches
from wal2lake.pipeline.engine import BatchStream, Engine, Jobs
from wal2lake.pipeline.fair_lock import FairLock
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.snapshots import Snapshots
from wal2lake.pipeline.tablesync import TableSync
from wal2lake.pipeline.ticking import Ticker
from wal2lake.pipeline.tracing import span
from wal2lake.pipeline.tracking import ProgressTracker
from wal2lake.pipeline.upkeep import Upkeep
from wal2lake.retry import Backoff
from wal2lake.tables.exclusive import exclusive
from wal2lake.tables.failures import SparkLostError, WorkerLostError
from wal2lake.tables.table import Tables

if TYPE_CHECKING:
    from wal2lake.config import Config

_POLL_S = 0.2
_PAUSE_S, _PAUSE_MAX_S = 0.2, 30.0  # before what Spark could not start is tried again
STATUS_S = 1.0
LOOK_S = 5.0  # sooner, where something was applied that no look has confirmed
HOUSEKEEPING_S = 30.0  # then new tables are looked for, and old segments removed
_logger = logging.getLogger(__name__)


class Pipeline:
    """One run. ``stop`` ends it after the batch under way; a snapshot under way is left where it is."""

    def __init__(self, config: Config, engine: Engine, stop: threading.Event) -> None:
        self._config = config
        self._engine = engine
        self._stop = stop
        self._waiting, self._reading = Interrupts(stop), Interrupts(stop)

    def run(self, *, until: int | None = None, available_now: bool = False) -> None:
        """See spark/pipeline.py."""
        try:
            log = self._await_log()
            position = _position(self._engine, log)
            log.release(self._config.pipeline.name, position)  # before any snapshot: what comes after it must stay
            progress = ProgressTracker(self._config, position, self._waiting, self._reading)
            with exclusive(self._config, self._stop), progress.recording_end(self._stop), ExitStack() as stack:
                self._waiting.check_for_interrupts()
                told_s = max(STATUS_S, log.storage.tell_s)
                with progress.doing("starting Spark"), Ticker(progress.write, told_s):  # it may need a while
                    jobs = stack.enter_context(self._engine)
                self._waiting.check_for_interrupts()
                following = _Following(
                    self._config, self._engine, jobs, log, progress, self._waiting, self._reading, self._stop
                )
                with Ticker(following.publish_status, told_s):
                    following.run(until, available_now)
        except (InterruptedByUser, SparkLostError):
            if not self._stop.is_set():
                raise

    def _await_log(self) -> ChangeLog:
        path = self._config.log.path
        storage = storage_at(path)
        while not ChangeLog.exists(storage):
            text = f"Waiting for capture to create the change log at {storage.where}."
            self._waiting.pause(text, max(_POLL_S, storage.look_s))
        return ChangeLog.open(storage)


def _position(engine: Engine, log: ChangeLog) -> int:
    """How far the stream is: nobody asks for what is before it, and retention may have removed that."""
    return max(engine.committed_lsn() or 0, log.beginning())


class _Following:
    """A run from when Spark is there: the tables that are new, then the stream."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        jobs: Jobs,
        log: ChangeLog,
        progress: ProgressTracker,
        waiting: Interrupts,
        reading: Interrupts,
        stop: threading.Event,
    ) -> None:
        self._config = config
        self._engine = engine
        self._log = log
        self._progress = progress
        self._waiting, self._reading, self._stop = waiting, reading, stop
        tables = Tables(config)
        self._batches = Batches(config, jobs, log, tables, Snapshots(config, jobs, tables, log.start_lsn, reading))
        self._upkeep = Upkeep(jobs)
        self._applying = FairLock()  # of batches, steps of the table sync, upkeep, and discoveries of new tables
        self._failure: BaseException | None = None
        self._streaming = False
        self._stream: BatchStream | None = None
        self._backoff = Backoff(_PAUSE_S, _PAUSE_MAX_S)
        self._held_up = ""  # why nobody can tell yet what is published

    def run(self, until: int | None, available_now: bool) -> None:
        """Until the stream ends, or is to; raises why, and the reason of a quarantined table."""
        sync = TableSync(self._batches, self._applying, self._reading, lambda: self._progress.applied)
        try:
            self._begin(available_now)
            try:
                while not self._stream_once(sync, until, available_now):
                    pass
            except InterruptedByUser:  # while tables were waited for that come in beside the stream
                if not self._stop.is_set():
                    raise
        finally:
            self._end_stream(sync)
        self._batches.require_none_quarantined()

    def _begin(self, available_now: bool) -> None:
        """Bring in the tables of a lake that has none yet.

        A query takes Spark seconds to start, and does so meanwhile, unless it is to end where the log does then: its
        first batch waits for its turn. If it does not start, it is tried again when the tables are there.
        """
        opening = threading.Thread(target=self._open_early, name="wal2lake stream", daemon=True)
        with self._applying:
            try:
                if not available_now:
                    opening.start()
                while not self._discover(_position(self._engine, self._log)) and not self._batches.tables.some_in_lake:
                    self._waiting.pause(self._held_up, self._backoff.pause_s())
                self._waiting.check_for_interrupts()
            except BaseException:
                self._waiting.close()  # before a batch has its turn
                raise
            finally:
                if opening.ident is not None:
                    opening.join()

    def _open_early(self) -> None:
        with suppress(SparkLostError):
            self._open_stream(available_now=False)

    def _open_stream(self, *, available_now: bool) -> BatchStream:
        if self._stream is None:
            self._stream = self._engine.stream(self._log.beginning(), self._apply_batch, available_now=available_now)
        return self._stream

    def _stream_once(self, sync: TableSync, until: int | None, available_now: bool) -> bool:
        """Follow a stream to its end; False, after a pause, when it has to be started again, and Spark has not."""
        applied, self._failure = self._progress.applied, None
        try:
            stream = self._open_stream(available_now=available_now)
            self._streaming = True
            self._watch(stream, sync, until)
        except WorkerLostError as error:
            if self._stop.is_set():
                raise
            self._streaming = False
            self._close_stream()
            if self._progress.applied > applied:
                self._backoff.reset()
            pause_s = self._backoff.pause_s()
            text = f"The stream starts again in {pause_s:g} s. {error}"
            self._progress.events.record("restarted", text, level="warning", role="stream", pause_s=pause_s)
            self._waiting.pause(f"The stream starts again. {error.message}", pause_s)
            return False
        return True

    def _apply_batch(self, number: int, start: int, end: int) -> None:
        """What the stream calls, in a thread of its own."""
        with self._applying:
            try:
                if self._waiting.closed:
                    raise InterruptedByUser("The pipeline is ending.")
                began = time.monotonic()
                with span("batch", batch_id=number, start_lsn=str(LSN(start)), end_lsn=str(LSN(end))) as traced:
                    applied = self._batches.apply(start, end)
                    traced.set(tables=applied.tables, changes=applied.changes)
                self._progress.advance(end)
                self._progress.count_batch(number, start, end, applied, time.monotonic() - began)
            except BaseException as error:
                self._failure = self._failure or error
                raise

    def _watch(self, stream: BatchStream, sync: TableSync, until: int | None) -> None:
        discovered, confirmed, ask_at = time.monotonic(), self._progress.applied, 0.0
        log = ChangeLog.open(self._config.log.path)  # this thread's own
        while stream.running and not self._stop.is_set():
            self._wait(stream)
            synchronized = not sync.tick()
            if time.monotonic() >= ask_at and self._asked():
                with self._applying:
                    self._batches.tables.answer(self._progress.applied)
            ask_at = ask_at if time.monotonic() < ask_at else time.monotonic() + log.storage.look_s
            if until is not None and synchronized and self._progress.reached(until):
                break
            due_s = HOUSEKEEPING_S if confirmed == self._progress.applied else LOOK_S
            if time.monotonic() - discovered >= due_s:
                with self._applying:
                    confirmed = self._progress.applied
                    self._discover(confirmed)
                    self._trim(log)
                with self._applying:
                    self._upkeep.tick(self._batches.tables, self._batches.changes)
                discovered = time.monotonic()
        self._wait(stream)
        if not self._stop.is_set():
            with self._applying:
                self._discover(self._progress.applied)
            sync.finish()  # the log as it is, for all tables
        with self._applying:
            self._trim(log)  # a run of few seconds had no other turn

    def _asked(self) -> bool:
        """Somebody wants something of a table; asked of a folder that is mostly not there."""
        return next(Requests(self._config.log.path, self._config.pipeline.name).all(), None) is not None

    def _trim(self, log: ChangeLog) -> None:
        log.refresh()
        log.trim(self._config.log.retention_seconds)

    def _discover(self, end: int) -> bool:
        """Look for new tables between batches, the stream standing at ``end``; False when that must be done again.

        A server that is away, or a lock, stops nothing: the log is enough to go on with what is in the lake. Python
        processes of Spark's that do not start are tried again.
        """
        try:
            self._batches.discover(end, beside=self._streaming)
        except Wal2LakeError as error:
            passing = isinstance(error, LockedError | WorkerLostError) or self._batches.tables.some_in_lake
            if not error.transient or not passing:
                raise
            self._held_up = f"Waiting to see what is published, and to read it. {error.message}"
            if isinstance(error, LockedError):
                self._held_up = "Waiting for other sessions' locks to see what is published."
                self._backoff.reset()
            _logger.warning("Looking for new tables again later: %s", error)
            return False
        return True

    def _wait(self, stream: BatchStream) -> None:
        """A little, or until the stream ends; raises why it failed."""
        try:
            stream.wait(_POLL_S)
        except SparkLostError as error:
            raise (self._failure or self._log_error() or error) from error

    def _log_error(self) -> Wal2LakeError | None:
        """What whoever asks the log for its positions, in a process of Spark's, may have met."""
        try:
            ChangeLog.open(self._config.log.path).end_lsn_within(self._progress.applied, max_rows=1)
        except Wal2LakeError as error:
            return error
        return None

    def _end_stream(self, sync: TableSync) -> None:
        """Let the batch under way end, then the query. Without the turn a stop could leave a batch's thread waiting."""
        self._waiting.close()
        sync.end()
        with self._applying:
            pass
        self._close_stream()

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.stop()

    def publish_status(self) -> None:
        """Publish the status; a stop amid a snapshot cancels its job: what is read by then stays read."""
        copying = self._batches.snapshots.copying and not self._streaming
        if self._stop.is_set():
            self._batches.snapshots.cancel()
        self._progress.write(self._batches, copying=copying, streaming=self._streaming)
