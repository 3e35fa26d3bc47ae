"""Applying a batch: tables that are new are read first, targets follow their schemas, then one job does all tables.

An error that concerns one table quarantines it and the others go on; any other is raised once every table's outcome
is taken in, so a transient one costs no table its progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from wal2lake.changelog.consumers import claims
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import Wal2LakeError
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.connection import connect
from wal2lake.sinks.base import FileAction
from wal2lake.spark.apply import (
    ApplyTask,
    TableBatch,
    announced_relations,
    apply_mirror,
    plan_batch,
    schema_versions,
    split,
    standing,
    write_changes,
)
from wal2lake.spark.control import control_rows
from wal2lake.spark.evolve import Follower, Source
from wal2lake.spark.failures import TABLE_ERRORS, quarantine_error
from wal2lake.spark.jobs import run_tasks
from wal2lake.spark.read import DecodeRules
from wal2lake.spark.snapshot import Snapshots
from wal2lake.spark.table_folder import TableFolder, known_tables
from wal2lake.spark.tables import Table, snapshots_root
from wal2lake.spark.waiting import Waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wal2lake.config import Config

Result = TypeVar("Result")
Failed = dict[str, tuple[TableBatch, Wal2LakeError]]  # by table: its part of the batch, and why it is left out


class Batches:
    """What the stream calls between two offsets; not for two threads at once."""

    def __init__(
        self, config: Config, spark: SparkSession, log: ChangeLog, snapshots: Snapshots, waiting: Waiting
    ) -> None:
        self._config = config
        self._spark = spark
        self._log = log
        self._snapshots = snapshots
        self._waiting = waiting
        self.tables: dict[str, Table] = {}
        self.changes: dict[str, int] = {}

    def published(self, patience: str = "0") -> list[PublishedTable]:
        """The publication's tables as they are now, each known from then on.

        PostgreSQL opens each of them for that, and so stands behind an ALTER or TRUNCATE that waits for its own lock.
        ``patience`` is a lock_timeout ("0": without end); past it LockedError is raised.
        """
        settings = {"lock_timeout": patience}
        source = self._config.source.dsn
        with closing(connect(source, application_name="wal2lake pipeline", settings=settings)) as connection:
            found = published_tables(connection, self._config.source.publication)
        for table in found:
            self.table(table.namespace, table.name)
        return found

    def table(self, namespace: str, name: str) -> Table:
        known = self.tables.get(f"{namespace}.{name}")
        if known is None:
            known = self.tables[f"{namespace}.{name}"] = Table(self._config, self._log, namespace, name)
        return known

    def snapshot_new(self, *, again: bool = False, patience: str = "0") -> None:
        """Read every published table that is not in the lake; ``again``: those too that failed to be read before.

        Raises LockedError when the publication could not be looked at within ``patience`` (see ``published``).
        """
        self._snapshot(
            table
            for table in self.published(patience)
            if not (known := self.table(table.namespace, table.name)).in_lake and (again or not known.quarantine)
        )

    def retry_quarantined(self, end: int) -> None:
        """Bring tables that were left out up to ``end``, where the stream stands, if their reason is gone.

        Those that are not published any more as well: as long as they are left out, the log keeps their changes.
        """
        root = snapshots_root(self._config)
        for name in known_tables(root):
            if TableFolder(root, *name).quarantine() is not None:
                self.table(*name)
        self._drop_claims()
        for table in list(self.tables.values()):
            if table.quarantine is not None and table.in_lake:
                self._catch_up(table, table.quarantine.lsn, end)

    def _catch_up(self, table: Table, start: int, end: int) -> None:
        """Apply what ``table`` has missed in (start, end], in durable steps as large as a batch may be."""
        size = self._config.pipeline.max_bytes_per_trigger
        while start < end:
            self._waiting.go_on()
            reach = min(end, self._log.end_lsn_within(start, max_bytes=size))
            step = reach if reach > start else end
            rows = control_rows(self._log, start, step, self._rules)
            if self._apply([item for item in plan_batch(rows) if str(item) == str(table)]):
                return
            table.move_quarantine(step)
            start = step
        table.lift_quarantine()

    def _drop_claims(self) -> None:
        """Claims on the log of tables that are not left out: whoever wrote them died, or their folders were moved."""
        held = {table.consumer for table in self.tables.values() if table.quarantine is not None}
        for name in claims(self._log, self._config.pipeline.name):
            if name not in held:
                self._log.forget(name)

    def apply(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Apply a batch, given its control rows."""
        items = plan_batch(rows)
        self._snapshot_unknown(items)
        known = [(item, self.table(item.namespace, item.name)) for item in items]
        for _, table in known:
            if not table.in_lake:
                table.pass_over()
        self._apply([item for item, table in known if table.in_lake and table.quarantine is None])

    def require_all(self) -> None:
        """Raise the reason of the tables that are left out, if any are."""
        left_out = [(name, table.quarantine) for name, table in self.tables.items() if table.quarantine is not None]
        if left_out:
            raise quarantine_error(left_out)

    def _snapshot_unknown(self, items: Sequence[TableBatch]) -> None:
        """A relation that the log brings before its snapshot was added to the publication since."""
        tables = [self.table(item.namespace, item.name) for item in items]
        unknown = {str(table) for table in tables if not table.in_lake and table.quarantine is None}
        if unknown:
            self._snapshot(table for table in self.published() if str(table) in unknown)

    def _snapshot(self, tables: Iterable[PublishedTable]) -> None:
        pending = [(published, self.table(published.namespace, published.name)) for published in tables]
        try:
            failed = self._snapshots.take([published for published, _ in pending]) if pending else {}
        finally:
            for _, table in pending:
                table.load()
        for published, table in pending:
            if error := failed.get(str(published)):
                table.set_quarantine(error, 0)
            else:
                table.lift_quarantine()

    def _apply(self, items: Sequence[TableBatch]) -> Failed:
        failed: Failed = {}
        tasks: list[ApplyTask] = []
        news = announced_relations(self._config.log.path, items)
        for item in items:
            try:
                tasks += self._tasks(item, self.table(item.namespace, item.name), item.relation_id in news)
            except TABLE_ERRORS as error:
                failed[str(item)] = item, error
        try:
            (self._merge if self._config.lake.mode == "mirror" else self._append)(tasks, failed)
        finally:
            for item, reason in failed.values():
                self.table(item.namespace, item.name).set_quarantine(reason, item.start)
        return failed

    def _tasks(self, item: TableBatch, table: Table, announced: bool) -> list[ApplyTask]:
        """What is to be done of ``item``, after the target has followed its schemas.

        Also when the snapshot holds all of it already: the commit that says how far the table is has to be made.
        """
        snapshot = table.snapshot_at(item.start)
        log_path = self._config.log.path
        versions = schema_versions(log_path, item, snapshot, self._rules)
        if not table.is_of(item.relation_id) and not versions:
            return []  # another table of this name, which was gone before this one was read
        table.require_relation(item.relation_id)
        source = Source(self._config.source.dsn, self._config.source.publication, item.relation_id)
        follower = Follower(table.folder, table.plan, table.target, source)
        task = ApplyTask(
            log_path=log_path,
            root=str(snapshots_root(self._config)),
            batch=item,
            parts=item.parts,
            key=table.plan.key,
            target=table.target,
            source=source,
            snapshot=snapshot,
            fill=follower.follow(versions, item.start, item.end, announced=announced),
            converging=table.converges_at(item.start),
        )
        if self._config.lake.mode == "mirror":
            return [task]
        state = standing(table.target.sink(), str(item))
        parts = split(item) if state.applied_lsn < item.end else []
        return [replace(task, parts=own, standing=state) for own in parts]

    def _merge(self, tasks: Sequence[ApplyTask], failed: Failed) -> None:
        for task, changes in _succeeded(tasks, run_tasks(self._spark, apply_mirror, tasks), failed):
            self._count(task.batch, changes)

    def _append(self, tasks: Sequence[ApplyTask], failed: Failed) -> None:
        """Commit what the tasks of a table wrote, all of it or nothing."""
        written: dict[str, tuple[ApplyTask, list[FileAction]]] = {}
        for task, actions in _succeeded(tasks, run_tasks(self._spark, write_changes, tasks), failed):
            written.setdefault(str(task.batch), (task, []))[1].extend(actions)
        for name, (task, actions) in written.items():
            if name not in failed and (found := task.standing) is not None:
                task.target.sink().commit_files(actions, task.batch.end, found.schema, found.applied_lsn)
                self._count(task.batch, task.batch.changes)

    def _count(self, item: TableBatch, changes: int) -> None:
        self.changes[str(item)] = self.changes.get(str(item), 0) + changes

    @property
    def _rules(self) -> DecodeRules:
        settings = self._config.pipeline
        return DecodeRules(settings.unrepresentable, settings.text_columns)


def _succeeded(
    tasks: Sequence[ApplyTask], outcomes: Sequence[Result | Wal2LakeError], failed: Failed
) -> list[tuple[ApplyTask, Result]]:
    """The tasks that did their work; tables that cannot go on are added to ``failed``, any other error is raised."""
    good: list[tuple[ApplyTask, Result]] = []
    others: list[Wal2LakeError] = []
    for task, outcome in zip(tasks, outcomes, strict=True):
        if isinstance(outcome, TABLE_ERRORS):
            failed.setdefault(str(task.batch), (task.batch, outcome))
        elif isinstance(outcome, Wal2LakeError):
            others.append(outcome)
        else:
            good.append((task, outcome))
    if others:
        raise others[0]
    return good
