"""How far the pipeline is, gathered for ``status/pipeline.json`` and for knowing when a position is reached."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from wal2lake import __version__
from wal2lake.changelog.events import Events
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.places import pipeline_lock
from wal2lake.changelog.status import PipelineStatus, TableStage, TableStatus, reason_of
from wal2lake.changelog.tables import known_tables
from wal2lake.epoch import EPOCH_S
from wal2lake.errors import InterruptedByUser, LogCorruptError, SinkError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.names import qualified
from wal2lake.pipeline.copied import Copied, bytes_total
from wal2lake.pipeline.ticking import Rates
from wal2lake.tables.failures import DefectError, SparkLostError, errors_of
from wal2lake.tables.table_folder import TableFolder

if TYPE_CHECKING:
    from wal2lake.config import Config
    from wal2lake.pipeline.batches import Applied, Batches
    from wal2lake.pipeline.interrupts import Interrupts
    from wal2lake.tables.state import TableState
    from wal2lake.tables.table import Table

_COPY_WINDOW_S = 60.0  # a chunk may take seconds
_COUNT_S = 5.0  # rows are counted no more often
_CATCHING_UP_S = 5.0  # a table that far behind is not simply streaming
_MOST_SEGMENTS = 300  # that are looked at each second for whose changes are in them


class _Count(NamedTuple):
    """``rows`` of a table as counted ``at`` (monotonic seconds), after so many ``changes`` of what was read by
    ``plan_id``; ``there``: it was there."""

    plan_id: str
    changes: int
    at: float
    rows: int
    there: bool


class ProgressTracker:
    """Written to by the pipeline's threads, read by the one that writes the status; each value stands for itself."""

    def __init__(self, config: Config, applied: int, waiting: Interrupts, reading: Interrupts) -> None:
        """``applied``: what an earlier run applied everything up to; ``waiting``: what keeps the stream; ``reading``:
        what keeps tables from being read."""
        self._config = config
        self.events = Events(config.log.path, "pipeline", config.pipeline.name)
        self._waiting = waiting
        self._reading = reading
        self.status = PipelineStatus()
        self._applied = applied
        self._log = ChangeLog.open(config.log.path)  # of its own: a ChangeLog is not for several threads
        before = PipelineStatus.read(self._log.storage)
        if before is not None and before.state in ("failed", "starting"):
            self.status.reason = before.reason  # stays worth knowing until this run has come farther
        self._rates = Rates()
        self._copy_rates = Rates(window_s=_COPY_WINDOW_S)
        self._copied: dict[str, Copied] = {}
        self._counts: dict[str, _Count] = {}
        self._unapplied: set[int] | None = set()  # relations with changes above what is applied; None: too many to tell

    @property
    def applied(self) -> int:
        return self._applied

    def advance(self, lsn: int) -> None:
        """Everything up to ``lsn`` is applied."""
        self._applied = max(self._applied, int(lsn))

    def reached(self, lsn: int) -> bool:
        """Everything that committed up to ``lsn`` is applied, and the log has all of that."""
        applied = self._applied  # before the log is read, which only grows
        if applied >= lsn:
            return True
        log = ChangeLog.open(self._config.log.path)
        return log.durable_lsn() >= lsn and not log.transactions(applied, lsn).num_rows

    @contextmanager
    def recording_end(self, stop: Event) -> Iterator[None]:
        """Leave in the status how the block ended, for whoever looks when this process is gone.

        The block holds the pipeline's lock.
        """
        self.status.lock = pipeline_lock(self._config.pipeline.name)
        self._recall()
        self.events.record("started", "The pipeline begins.", version=__version__, lsn=LSN(self._applied))
        try:
            yield
        except BaseException as error:
            with suppress(Wal2LakeError, OSError):  # where it cannot be written, the error that ended it matters more
                self._record_end("stopped" if stop.is_set() else "failed", _reason(error, stop))
            raise
        self._record_end("stopped", None)

    def _recall(self) -> None:
        """Say what the tables' documents do, before anybody knows how the tables move: what was so still is."""
        for namespace, name in known_tables(self._log.storage, self._config.pipeline.name):
            folder = TableFolder(self._log.storage, self._config.pipeline.name, namespace, name)
            with suppress(LogCorruptError):  # who is about to work with it says so
                self._measure_document(qualified(namespace, name), folder, folder.read())

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Say that it is at ``what`` in the block; at once, for the block may take long."""
        self.status.doing = what
        self.write()
        try:
            yield
        finally:
            self.status.doing = None

    def _record_end(self, state: str, reason: str | None) -> None:
        self.status.state, self.status.reason, self.status.waiting_for = state, reason, None
        try:
            self._measure()  # it may have ended before it was measured at all
            self._publish()
        finally:
            if state == "failed":
                self.events.record("failed", f"The pipeline failed: {reason}", level="error", lsn=LSN(self._applied))
            else:
                self.events.record("stopped", "The pipeline was stopped.", lsn=LSN(self._applied))

    def count_batch(self, number: int, start: int, end: int, applied: Applied, seconds: float) -> None:
        """The batch (start, end] is applied; Spark numbers them."""
        self.status.batch = number
        self.status.batches += 1
        self.status.batch_seconds = round(self.status.batch_seconds + seconds, 6)
        changes = "1 change" if applied.changes == 1 else f"{applied.changes:,} changes"
        tables = "1 table" if applied.tables == 1 else f"{applied.tables:,} tables"
        self.events.record(
            "batch",
            f"Batch {number}, up to {LSN(end)}: {changes} of {tables} in {seconds:.2f} s.",
            batch=number,
            start_lsn=LSN(start),
            end_lsn=LSN(end),
            tables=applied.tables,
            changes=applied.changes,
            seconds=round(seconds, 3),
        )

    def write(self, batches: Batches | None = None, *, copying: bool = False, streaming: bool = False) -> None:
        """Bring the status up to date and publish it.

        ``batches``: from when they are there; ``streaming``: the stream runs; ``copying``: it does not, and tables are
        being read.
        """
        self._measure()
        stands_still = self._waiting.reason or (self._reading.reason if copying else None)
        self.status.waiting_for = stands_still or self._reading.reason
        tables, changes = ([], {}) if batches is None else (list(batches.tables), batches.changes)
        if tables and self._reading.reason and not any(table.ready for table in tables):
            stands_still = stands_still or self._reading.reason
        if stands_still or copying or streaming:
            self.status.state = "waiting" if stands_still else "snapshot" if copying else "streaming"
            self.status.reason = None
        if batches is not None and batches.discovered:  # what nobody works with is not the stream's any more
            names = {str(table) for table in tables}
            self.status.tables = {name: told for name, told in self.status.tables.items() if name in names}
        for table in tables:
            self._measure_table(table, changes.get(str(table), 0), streaming=streaming)
        self.status.changes = sum(table.changes for table in self.status.tables.values())
        self.status.changes_per_s = round(self._rates.rate("", self.status.changes), 1)
        lately = [copied.lately for copied in self._copied.values()]
        self.status.rows_read_per_s = round(self._copy_rates.rate("rows", sum(read.rows for read in lately)), 1)
        self.status.bytes_read_per_s = round(self._copy_rates.rate("bytes", sum(read.bytes for read in lately)), 1)
        self._publish()

    def _publish(self) -> None:
        self.status.pid, self.status.ts = os.getpid(), time.time()
        self.status.write(self._log.storage)

    def _measure(self) -> None:
        self._log.refresh()
        status, log, applied = self.status, self._log, self._applied
        behind = applied < log.last_end_lsn
        status.applied_lsn, status.durable_lsn = LSN(applied), log.durable_lsn()
        status.lag_bytes = log.last_end_lsn - LSN(applied) if behind else 0
        status.lag_s = round(max(0.0, time.time() - _oldest_unapplied(log, applied)), 3) if behind else 0.0
        self._unapplied = log.changed_above(applied, _MOST_SEGMENTS) if behind else set()

    def _measure_table(self, table: Table, changes: int, *, streaming: bool) -> None:
        status = self._measure_document(str(table), table.folder, table.state)
        status.changes = changes
        status.changes_per_s = round(self._rates.rate(str(table), status.changes), 1)
        if table.in_lake or table.state.anew:
            status.rows = self._count_rows(table, status.changes)
        status.confirmed_lsn = LSN(table.confirmed_lsn)
        unconfirmed = table.in_lake and status.applied_lsn > table.confirmed_lsn
        status.unconfirmed_since = table.confirmed_at if unconfirmed else None
        status.behind = not table.ready or self._has_unapplied(table)
        status.state = self._state(table)
        if status.state == "streaming" and not (streaming and self._counts[str(table)].there):
            status.state = "catching_up"
        elif status.state == "catching_up" and not table.ready:
            status.reason = self._reading.reason or status.reason
        elif status.state == "unpublished":
            status.reason = "It is not published by this name any more; when it is again, it is read anew."

    def _measure_document(self, name: str, folder: TableFolder, state: TableState) -> TableStatus:
        """What is durable about a table, and how far its copy is."""
        status, quarantine, tried = self.status.table(name), state.quarantine, state.tried
        status.state = _durable_stage(state)
        status.tried = tried.reason if tried else None
        status.reason = quarantine.reason if quarantine else None
        if state.anew and not quarantine and not state.in_lake:
            status.reason = f"Read anew: {state.anew.reason}"
        elif tried:
            status.reason = f"It is tried again. It was left out: {tried.reason}"
        if not (state.in_lake or state.anew):
            status.rows = 0
        applied = self._applied if state.stage == "ready" else state.needs_lsn if state.in_lake else None
        status.applied_lsn = LSN(applied or 0)
        self._measure_copy(name, folder, state, status)
        return status

    def _measure_copy(self, name: str, folder: TableFolder, state: TableState, status: TableStatus) -> None:
        plan = state.plan
        status.chunks_total = 0 if plan is None else len(plan.chunks)
        status.bytes_total = 0 if plan is None else bytes_total(plan)
        if plan is None or state.in_lake:
            status.chunks_done, status.bytes_read = status.chunks_total, status.bytes_total
            return
        copied = self._copied.get(name)
        if copied is None or copied.plan.plan_id != plan.plan_id:
            copied = self._copied[name] = Copied(plan, folder)
        copied.look()
        status.chunks_done, status.rows_read, status.bytes_read = len(copied.rows), copied.rows_read, copied.bytes_read

    def _count_rows(self, table: Table, changes: int) -> int:
        """The lake table's rows, counted anew when it has changed and the last count is some seconds old."""
        last, now = self._counts.get(str(table)), time.monotonic()
        plan_id = table.state.landed.plan_id if table.state.landed else ""
        anew = last is None or last.plan_id != plan_id  # what is read anew takes the place of all rows
        if anew or last is None or (last.changes != changes and now - last.at >= _COUNT_S):
            try:
                with errors_of(str(table)):
                    sink = table.target.sink()
                    rows, there = sink.count_rows(), sink.state() is not None
            except (SinkError, DefectError, SparkLostError):  # whoever applies changes to it tells what is wrong
                rows, there = 0 if last is None else last.rows, False
            last = self._counts[str(table)] = _Count(plan_id, changes, now, rows, there)
        return last.rows

    def _state(self, table: Table) -> TableStage:
        stage = _durable_stage(table.state)
        if stage == "catching_up" and not table.published:
            return "unpublished"
        if stage != "catching_up" or not table.ready:
            return stage
        late = self.status.lag_s > _CATCHING_UP_S and self._has_unapplied(table)
        return "catching_up" if late or table.converges_at(self._applied) else "streaming"

    def _has_unapplied(self, table: Table) -> bool:
        """The log has changes of it above what is applied, or has too much there to tell."""
        return self._unapplied is None or table.plan.relation_id in self._unapplied


def _durable_stage(state: TableState) -> TableStage:
    """By its document alone; one that is in the lake catches up as long as nobody knows better."""
    if state.quarantine is not None:
        return "skipped" if state.quarantine.skipped else "quarantined"
    if not state.in_lake:
        return "snapshot"
    return "unpublished" if state.stage == "unpublished" else "catching_up"


def _reason(error: BaseException, stop: Event) -> str | None:
    """What ended the pipeline; an end that was asked for needs none."""
    if stop.is_set() and isinstance(error, InterruptedByUser | SparkLostError):
        return None
    return reason_of(error)


def _oldest_unapplied(log: ChangeLog, applied: int) -> float:
    """When the first transaction that is not applied committed, in Unix seconds."""
    first = log.transactions(applied, log.end_lsn_within(applied, max_rows=1))
    return EPOCH_S + float(first["commit_ts"][0].as_py()) / 1e6 if first.num_rows else time.time()
