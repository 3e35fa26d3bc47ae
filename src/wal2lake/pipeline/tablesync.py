"""Table synchronization beside the stream, as PostgreSQL's own subscriptions have it: copy, catch up, go along.

The rule: no table of the lake waits for another to be read. From where the stream stood when a table was noticed, the
log keeps its changes, by a claim that is durable before the stream goes on. A thread of its own reads the table in
small jobs, between which the batches' jobs get their turn. Then, a batch's worth at a time and between two batches, it
applies what the table has missed, until it stands where the stream does. A table that was left out comes back by the
same steps. Whoever dies in between is continued: what is read and how far it is stands in the table's folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from wal2lake.errors import LockedError, Wal2LakeError
from wal2lake.pipeline.batches import Batches
from wal2lake.pipeline.fair_lock import FairLock
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.snapshots import BESIDE_STREAM
from wal2lake.postgres.catalog import PublishedTable
from wal2lake.retry import Backoff
from wal2lake.tables.table import Table

_PAUSE_S, _PAUSE_MAX_S = 1.0, 10.0  # after what time may mend
_POLL_S = 0.2
_SMALL_BLOCKS = 8192  # of 8 kB: 64 MB


class TableSync:
    """Synchronizes the tables that ``batches`` says are to be.

    ``applying``: taken by whoever applies something; ``stream``: the LSN up to which that is done. ``waiting`` is the
    thread's own: a stop ends what it does at the next chunk or step.
    """

    def __init__(self, batches: Batches, applying: FairLock, waiting: Interrupts, stream: Callable[[], int]) -> None:
        self._batches = batches
        self._applying = applying
        self._waiting = waiting
        self._stream = stream
        self._backoff = Backoff(_PAUSE_S, _PAUSE_MAX_S)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._transient_error: Wal2LakeError | None = None  # why the last try ended

    def tick(self) -> bool:
        """Begin with what there is to do; False when there is nothing. Raises what no later try can mend."""
        if self._failure is not None:
            raise self._failure
        if self._thread is not None and self._thread.is_alive():
            return True
        if not self._batches.tables.synchronizing():
            return False
        self._thread = threading.Thread(target=self._work, name="wal2lake table sync", daemon=True)
        self._thread.start()
        return True

    def finish(self) -> None:
        """Wait until there is nothing to do. Raises also what a later try may mend, but for a lock."""
        self._transient_error = None
        while self.tick():
            if self._transient_error is not None and not isinstance(self._transient_error, LockedError):
                raise self._transient_error
            self._waiting.check_for_interrupts()
            self._join()

    def end(self) -> None:
        """End the thread: a chunk under way is given up, a step under way is finished."""
        self._waiting.close()
        while self._thread is not None and self._thread.is_alive():
            self._batches.snapshots.cancel()
            self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join(_POLL_S)

    def _work(self) -> None:
        try:
            while self._batches.tables.synchronizing():
                try:
                    self.synchronize()
                    self._backoff.reset()
                except Wal2LakeError as error:
                    if not error.transient:
                        raise
                    self._back_off(error)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that watches
            if not self._waiting.is_stopping:  # else it was told to end, or what it did was cancelled
                self._failure = error

    def _back_off(self, error: Wal2LakeError) -> None:
        self._waiting.check_for_interrupts()
        self._transient_error = error
        self._waiting.pause(f"Tables that come in beside the stream wait: {error}", self._backoff.pause_s())

    def synchronize(self) -> None:
        """Bring all tables that are to be synchronized now to where the stream is.

        One table's transient trouble keeps none from that; the first such error is raised at the end.
        """
        transient = self._catch_up()
        for group in self._group_by_size(
            [table for table in self._batches.tables.synchronizing() if not table.in_lake]
        ):
            failed = self._batches.snapshots.take(group, BESIDE_STREAM)
            with self._applying:
                self._batches.quarantine(failed)
            transient = self._catch_up() or transient
        if transient is not None:
            raise transient

    def _catch_up(self) -> Wal2LakeError | None:
        transient: Wal2LakeError | None = None
        for table in self._batches.tables.synchronizing():
            try:
                while not self._has_caught_up(table):
                    self._waiting.check_for_interrupts()
            except Wal2LakeError as error:
                if not error.transient:
                    raise
                transient = transient or error
        return transient

    def _group_by_size(self, unread: Sequence[Table]) -> Iterator[list[PublishedTable]]:
        """The small ones together, then each large one by itself, the largest last: none waits for a larger one."""
        if not unread:
            return
        with self._applying:
            published = {str(table): table for table in self._batches.published()}
            for gone in (table for table in unread if str(table) not in published):
                gone.forget()
            found = self._batches.readable([published[str(table)] for table in unread if str(table) in published])
        yield [table for table in found if table.blocks <= _SMALL_BLOCKS]
        for table in sorted(found, key=attrgetter("blocks")):
            if table.blocks > _SMALL_BLOCKS:
                yield [table]

    def _has_caught_up(self, table: Table) -> bool:
        """After a step; or it is no business of ours any more, or could not be read this time."""
        with self._applying:
            behind = table.synchronizing and table.in_lake
            return not behind or self._batches.catch_up(table, self._stream())
