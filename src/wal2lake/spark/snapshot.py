"""Snapshots: consistent, parallel and resumable at once. One keeper per round, one Spark task per chunk.

The rule: a chunk is durable the moment its task ends, with the identity of the snapshot that it was read under.
If the keeper or the driver dies, the next round reads what is left under a new snapshot. A mirror with a key takes
chunks of several snapshots: older ones are committed first, newer ones replace rows of the same key, and the log's
events, filtered by the oldest snapshot, bring all of them to one state. Without a key, and in append mode, nothing
could tell a moved row from a second one: there the chunks of a snapshot that is gone are thrown away.

No lock is held from chunk to chunk: a session that waits for an exclusive one (TRUNCATE, ALTER TABLE) would make the
tasks queue behind it and never get theirs. Instead heap files are noted before the snapshot and columns after it, and
each task makes sure, under COPY's own lock, that the table was not rewritten since; if it was, it is read anew.

Before a snapshot is taken, every transaction that writes at that time has ended: what it wrote before the table was
published is not in the log, so the snapshot must decide about all of it (as PostgreSQL's own table synchronisation
has it by creating a slot).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from wal2lake.apply.envelope import snapshot_envelope
from wal2lake.columnar.copy import decode_copy_rows
from wal2lake.columnar.types import TableSchema
from wal2lake.errors import RightsError, ServerError, Wal2LakeError
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.connection import Connection, connect
from wal2lake.postgres.snapshot import SnapshotIdentity, SnapshotKeeper, copy_binary
from wal2lake.postgres.tables import Writer, await_running_transactions, heap_files, live_columns
from wal2lake.spark.asking import asking
from wal2lake.spark.chunks import (
    columns_as_read,
    plan_snapshot,
    planned_schema,
    require_columns,
    still_holds,
    table_schema,
)
from wal2lake.spark.failures import TABLE_ERRORS, concerning, reading
from wal2lake.spark.jobs import run_tasks
from wal2lake.spark.landing import land_snapshot, target_schema
from wal2lake.spark.table_folder import Chunk, DoneChunk, SnapshotPlan, TableFolder
from wal2lake.spark.target import Target
from wal2lake.spark.waiting import Waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wal2lake.config import Config

_ROUNDS = 20
_TAG = "wal2lake-snapshot"  # of the Spark jobs that read chunks
_PATIENCE_S = 5  # for a lock, while a batch may wait for the core
_NAMED = 5  # of the transactions that are waited for


class TableChangedError(Wal2LakeError):
    """The table was rewritten or lost a column while it was read; what was read does not count."""

    transient: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class CopyTask:
    """One chunk to read, as it travels to an executor; ``lock_timeout_s`` as in copy_binary."""

    dsn: str
    root: str
    table: PublishedTable
    plan: SnapshotPlan
    chunk: Chunk
    snapshot: SnapshotIdentity
    target: Target
    lsn: int
    lock_timeout_s: int

    def __str__(self) -> str:
        return str(self.table)


class Snapshots:
    """Brings tables into the lake. ``root``: the folder of the tables' folders; ``lsn``: where the log starts."""

    def __init__(self, config: Config, spark: SparkSession, root: Path, lsn: int, waiting: Waiting) -> None:
        """``copying`` tells other threads that chunks are being read."""
        self._config = config
        self._spark = spark
        self._root = root
        self._lsn = lsn
        self._waiting = waiting
        self.copying = False

    def take(self, tables: Sequence[PublishedTable], *, gently: bool = False) -> dict[str, Wal2LakeError]:
        """Bring ``tables`` into the lake, as ``read`` and ``land`` say; those that cannot be come with their reason."""
        failed = self.read(tables, gently=gently)
        return failed | self.land([table for table in tables if str(table) not in failed])

    def read(self, tables: Sequence[PublishedTable], *, gently: bool = False) -> dict[str, Wal2LakeError]:
        """Read ``tables`` into data files; those that cannot be read come back with their reason.

        ``gently``: a batch need not wait for it. A core is left to others, where there are several, another thread's
        jobs get their turn between two jobs of few chunks, and no chunk waits for a lock for long (LockedError).
        Raises what concerns more than one table; whatever is read by then stays read.
        """
        failed: dict[str, Wal2LakeError] = {}
        with self._copying():
            for _ in range(_ROUNDS):
                unread = [t for t in tables if str(t) not in failed and not self._is_read(t)]
                if not unread or not self._copy(unread, failed, gently):
                    break
        return failed

    @contextmanager
    def _copying(self) -> Iterator[None]:
        context = self._spark.sparkContext
        self.copying = True
        try:
            with _without_java():
                context.addJobTag(_TAG)
            yield
        finally:
            self.copying = False
            with _without_java():
                context.removeJobTag(_TAG)

    def cancel(self) -> None:
        """Another thread gives up the chunks that are being read, if any; what is read by then stays read."""
        if self.copying:
            with _without_java():
                self._spark.sparkContext.cancelJobsWithTag(_TAG)

    def land(self, tables: Sequence[PublishedTable]) -> dict[str, Wal2LakeError]:
        """Make tables of the lake of what is read whole; where that fails, the table comes back with its reason."""
        failed: dict[str, Wal2LakeError] = {}
        for table in tables:
            if self._is_read(table):
                self._land(table, failed)
        return failed

    def _copy(self, tables: Sequence[PublishedTable], failed: dict[str, Wal2LakeError], gently: bool) -> bool:
        """One round; True when a table changed under it, and another round is due."""
        settings = self._config.source
        with asking(settings.dsn) as connection:
            await_running_transactions(connection, self._wait)
            unread = {table.relation_id for table in tables}
            heaps = heap_files(connection, sorted(unread))
            with SnapshotKeeper(settings.dsn) as keeper:
                published = published_tables(connection, settings.publication)
                tasks = [
                    task
                    for table in published
                    if table.relation_id in unread
                    for task in self._planned(table, heaps[table.relation_id], keeper.identity, gently, failed)
                ]
                cores = self._spark.sparkContext.defaultParallelism
                outcomes = self._run(tasks, max(1, cores - 1) if gently else max(1, len(tasks)))
        return _sort_out(tasks[: len(outcomes)], outcomes, failed)

    def _run(self, tasks: Sequence[CopyTask], at_once: int) -> list[int | Wal2LakeError]:
        """The outcomes in the tasks' order, up to one that would be that of all others too."""
        outcomes: list[int | Wal2LakeError] = []
        for first in range(0, len(tasks), at_once):
            self._waiting.go_on()
            outcomes += run_tasks(self._spark, copy_chunk, tasks[first : first + at_once])
            if any(map(_is_everyones, outcomes[first:])):
                break
        return outcomes

    def _wait(self, running: Sequence[Writer]) -> None:
        some = ", ".join(map(str, running[:_NAMED])) + (" …" if len(running) > _NAMED else "")
        self._waiting.pause(f"Before a snapshot, waiting for {len(running)} transaction(s) that write to end: {some}.")

    def _planned(
        self,
        table: PublishedTable,
        heap: str,
        snapshot: SnapshotIdentity,
        gently: bool,
        failed: dict[str, Wal2LakeError],
    ) -> list[CopyTask]:
        """The tasks that are left to do of the table; none, and its reason in ``failed``, if it cannot be read."""
        try:
            with concerning(str(table)):
                require_columns(table_schema(table))
                return list(self._tasks(table, heap, snapshot, gently))
        except TABLE_ERRORS as error:
            failed[str(table)] = error
            return []

    def _tasks(self, table: PublishedTable, heap: str, snapshot: SnapshotIdentity, gently: bool) -> Iterator[CopyTask]:
        plan = self._plan(table, heap)
        for chunk in _missing(self._folder(table), plan):
            yield CopyTask(
                dsn=self._config.source.dsn,
                root=str(self._root),
                table=table,
                plan=plan,
                chunk=chunk,
                snapshot=snapshot,
                target=Target.of(self._config, table.namespace, table.name),
                lsn=self._lsn,
                lock_timeout_s=_PATIENCE_S if gently else 0,
            )

    def _plan(self, table: PublishedTable, heap: str) -> SnapshotPlan:
        """The plan under way, if what was read for it can stand beside what is read now; else a new one.

        Where it cannot, each round has a plan of its own, even if the last one read nothing yet: a task of a driver
        that was killed may outlive it, and what it still finishes must not count for this round.
        """
        settings, folder = self._config.pipeline, self._folder(table)
        plan = folder.plan()
        several = plan is not None and bool(plan.key) and self._config.lake.mode == "mirror"
        if plan is not None and several and still_holds(plan, table, heap, settings.text_columns):
            return plan
        cores = self._spark.sparkContext.defaultParallelism
        plan = plan_snapshot(table, heap, settings.snapshot_chunk_bytes, cores, settings.text_columns)
        folder.begin(plan)
        return plan

    def _is_read(self, table: PublishedTable) -> bool:
        folder = self._folder(table)
        plan = folder.plan()
        return plan is not None and not _missing(folder, plan)

    def _land(self, table: PublishedTable, failed: dict[str, Wal2LakeError]) -> None:
        folder, name = self._folder(table), (table.namespace, table.name)
        plan = folder.plan()
        assert plan is not None
        try:
            with concerning(str(table)):
                land_snapshot(folder, plan, Target.of(self._config, *name), name, self._lsn)
        except TABLE_ERRORS as error:
            failed[str(table)] = error

    def _folder(self, table: PublishedTable) -> TableFolder:
        return TableFolder(self._root, table.namespace, table.name)


def _missing(folder: TableFolder, plan: SnapshotPlan) -> list[Chunk]:
    done = folder.chunks(plan.plan_id)
    return [chunk for chunk in plan.chunks if chunk.number not in done]


def _sort_out(
    tasks: Sequence[CopyTask], outcomes: Sequence[int | Wal2LakeError], failed: dict[str, Wal2LakeError]
) -> bool:
    """Note the tables that cannot be read; True when one changed. Any other error is everyone's and is raised."""
    changed = False
    for task, outcome in zip(tasks, outcomes, strict=True):
        if isinstance(outcome, TABLE_ERRORS):
            failed.setdefault(str(task.table), outcome)
        elif isinstance(outcome, TableChangedError):
            changed = True
        elif isinstance(outcome, Wal2LakeError):
            raise outcome
    return changed


def _is_everyones(outcome: int | Wal2LakeError) -> bool:
    return isinstance(outcome, Wal2LakeError) and not isinstance(outcome, (*TABLE_ERRORS, TableChangedError))


def _without_java() -> AbstractContextManager[None]:
    """A JVM that is gone is noticed by whatever it was to do; a tag of its jobs matters no more."""
    return suppress(PySparkException, Py4JError, OSError)


def copy_chunk(task: CopyTask) -> int:
    """Read a chunk into data files and make that durable; returns its rows. Runs on an executor."""
    schema = planned_schema(task.plan, task.table.namespace, task.table.name)
    columns = columns_as_read(task.table, task.target.text_columns)
    blocks = task.chunk.block_from, task.chunk.block_to
    unchanged, patience = partial(_require_heap, task), task.lock_timeout_s
    messages = copy_binary(task.dsn, task.snapshot.name, task.table, columns, *blocks, unchanged, patience)
    batches = (batch for rows in messages for batch in decode_rows(rows, schema, task.target, task.lsn))
    try:
        with reading(task.table):
            actions = task.target.sink().write_files(batches, target_schema(schema, task.target))
    except (RightsError, ServerError) as error:
        _require_columns(task, error)
        raise
    chunk = DoneChunk(
        number=task.chunk.number,
        rows=sum(action.rows for action in actions),
        snapshot=json.loads(task.snapshot.to_json()),
        actions=[asdict(action) for action in actions],
    )
    TableFolder(Path(task.root), task.table.namespace, task.table.name).finish_chunk(task.plan.plan_id, chunk)
    return chunk.rows


def _require_heap(task: CopyTask, connection: Connection) -> None:
    """Filenodes are never used again: the same one now as before the snapshot means that nothing was rewritten."""
    heap = heap_files(connection, [task.table.relation_id])[task.table.relation_id]
    if heap != task.plan.heap:
        raise TableChangedError("The table was rewritten while it was read.", relation=str(task.table))


def _require_columns(task: CopyTask, error: Wal2LakeError) -> None:
    """COPY fails for a column, or a table, that was dropped after the plan was made."""
    with closing(connect(task.dsn, application_name="wal2lake copy")) as connection:
        now = {column.attnum for column in live_columns(connection, task.table.relation_id).values()}
    if not now.issuperset(column.attnum for column in task.plan.columns):
        raise TableChangedError("The table changed while it was read.", relation=str(task.table)) from error


def decode_rows(rows: Sequence[bytes], schema: TableSchema, target: Target, lsn: int) -> list[pa.RecordBatch]:
    """COPY binary rows as the target's columns; in append mode they are 'R' rows at ``lsn``."""
    lenient = target.unrepresentable == "null"
    arrays = decode_copy_rows(rows, schema.columns, schema.qualified_name, lenient=lenient)
    table = pa.table(arrays, schema=schema.arrow_schema)
    if target.mode == "append":
        table = snapshot_envelope(table, schema, lsn)
    batches: list[pa.RecordBatch] = table.to_batches()
    return batches
