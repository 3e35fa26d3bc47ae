"""Applying a batch: targets follow their tables' schemas, then one job does all tables that go along with the stream.

A table that is new is read before the stream begins, or else beside it (tablesync.py): no batch waits for one.
An error that concerns one table quarantines it and the others go on; any other is raised once every table that met
none is at the batch's end, so a transient one costs no other table its progress. A table that somebody's lock shuts
falls behind the stream, and catches up when the lock is gone; so does one that the log announces, which may be told
from what it was by the catalog alone, while the server is away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.timelines import Timeline, newest_timeline
from wal2lake.errors import RESYNC, ConnectError, SchemaChangeError, SinkError, Wal2LakeError
from wal2lake.pipeline.apply import (
    PIECE_OF_BATCH,
    SMALL_BYTES,
    ApplyTask,
    TableBatch,
    apply_mirror,
    lost_error,
    maintain,
    plan_batch,
    schema_versions,
    split,
    standing,
    truncating,
    write_changes,
)
from wal2lake.pipeline.batch_errors import BatchErrors
from wal2lake.pipeline.engine import Jobs
from wal2lake.pipeline.snapshots import Snapshots
from wal2lake.pipeline.tracing import span
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.catalog_rows import CatalogRows, Look, look
from wal2lake.postgres.connection import Connection
from wal2lake.postgres.live_tables import table_sizes
from wal2lake.sinks.base import FileAction
from wal2lake.tables.catalog_session import catalog_session
from wal2lake.tables.committed import DecodeRules
from wal2lake.tables.doubt import unexplained
from wal2lake.tables.evolve import Follower, SourceRelation
from wal2lake.tables.failures import UNFOLLOWABLE, quarantine_error
from wal2lake.tables.table import Table, Tables

if TYPE_CHECKING:
    from wal2lake.config import Config


DUE_SHARE: Final = 8  # of the tables of which maintenance is due, one in so many has its turn behind a batch


class Applied(NamedTuple):
    """What a batch held: changes of so many tables, and how many of them are in the lake by it."""

    tables: int
    changes: int


class Batches:
    """What the stream calls between two offsets; not for two threads at once."""

    def __init__(self, config: Config, jobs: Jobs, log: ChangeLog, tables: Tables, snapshots: Snapshots) -> None:
        self.config = config
        self.tables = tables
        self.changes: dict[str, int] = {}
        self._jobs = jobs
        self._log = log
        self.snapshots = snapshots
        self._retried = False
        self._due: dict[str, TableBatch] = {}  # tables of which maintenance is due, by name, with the part that said so
        self.discovered = False  # every published table is among ``tables``

    def published(self) -> list[PublishedTable]:
        """The publication's tables as they are now, each known from then on. Raises LockedError."""
        with catalog_session(self.config.source.login) as connection:
            return self._published(connection)

    def _published(self, connection: Connection) -> list[PublishedTable]:
        found = published_tables(connection, self.config.source.publication)
        for table in found:
            self.tables.of(table.namespace, table.name)
        return found

    def look(self, end: int) -> list[PublishedTable]:
        """See whether something may have been kept from the stream of a table in the lake; such a one is read anew.

        ``end``: where the stream stands. Returns what is published. Raises LockedError.

        It is no matter when that is asked, or how often: what was done in between has left its trace in the catalog.
        """
        with catalog_session(self.config.source.login) as connection:
            published = self._published(connection)
            known = self._known()
            found = look(connection, self.config.source.publication, [table.plan.relation_id for table in known])
        self._log.refresh()
        named = {str(table): table.relation_id for table in published}
        lost, newest = self._lost(known), newest_timeline(self._log.storage)
        for table in known:
            reason = self._doubt(table, named, found, newest, end)
            if table in lost:
                table.read_anew(lost_error(table.target.sink().uri, str(table)), table.applied_lsn or end)
            elif reason is not None:
                table.read_anew(SchemaChangeError(reason, hint=RESYNC, relation=str(table)), table.applied_lsn or end)
        return published

    def _known(self) -> list[Table]:
        return [table for table in self.tables if table.in_lake and table.quarantine is None]

    def _lost(self, known: Sequence[Table]) -> list[Table]:
        """Those that the lake does not have any more. Raises SinkError when it has none of several.

        Then it was moved, or its disk is not mounted, more likely than that somebody wants it to be made again there.
        """
        lost = [table for table in known if table.target.sink().is_gone()]
        if len(lost) == len(known) > 1:
            raise SinkError(
                f"The lake at {self.config.lake.path} has none of the {len(known)} tables that were brought there.",
                hint="Mount its disk, or put it back, or set lake.path to where it is; or have all of its tables read"
                " anew: `wal2lake resync --all`.",
            )
        return lost

    def _doubt(
        self, table: Table, named: Mapping[str, int], found: Look, newest: Timeline | None, end: int
    ) -> str | None:
        """Why the lake's table may differ, as a sentence; ``named``: the OIDs of what is published, by name."""
        oid, now_named = table.plan.relation_id, named.get(str(table))
        table.published = now_named is not None
        if now_named is None:
            if oid in named.values():
                table.leave()
            return None
        if now_named != oid:
            return "The table was dropped, or renamed, and another has its name."
        if table.state.stage == "unpublished":
            return "The table had another name for a while."
        if newest and any(newest.left_behind(seen.timeline, seen.bound_lsn) for seen in table.landed.snapshots):
            return "It was read from a server that has been left behind since, and had gone on further than the next."
        now = found.rows.get(oid)
        return table.doubt(now) or self._explain(table, now, found, end)

    def _explain(self, table: Table, now: CatalogRows | None, found: Look, end: int) -> str | None:
        """A Truncate that explains a file may be still to come, until the WAL of that time is applied."""
        assert table.state.rows is not None and now is not None, "there is something to compare"
        files = unexplained(table.state.rows, now, table.truncates)
        if not files:
            table.confirm(now, 0 if found.pending else found.lsn)
            return None
        if table.unexplained[0] != files:
            table.unexplained = files, found.before_lsn
        elif self._reached(table.applied_lsn or end, table.unexplained[1]):
            return "The table, or a partition, has another file, and no TRUNCATE of the stream explains it."
        return None

    def _reached(self, applied: int, lsn: int) -> bool:
        """All that had its commit record below ``lsn`` is applied."""
        return applied >= lsn or (
            self._log.durable_lsn() >= lsn and not self._log.transactions(applied, self._log.last_end_lsn).num_rows
        )

    def discover(self, end: int, *, beside: bool = False) -> None:
        """See to every published table that is not in the lake; ``end``: where the stream stands.

        If the lake has none at all and nothing was streamed they are read now, unless a stream runs ``beside``; else
        they begin to be synchronized. The first call tries those again too that were left out before; what a transient
        error kept it from is left to the next one. Raises LockedError (see ``catalog_session``).
        """
        self._retry_quarantined()
        self.tables.answer(end)
        unread = []
        for published in self.look(end):
            table = self._table(published)
            left_out = table.quarantine is not None and (self.discovered or table.quarantine.skipped)
            if not table.in_lake and not table.synchronizing and not left_out:
                unread.append(published)
        if beside or end > self._log.start_lsn or self.tables.some_in_lake:
            for published in unread:
                self._table(published).begin(end)
        elif unread:
            self.quarantine(self.snapshots.take(self.readable(unread)))
        self.discovered = True

    def _retry_quarantined(self) -> None:
        """The tables of the lake that were left out when the last run ended, published or not."""
        for table in () if self._retried else self.tables:
            if table.quarantine is not None and not table.quarantine.skipped and table.in_lake:
                table.retry()
        self._retried = True

    def readable(self, tables: Sequence[PublishedTable]) -> list[PublishedTable]:
        """Those of ``tables`` that may be read; one that is too large to be read anew unasked is quarantined."""
        most = self.config.pipeline.resync_max_bytes
        unasked = [table.relation_id for table in tables if self._table(table).is_anew_unasked]
        sizes: dict[int, int] = {}
        if unasked:
            with catalog_session(self.config.source.login) as connection:
                sizes = table_sizes(connection, unasked)
        for table in tables:
            if sizes.get(table.relation_id, 0) > most:
                self._table(table).refuse_anew(sizes[table.relation_id], most)
        return [table for table in tables if sizes.get(table.relation_id, 0) <= most]

    def quarantine(self, failed: dict[str, Wal2LakeError]) -> None:
        """Tables, by name, that could not be read."""
        for table in self.tables:
            if error := failed.get(str(table)):
                table.set_quarantine(error, 0)

    def apply(self, start: int, end: int) -> Applied:
        """Apply the batch (start, end]."""
        self._log.refresh()
        before = self.total_changes
        with span("plan"):
            planned = [(item, self._table_of(item)) for item in self._plan(start, end)]
        for _, table in planned:
            self._begin_if_new(table, start)
        for item in self._apply_parts([item for item, table in planned if table.ready]).held_up():
            self._table_of(item).fall_behind(start)
        return Applied(len(planned), self.total_changes - before)

    @property
    def total_changes(self) -> int:
        """Of all tables, since the start."""
        return sum(self.changes.values())

    def catch_up(self, table: Table, end: int) -> bool:
        """Apply what ``table`` has missed, as much as a batch may hold, and make that durable.

        ``end``: where the stream stands. True when the table is there and goes along, or cannot.
        """
        start = table.applied_lsn
        if start is not None and start < end:
            self._log.refresh()
            reach = min(end, self._log.end_lsn_within(start, max_bytes=self.config.pipeline.max_bytes_per_trigger))
            step = reach if reach > start else end
            errors = self._apply_missed(table, start, step)
            if any(isinstance(error, ConnectError) for _, error in errors.others):
                step = self._log.end_before_announcement(start, step, table.plan.relation_id)
                if step > start:  # up to there the log alone says what there is to know
                    errors = self._apply_missed(table, start, step)
            for _, error in errors.others:
                raise error
            if errors.failed:
                return True
            if step < end:
                table.fall_behind(step)
                return False
        table.become_ready()
        return True

    def _apply_missed(self, table: Table, start: int, end: int) -> BatchErrors:
        return self._apply_parts([item for item in self._plan(start, end) if self._table_of(item) is table])

    def _plan(self, start: int, end: int) -> list[TableBatch]:
        """What the batch holds, by the names that the lake has for it."""
        found = plan_batch(self._log, start, end, self._rules)
        targets = [self._table_of(item).target for item in found]
        return [
            replace(item, namespace=target.namespace, name=target.name)
            for item, target in zip(found, targets, strict=True)
        ]

    def require_none_quarantined(self) -> None:
        """Raise the reason of the tables that are left out, if any are."""
        if left_out := self.tables.quarantined():
            raise quarantine_error(left_out)

    def _begin_if_new(self, table: Table, start: int) -> None:
        """The log brings changes of a table that is not in the lake: it was published since it was last asked, or is
        left out until it can be read, and whatever snapshot reads it then has seen what is passed over now."""
        if table.in_lake or table.synchronizing:
            return
        if table.quarantine is None:
            table.begin(start)
        else:
            table.discard_copy()

    def _apply_parts(self, items: Sequence[TableBatch]) -> BatchErrors:
        """Bring each table's part into the lake, if it can be; those that cannot go on are left out from there."""
        if any(self._table_of(item).target.sink().is_gone() for item in items):
            self._lost(self._known())
        errors = BatchErrors()
        tasks: list[ApplyTask] = []
        announced = self._log.announced(items[0].start, items[0].end) if items else set()
        with span("follow schemas", tables=len(items), announced=len(announced)):
            for item in items:
                away = next((error for _, error in errors.others if isinstance(error, ConnectError)), None)
                with errors.collecting(item):
                    if away is not None and item.relation_id in announced:
                        raise away  # one wait for a server that does not answer is enough
                    tasks += self._plan_tasks(item, item.relation_id in announced)
        try:
            with span("apply", tasks=len(tasks)) as traced:
                small = bool(items) and self._log.size(items[0].start, items[0].end) <= SMALL_BYTES
                (self._run_merges if self.config.lake.mode == "mirror" else self._commit_appends)(tasks, errors, small)
                if items:
                    self._maintain_some(items[0].start, errors, small)
                traced.set(left_out=len(errors.failed))
        finally:
            for item, reason in errors.failed.values():
                table = self._table_of(item)
                leave = table.read_anew if isinstance(reason, UNFOLLOWABLE) else table.set_quarantine
                leave(reason, item.start)
        return errors

    def _plan_tasks(self, item: TableBatch, announced: bool) -> list[ApplyTask]:
        """What is to be done of ``item``, after the target has followed its schemas.

        Also when the snapshot holds all of it already: the commit that says how far the table is has to be made.
        """
        table = self._table_of(item)
        snapshot = table.snapshot_at(item.start)
        versions = schema_versions(self._log, item, snapshot, table.target.rules)
        if not table.is_of(item.relation_id) and not versions:
            return []  # another table of this name, which was gone before this one was read
        table.require_relation(item.relation_id)
        whole = table.state.rows is not None and len(table.state.rows.files) == 1
        table.truncates |= truncating(self._log, item, of_root=not whole)
        source = SourceRelation(self.config.source.login, self.config.source.publication, item.relation_id)
        task = ApplyTask(
            log_path=self.config.log.path,
            batch=item,
            parts=item.parts,
            key=table.plan.key,
            target=table.target,
            source=source,
            snapshot=snapshot,
            fill=Follower(table, source).follow(versions, item.start, item.end, announced=announced),
            converges_lsn=table.landed.converges_lsn,
            versions=tuple(versions),
            piece_bytes=PIECE_OF_BATCH * self.config.pipeline.max_bytes_per_trigger,
        )
        if self.config.lake.mode == "mirror":
            return [task]
        state = standing(table.target.sink(), str(item))
        parts = split(item) if state.applied_lsn < item.end else []
        return [replace(task, parts=own, standing=state) for own in parts]

    def _run_merges(self, tasks: Sequence[ApplyTask], errors: BatchErrors, small: bool) -> None:
        for task, merged in errors.succeeded(tasks, self._jobs.run(apply_mirror, tasks, small=small)):
            self._count(task.batch, merged.changes)
            if merged.due:
                self._due[str(task)] = task.batch

    def _commit_appends(self, tasks: Sequence[ApplyTask], errors: BatchErrors, small: bool) -> None:
        """Commit what the tasks of a table wrote, all of it or nothing."""
        written: dict[str, tuple[ApplyTask, list[FileAction]]] = {}
        for task, actions in errors.succeeded(tasks, self._jobs.run(write_changes, tasks, small=small)):
            written.setdefault(str(task.batch), (task, []))[1].extend(actions)
        for task, actions in written.values():
            found = task.standing
            assert found is not None
            with errors.collecting(task.batch):
                if task.target.sink().commit_files(actions, task.batch.end, found.schema, found.applied_lsn):
                    self._due[str(task)] = task.batch
                self._count(task.batch, task.batch.changes)

    def _maintain_some(self, start: int, errors: BatchErrors, small: bool) -> None:
        """Do what is due of some tables: where many change at the same pace it falls due for all with one batch, and
        the next would wait for that. What a process that ends leaves undone falls due again, or is left to Upkeep."""
        ready = [item for item in self._due.values() if self._table_of(item).ready]
        some = ready[: -(-len(ready) // DUE_SHARE)]
        targets = [self._table_of(item).target for item in some]
        outcomes = self._jobs.run(maintain, targets, small=small) if some else []
        for item, outcome in zip(some, outcomes, strict=True):
            del self._due[str(item)]
            if isinstance(outcome, Wal2LakeError):
                errors.add(replace(item, start=start), outcome)

    def _count(self, item: TableBatch, changes: int) -> None:
        self.changes[str(item)] = self.changes.get(str(item), 0) + changes

    def _table_of(self, item: TableBatch) -> Table:
        return self.tables.owner(item.relation_id, item.namespace, item.name)

    def _table(self, table: PublishedTable) -> Table:
        return self.tables.of(table.namespace, table.name)

    @property
    def _rules(self) -> DecodeRules:
        settings = self.config.pipeline
        return DecodeRules(settings.unrepresentable, settings.text_columns)
