"""Table synchronization beside the stream, as PostgreSQL's own subscriptions have it: copy, catch up, go along.

The rule: no table waits for another to be read. From where the stream stood when a table was noticed, the log keeps
its changes, by a claim that is durable before the stream goes on. A thread of its own reads the table in small jobs,
between which the batches' jobs get their turn. Then, a batch's worth at a time and between two batches, it applies
what the table has missed, until it stands where the stream does. Whoever dies in between is continued: what is read
and how far it is stands in the table's folder.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from wal2lake.errors import LockedError, Wal2LakeError
from wal2lake.spark.batches import Batches
from wal2lake.spark.snapshot import Snapshots
from wal2lake.spark.tables import Table
from wal2lake.spark.waiting import Waiting

_PAUSE_S = 5.0  # after what time may mend
_YIELD_S = 0.05  # for a batch that waits for its turn
_POLL_S = 0.2
_logger = logging.getLogger(__name__)


class TableSync:
    """Synchronizes the tables that ``batches`` says are to be.

    ``turn``: held by whoever applies something; ``stream``: the LSN up to which that is done. ``waiting`` is the
    thread's own: a stop ends what it does at the next chunk or step.
    """

    def __init__(
        self, batches: Batches, snapshots: Snapshots, turn: threading.Lock, waiting: Waiting, stream: Callable[[], int]
    ) -> None:
        self._batches = batches
        self._snapshots = snapshots
        self._turn = turn
        self._waiting = waiting
        self._stream = stream
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._passing: Wal2LakeError | None = None  # why the last try ended
        self._due = 0.0

    def tick(self) -> bool:
        """Begin with what there is to do; False when there is nothing. Raises what no later try can mend."""
        if self._failure is not None:
            raise self._failure
        if self._thread is not None and self._thread.is_alive():
            return True
        if not self._batches.syncing():
            return False
        if time.monotonic() >= self._due:
            self._thread = threading.Thread(target=self._work, name="wal2lake table sync", daemon=True)
            self._thread.start()
        return True

    def finish(self) -> None:
        """Wait until there is nothing to do. Raises also what a later try may mend, but for a lock."""
        self._passing, self._due = None, 0.0
        while self.tick():
            if self._passing is not None and not isinstance(self._passing, LockedError):
                raise self._passing
            self._waiting.go_on()
            time.sleep(_POLL_S)

    def end(self) -> None:
        """End the thread: a chunk under way is given up, a step under way is finished."""
        self._waiting.close()
        while self._thread is not None and self._thread.is_alive():
            self._snapshots.cancel()
            self._thread.join(_POLL_S)

    def _work(self) -> None:
        self._passing = None
        try:
            self.synchronize()
        except Wal2LakeError as error:
            self._note(error)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that watches
            self._failure = error

    def _note(self, error: Wal2LakeError) -> None:
        if self._waiting.is_over:  # it was told to end, or what it did was cancelled
            return
        if not error.transient:
            self._failure = error
            return
        self._passing, self._due = error, time.monotonic() + _PAUSE_S
        _logger.warning("Going on in %.0f s with the tables that are being read: %s", _PAUSE_S, error)

    def synchronize(self) -> None:
        """Bring all tables that are to be synchronized now to where the stream is."""
        tables = self._batches.syncing()
        if unread := [table for table in tables if not table.in_lake]:
            self._read(unread)
        for table in tables:
            while not self._goes_along(table):
                self._waiting.go_on()
                time.sleep(_YIELD_S)

    def _read(self, unread: Sequence[Table]) -> None:
        with self._turn:
            published = {str(table): table for table in self._batches.published()}
            for gone in (table for table in unread if str(table) not in published):
                gone.give_up()
        found = [published[str(table)] for table in unread if str(table) in published]
        failed = self._snapshots.take(found, gently=True)
        with self._turn:
            self._batches.know_taken(found, failed)

    def _goes_along(self, table: Table) -> bool:
        """After a step; or it is no business of ours any more, or could not be read this time."""
        with self._turn:
            return table.syncing is None or not table.in_lake or self._batches.catch_up(table, self._stream())
