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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from wal2lake.columnar.cells import ShapeError
from wal2lake.errors import Wal2LakeError
from wal2lake.login import Login
from wal2lake.pipeline.engine import Jobs
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.tracing import span
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.catalog_rows import CatalogRows, rows_in
from wal2lake.postgres.live_tables import Writer, await_running_transactions, heap_files, wal_end
from wal2lake.postgres.one_server import pinned
from wal2lake.postgres.snapshot import SnapshotIdentity, SnapshotKeeper
from wal2lake.tables.catalog_session import catalog_session
from wal2lake.tables.chunk_copy import CopyTask, TableChangedError, copy_chunk
from wal2lake.tables.chunks import (
    BLOCK_BYTES,
    plan_snapshot,
    require_columns,
    require_sent_keys,
    still_holds,
    table_schema,
)
from wal2lake.tables.failures import TABLE_ERRORS, errors_of
from wal2lake.tables.landing import land_snapshot
from wal2lake.tables.reread import has_key_text
from wal2lake.tables.state import Chunk, SnapshotPlan
from wal2lake.tables.table import Table, Tables
from wal2lake.tables.table_folder import TableFolder

if TYPE_CHECKING:
    from wal2lake.config import Config

T = TypeVar("T")
_ROUNDS = 20
_TAG = "wal2lake-snapshot"  # of the jobs that read chunks
WAVE_BYTES = 16 << 20  # a chunk of so many bytes has a core to itself,
WAVE_TASKS = 16  # and of smaller ones no more than so many have one together: batches wait for it
_NAMED = 5  # of the transactions that are waited for


@dataclass(frozen=True, slots=True)
class Pace:
    """How much of the machine reading takes: so many cores are left to others, in waves between which other threads'
    jobs get their turn; and after so many seconds a chunk waits for a lock no more (0: it waits; LockedError)."""

    spare_cores: int = 0
    lock_timeout_s: int = 0


ALONE = Pace()
BESIDE_STREAM = Pace(spare_cores=1, lock_timeout_s=5)


class Snapshots:
    """Brings tables into the lake, so that they stand at ``lsn``, where the log starts.

    ``copying`` tells other threads that chunks are being read.
    """

    def __init__(self, config: Config, jobs: Jobs, tables: Tables, lsn: int, waiting: Interrupts) -> None:
        self.config = config
        self._jobs = jobs
        self._tables = tables
        self._lsn = lsn
        self._waiting = waiting
        self.copying = False

    def take(self, tables: Sequence[PublishedTable], pace: Pace = ALONE) -> dict[str, Wal2LakeError]:
        """Bring ``tables`` into the lake, as ``read`` and ``land`` say; those that cannot be come with their reason."""
        failed = self.read(tables, pace)
        return failed | self.land([table for table in tables if str(table) not in failed])

    def read(self, tables: Sequence[PublishedTable], pace: Pace = ALONE) -> dict[str, Wal2LakeError]:
        """Read ``tables`` into data files; those that cannot be read come back with their reason.

        Raises what concerns more than one table; whatever is read by then stays read.
        """
        failed: dict[str, Wal2LakeError] = {}
        self.copying = True
        try:
            for _ in range(_ROUNDS):
                unread = [t for t in tables if str(t) not in failed and not self._is_read(t)]
                if not unread or not self._copy_round(unread, failed, pace):
                    break
        finally:
            self.copying = False
        return failed

    def cancel(self) -> None:
        """Another thread gives up the chunks that are being read, if any; what is read by then stays read."""
        if self.copying:
            self._jobs.cancel(_TAG)

    def land(self, tables: Sequence[PublishedTable]) -> dict[str, Wal2LakeError]:
        """Make tables of the lake of what is read whole; where that fails, the table comes back with its reason."""
        failed: dict[str, Wal2LakeError] = {}
        read = [table for table in tables if self._is_read(table)]
        small = [table for table in read if self._table(table).plan.blocks * BLOCK_BYTES <= WAVE_BYTES]

        def land(table: PublishedTable) -> None:
            try:
                with errors_of(str(table)):
                    land_snapshot(self._table(table), table, self._lsn)
            except TABLE_ERRORS as error:
                failed[str(table)] = error

        for outcome in self._jobs.run(land, small, small=True):
            _raising(outcome)
        for table in read:
            if table not in small:
                land(table)
        return failed

    def _copy_round(self, tables: Sequence[PublishedTable], failed: dict[str, Wal2LakeError], pace: Pace) -> bool:
        """One round; True when a table changed under it, and another round is due."""
        settings = self.config.source
        with catalog_session(settings.login) as connection:
            settled = wal_end(connection)
            await_running_transactions(connection, self._wait)
            unread = {table.relation_id for table in tables}
            heaps = heap_files(connection, sorted(unread))
            with SnapshotKeeper(pinned(settings.login, connection.pgconn), settled) as keeper:
                place = keeper.identity, keeper.login
                rows = rows_in(connection, settings.publication, unread, keeper.identity.name)
                published = published_tables(connection, settings.publication)

                def plan(table: PublishedTable) -> list[CopyTask]:
                    relation = table.relation_id
                    return self._plan_tasks(table, heaps[relation], rows[relation], *place, pace, failed)

                visible = [table for table in published if table.relation_id in rows]
                planned = map(_raising, self._jobs.run(plan, visible, small=True))  # each waits for a disk
                tasks = [task for own in planned for task in own]
                waves = [tasks]
                if pace.spare_cores:
                    waves = _waves(tasks, max(1, self._jobs.parallelism - pace.spare_cores))
                outcomes = self._run_in_waves(waves)
        younger = any(table.relation_id in unread - rows.keys() for table in published)  # than the snapshot
        return self._collect_failures(tasks[: len(outcomes)], outcomes, failed) or younger

    def _run_in_waves(self, waves: Sequence[Sequence[CopyTask]]) -> list[int | Wal2LakeError]:
        """The outcomes in the tasks' order, up to one that would be that of all others too."""
        outcomes: list[int | Wal2LakeError] = []
        for wave in waves:
            self._waiting.check_for_interrupts()
            with span("copy chunks", chunks=len(wave)):
                came = self._jobs.run(copy_chunk, wave, _TAG)
            outcomes += came
            if any(map(_concerns_all_tables, came)):
                break
        return outcomes

    def _collect_failures(
        self, tasks: Sequence[CopyTask], outcomes: Sequence[int | Wal2LakeError], failed: dict[str, Wal2LakeError]
    ) -> bool:
        """Note the tables that cannot be read; True when one is to be read otherwise: it changed, or a column of it has
        to land as text. Any other error is everyone's and is raised."""
        again = False
        for task, outcome in zip(tasks, outcomes, strict=True):
            if isinstance(outcome, ShapeError) and self._table(task.table).hold_as_text(outcome.column or ""):
                again = True
            elif isinstance(outcome, TABLE_ERRORS):
                failed.setdefault(str(task.table), outcome)
            elif isinstance(outcome, TableChangedError):
                again = True
            elif isinstance(outcome, Wal2LakeError):
                raise outcome
        return again

    def _wait(self, running: Sequence[Writer]) -> None:
        some = ", ".join(map(str, running[:_NAMED])) + (" …" if len(running) > _NAMED else "")
        self._waiting.pause(f"Before a snapshot, waiting for {len(running)} transaction(s) that write to end: {some}.")

    def _plan_tasks(
        self,
        table: PublishedTable,
        heap: str,
        rows: CatalogRows,
        snapshot: SnapshotIdentity,
        login: Login,
        pace: Pace,
        failed: dict[str, Wal2LakeError],
    ) -> list[CopyTask]:
        """The tasks that are left to do of the table; none, and its reason in ``failed``, if it cannot be read."""
        try:
            with errors_of(str(table)):
                require_columns(table_schema(table))
                known = self._table(table)
                self.plan(known, table, heap, rows)
                if self.config.lake.mode == "mirror":
                    require_sent_keys(known.plan, rows)
                return [
                    CopyTask(
                        dsn=login,
                        log=self.config.log.path,
                        pipeline=self.config.pipeline.name,
                        table=table,
                        plan=known.plan,
                        chunk=chunk,
                        snapshot=snapshot,
                        target=known.target,
                        lsn=self._lsn,
                        lock_timeout_s=pace.lock_timeout_s,
                    )
                    for chunk in _missing_chunks(known.folder, known.plan)
                ]
        except TABLE_ERRORS as error:
            failed[str(table)] = error
            return []

    def plan(self, known: Table, table: PublishedTable, heap: str, rows: CatalogRows) -> None:
        """Keep the plan under way, if what was read for it can stand beside what is read now; else make a new one.

        Where it cannot, each round has a plan of its own, even if the last one read nothing yet: a task of a driver
        that was killed may outlive it, and what it still finishes must not count for this round.
        """
        settings, plan = self.config.pipeline, known.state.plan
        types = known.types_to_read(table.columns)
        kinds = {column.name: column.type for column in table_schema(table, types).columns}
        several = plan is not None and bool(plan.key) and self.config.lake.mode == "mirror"
        # rows that move between two snapshots are asked for by their keys
        several = several and plan is not None and all(has_key_text(kinds[name]) for name in plan.key if name in kinds)
        same = plan is not None and several and still_holds(plan, table, heap, settings.text_columns, types)
        if same and known.state.rows == rows:
            known.resume_copy()
            return
        cores = self._jobs.parallelism
        fresh = plan_snapshot(table, heap, settings.snapshot_chunk_bytes, cores, settings.text_columns, types)
        known.begin_copy(fresh, rows, types)

    def _is_read(self, table: PublishedTable) -> bool:
        known = self._table(table)
        return known.state.plan is not None and not _missing_chunks(known.folder, known.plan)

    def _table(self, table: PublishedTable) -> Table:
        return self._tables.of(table.namespace, table.name)


def _missing_chunks(folder: TableFolder, plan: SnapshotPlan) -> list[Chunk]:
    done = folder.chunks(plan.plan_id)
    return [chunk for chunk in plan.chunks if chunk.number not in done]


def _raising(outcome: T | Wal2LakeError) -> T:
    """What a job's task returned, where it raised nothing."""
    if isinstance(outcome, Wal2LakeError):
        raise outcome
    return outcome


def _waves(tasks: Sequence[CopyTask], at_once: int) -> list[list[CopyTask]]:
    """The tasks, in order, in groups of so many; small ones count for a part of one."""
    waves: list[list[CopyTask]] = []
    left = 0.0
    for task in tasks:
        share = min(1.0, max(task.weight / WAVE_BYTES, 1 / WAVE_TASKS))
        if left < share:
            waves.append([])
            left = at_once
        waves[-1].append(task)
        left -= share
    return waves


def _concerns_all_tables(outcome: int | Wal2LakeError) -> bool:
    return isinstance(outcome, Wal2LakeError) and not isinstance(outcome, (*TABLE_ERRORS, TableChangedError))
