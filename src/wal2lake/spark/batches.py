"""Applying a batch: targets follow their tables' schemas, then one job does all tables that go along with the stream.

A table that is new is read before the stream begins, or else beside it (tablesync.py): no batch waits for one.
An error that concerns one table quarantines it and the others go on; any other is raised once every table that met
none is at the batch's end, so a transient one costs no other table its progress. A table that somebody's lock shuts
falls behind the stream, and catches up when the lock is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wal2lake.changelog.consumers import claims
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import Wal2LakeError
from wal2lake.names import qualified
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.sinks.base import FileAction
from wal2lake.spark.apply import (
    ApplyTask,
    TableBatch,
    announced_relations,
    apply_mirror,
    maintain,
    plan_batch,
    schema_versions,
    split,
    standing,
    write_changes,
)
from wal2lake.spark.asking import asking
from wal2lake.spark.control import control_rows
from wal2lake.spark.evolve import Follower, Source
from wal2lake.spark.failures import quarantine_error
from wal2lake.spark.jobs import run_tasks
from wal2lake.spark.outcomes import Outcomes
from wal2lake.spark.read import DecodeRules
from wal2lake.spark.snapshot import Snapshots
from wal2lake.spark.table_folder import TableFolder, known_tables
from wal2lake.spark.tables import Table, snapshots_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wal2lake.config import Config


class Batches:
    """What the stream calls between two offsets; not for two threads at once."""

    def __init__(self, config: Config, spark: SparkSession, log: ChangeLog, snapshots: Snapshots) -> None:
        self._config = config
        self._spark = spark
        self._log = log
        self._snapshots = snapshots
        self._known = self._looked = False
        self.tables: dict[str, Table] = {}
        self.changes: dict[str, int] = {}

    def published(self) -> list[PublishedTable]:
        """The publication's tables as they are now, each known from then on. Raises LockedError (see ``asking``)."""
        with asking(self._config.source.dsn) as connection:
            found = published_tables(connection, self._config.source.publication)
        for table in found:
            self.table(table.namespace, table.name)
        return found

    def table(self, namespace: str, name: str) -> Table:
        key = qualified(namespace, name)
        if key not in self.tables:
            self.tables[key] = Table(self._config, self._log, namespace, name)
        return self.tables[key]

    def look(self, end: int, *, beside: bool = False) -> None:
        """See to every published table that is not in the lake; ``end``: where the stream stands.

        If the lake has none at all and nothing was streamed they are read now, unless a stream runs ``beside``; else
        they begin to be synchronized. The first look tries those again too that were left out before; what a transient
        error kept it from is left to the next one. Raises LockedError (see ``asking``).
        """
        self._know_earlier_ones()
        unread = [table for table in self.published() if self._is_unread(self.tables[str(table)])]
        if beside or end > self._log.start_lsn or self.lake_has_tables():
            for table in unread:
                self.tables[str(table)].begin_sync(end)
        elif unread:
            self.know_taken(unread, self._snapshots.take(unread))
        self._looked = True

    def _is_unread(self, table: Table) -> bool:
        return not table.in_lake and table.syncing is None and not (self._looked and table.quarantine)

    def know_taken(self, tables: Sequence[PublishedTable], failed: Mapping[str, Wal2LakeError]) -> None:
        """A snapshot of ``tables`` was taken; those that ``failed`` are left out with their reason."""
        for published in tables:
            table = self.tables[str(published)]
            table.load()
            if error := failed.get(str(published)):
                table.set_quarantine(error, 0)
            elif table.syncing is None:
                table.go_along()

    def lake_has_tables(self) -> bool:
        """The log alone is enough to go on with some."""
        root = snapshots_root(self._config)
        return any(TableFolder(root, *name).done() is not None for name in known_tables(root))

    def _know_earlier_ones(self) -> None:
        """Once: the tables that did not go along with the stream when the last run ended. Those that are not published
        any more as well: as long as they are left out, the log keeps their changes."""
        if self._known:
            return
        root = snapshots_root(self._config)
        for name in known_tables(root):
            folder = TableFolder(root, *name)
            if folder.quarantine() is not None or folder.syncing() is not None:
                self.table(*name)
        self._drop_claims()
        for table in self.tables.values():
            if table.quarantine is not None and table.in_lake:
                table.retry()
        self._known = True

    def syncing(self) -> list[Table]:
        """The tables that are synchronized beside the stream; any thread may ask."""
        return [table for table in list(self.tables.values()) if table.syncing is not None]

    def catch_up(self, table: Table, end: int) -> bool:
        """Apply what ``table`` has missed, as much as a batch may hold, and make that durable.

        ``end``: where the stream stands. True when the table is there and goes along, or cannot.
        """
        assert table.in_lake
        start = table.syncing
        if start is not None and start < end:
            self._log.refresh()
            reach = min(end, self._log.end_lsn_within(start, max_bytes=self._config.pipeline.max_bytes_per_trigger))
            step = reach if reach > start else end
            rows = control_rows(self._log, start, step, self._rules)
            outcomes = self._try([item for item in plan_batch(rows) if str(item) == str(table)])
            for _, error in outcomes.others:
                raise error
            if outcomes.failed:
                return True
            table.caught_up_to(step)
            if step < end:
                return False
        table.go_along()
        return True

    def _drop_claims(self) -> None:
        """Claims on the log of tables that go along: whoever wrote them died, or their folders were moved."""
        held = {table.consumer for table in self.tables.values() if table.claims()}
        for name in claims(self._log, self._config.pipeline.name):
            if name not in held:
                self._log.forget(name)

    def apply(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Apply a batch, given its control rows."""
        known = [(item, self.table(item.namespace, item.name)) for item in plan_batch(rows)]
        for item, table in known:
            self._see_to(table, item.start)
        items = [item for item, table in known if table.goes_along]
        for item in self._try(items).locked():
            self.table(item.namespace, item.name).fall_behind(item.start)

    def require_all(self) -> None:
        """Raise the reason of the tables that are left out, if any are."""
        left_out = [(name, table.quarantine) for name, table in self.tables.items() if table.quarantine is not None]
        if left_out:
            raise quarantine_error(left_out)

    def _see_to(self, table: Table, start: int) -> None:
        """The log brings changes of a table that is not in the lake: it was published since the last look, or is left
        out until it can be read, and whatever snapshot reads it then has seen what is passed over now."""
        if table.in_lake or table.syncing is not None:
            return
        if table.quarantine is None:
            table.begin_sync(start)
        else:
            table.pass_over()

    def _try(self, items: Sequence[TableBatch]) -> Outcomes:
        """Bring each table's part into the lake, if it can be; those that cannot go on are left out from there."""
        outcomes = Outcomes()
        tasks: list[ApplyTask] = []
        news = announced_relations(self._config.log.path, items)
        for item in items:
            with outcomes.noting(item):
                tasks += self._tasks(item, self.table(item.namespace, item.name), item.relation_id in news)
        try:
            (self._merge if self._config.lake.mode == "mirror" else self._append)(tasks, outcomes)
        finally:
            for item, reason in outcomes.failed.values():
                self.table(item.namespace, item.name).set_quarantine(reason, item.start)
        return outcomes

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

    def _merge(self, tasks: Sequence[ApplyTask], outcomes: Outcomes) -> None:
        for task, changes in outcomes.succeeded(tasks, run_tasks(self._spark, apply_mirror, tasks)):
            self._count(task.batch, changes)

    def _append(self, tasks: Sequence[ApplyTask], outcomes: Outcomes) -> None:
        """Commit what the tasks of a table wrote, all of it or nothing."""
        written: dict[str, tuple[ApplyTask, list[FileAction]]] = {}
        for task, actions in outcomes.succeeded(tasks, run_tasks(self._spark, write_changes, tasks)):
            written.setdefault(str(task.batch), (task, []))[1].extend(actions)
        due: list[ApplyTask] = []
        for task, actions in written.values():
            found = task.standing
            assert found is not None
            with outcomes.noting(task.batch):
                if task.target.sink().commit_files(actions, task.batch.end, found.schema, found.applied_lsn):
                    due.append(task)
                self._count(task.batch, task.batch.changes)
        outcomes.succeeded(due, run_tasks(self._spark, maintain, due))

    def _count(self, item: TableBatch, changes: int) -> None:
        self.changes[str(item)] = self.changes.get(str(item), 0) + changes

    @property
    def _rules(self) -> DecodeRules:
        settings = self._config.pipeline
        return DecodeRules(settings.unrepresentable, settings.text_columns)
