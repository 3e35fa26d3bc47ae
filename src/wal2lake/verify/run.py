"""Source = lake, table by table, at one LSN, while both go on.

1. A snapshot of the source and its exact LSN (source_snapshot.py); right then a barrier in the change log, so that the
   pipeline ends a batch at the last commit before that LSN.
2. The source digested per key range (table_comparison.py), each table locked only as long as it is read. A table that
   a TRUNCATE or a rewrite was faster with: then again with a new snapshot, that table first.
3. Wait, with no lock held, until each lake table stands at the LSN. A batch that was already beyond cannot be taken
   apart: then again with a new snapshot.
4. The lake digested at the versions that stand for the LSN, and compared.

A lake that is behind and does not move is compared as it stands: equal is a proof whatever the log says, and a
difference is reported with what to do first.

What goes wrong with one table is that table's outcome, and the others are compared. A table that the pipeline leaves
out is not waited for; one that the lake has and the publication has not any more is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.tables import known_tables
from wal2lake.config import Config
from wal2lake.errors import ConfigError, PublicationError, RightsError, ServerError, SparkError, VerifyError
from wal2lake.names import qualified, split_qualified
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.connection import connect
from wal2lake.verify.comparison import Comparison, compare_columns
from wal2lake.verify.lake import verify_session
from wal2lake.verify.locations import Location, locate, require_readable, rows_of, types_of
from wal2lake.verify.position import await_snapshots, await_tables
from wal2lake.verify.report import TableResult, VerifyReport, uncompared
from wal2lake.verify.source_snapshot import APPLICATION, SourceSnapshot, TableMovedError, source_snapshot
from wal2lake.verify.standing import left_out
from wal2lake.verify.table_comparison import RANGE_ROWS, SourceDigest, TableComparison, digest_source

T = TypeVar("T")
_OF_ONE_TABLE = (RightsError, ServerError, SparkError, VerifyError)
_OURS = re.compile(r"^wal2lake\.errors\.\w+: (.+)$", re.M)
_ATTEMPTS = 5
_WORKERS = 4
_READERS = 2  # sessions that read the source at once
_UNFIT = "The pipeline took batches across every snapshot's LSN: stop the workload for a moment, then verify again."


def verify(
    config: Config,
    spark: SparkSession,
    tables: Collection[str] | None = None,
    *,
    timeout_s: float = 60.0,
    range_rows: int = RANGE_ROWS,
    say: Callable[[str], None] = lambda _: None,
    show: Callable[[float], object] = lambda _: None,
) -> VerifyReport:
    """Compare the published tables (or only ``tables``, as schema.name) with the lake.

    Waits for the pipeline as long as it makes progress within ``timeout_s``. ``range_rows`` is about how many rows a
    key range holds. ``say`` is told what is waited for, ``show`` which share of the tables is digested on both sides, 0
    to 1; it begins again with each snapshot. Differences are in the report; raises ConfigError (append
    mode, no log, an unknown table), PublicationError for a publication without tables, VerifyError when no snapshot
    fits or a prepared transaction keeps it from being taken, and what the source refuses as a whole.
    """
    published = chosen_tables(config, tables)
    job = _Job(config, verify_session(spark), ChangeLog.open(config.log.path), tables, timeout_s, range_rows, say, show)
    job.await_snapshots(published)
    for _ in range(_ATTEMPTS - 1):
        try:
            report = job.attempt()
        except TableMovedError as error:
            job.read_first(error.relation)
            report = None
        if report is not None:
            return report
        say("The pipeline or a TRUNCATE was faster than the snapshot; taking another.")
    return job.last_attempt()


def chosen_tables(config: Config, only: Collection[str] | None = None) -> list[PublishedTable]:
    """The tables to compare (``only`` these, as schema.name), by the source's word: to be asked before Spark starts.

    Raises what verify raises of a lake, a log, a source or names that there is nothing to compare with.
    """
    if config.lake.mode != "mirror":
        raise ConfigError(
            "Verify compares rows, and an append-mode lake holds changes instead.",
            hint='It works on lakes with lake.mode = "mirror".',
        )
    require_readable(config.lake)
    ChangeLog.open(config.log.path)
    with connect(config.source.login, application_name=APPLICATION) as connection:
        return _chosen(config, published_tables(connection, config.source.publication), only)


def _chosen(config: Config, published: Sequence[PublishedTable], only: Collection[str] | None) -> list[PublishedTable]:
    if not published:
        raise PublicationError(
            f"The publication {config.source.publication} has no table: there is nothing to compare.",
            hint="Add tables (ALTER PUBLICATION … ADD TABLE …), or name another in source.publication.",
        )
    names = {str(table) for table in published}
    wanted = {qualified(*split_qualified(name)) or name for name in only or ()}
    unknown = sorted(wanted - names)
    if unknown:
        raise ConfigError(f"{unknown[0]} is not published.", hint=f"Published: {', '.join(sorted(names))}.")
    return [table for table in published if not wanted or str(table) in wanted]


@dataclass(frozen=True, slots=True)
class _Job:
    config: Config
    session: SparkSession
    log: ChangeLog
    only: Collection[str] | None
    timeout_s: float
    range_rows: int
    say: Callable[[str], None]
    show: Callable[[float], object]
    first: list[str] = field(default_factory=list)  # tables that moved before they were read, the last one first

    def await_snapshots(self, tables: Sequence[PublishedTable]) -> None:
        """Give a pipeline that is still copying tables the time to finish."""
        await_snapshots(self.log, self._locate_all(tables), self.timeout_s, self.say, self._expected)

    def read_first(self, name: str | None) -> None:
        """Have the table read first from now on."""
        if name is not None:
            self.first[:] = [name, *(other for other in self.first if other != name)]

    def last_attempt(self) -> VerifyReport:
        """An attempt that is compared however the lake stands, but for tables that moved once more."""
        report = self.attempt(last=True)
        assert report is not None
        return report

    def attempt(self, *, last: bool = False) -> VerifyReport | None:
        """One snapshot; None when it does not fit the lake, unless it is the ``last``. Raises TableMovedError."""
        source, notes = self.config.source, list[str]()
        with source_snapshot(source.login, self.timeout_s, self.say) as snapshot:
            with self._barrier(snapshot):
                published = snapshot.published(source.publication)
                tables = _chosen(self.config, published, self.only)
                digests = self._digest_source(snapshot, tables, last=last)
                awaited = [table for table in tables if not isinstance(digests.get(str(table)), TableResult)]
                fits, note = await_tables(
                    self.log, self._locate_all(awaited), snapshot.lsn, self.timeout_s, self.say, self._expected
                )
            if not (fits or last):
                return None
            compare = partial(self._attempted, snapshot, partial(self._compare, snapshot, digests, notes), last)
            results = [
                *self._for_each(tables, compare, _WORKERS, snapshot, done=0.5).values(),
                *self._unpublished(snapshot, published),
            ]
        report = VerifyReport(snapshot.lsn, sorted(results, key=str))
        said = filter(None, [note if fits else _UNFIT, *notes])
        return report if report.ok else replace(report, note=" ".join(said) or None)

    def _digest_source(
        self, snapshot: SourceSnapshot, tables: Sequence[PublishedTable], *, last: bool
    ) -> dict[str, SourceDigest | TableResult | None]:
        """By name: the digest, what is wrong instead, or None for a table that is not in the lake yet."""
        first = {name: place for place, name in enumerate(self.first)}
        ordered = sorted(tables, key=lambda table: first.get(str(table), len(first)))
        digest = partial(self._attempted, snapshot, partial(self._digest, snapshot), last)
        return self._for_each(ordered, digest, _READERS, snapshot)

    def _attempted(
        self, snapshot: SourceSnapshot, work: Callable[[PublishedTable], T], last: bool, table: PublishedTable
    ) -> T | TableResult:
        """What ``work`` makes of the table. One that is left out is not worked at, and what is wrong with this table
        alone is its result. Raises TableMovedError unless it is the ``last`` snapshot."""
        names = table.namespace, table.name
        if (why := left_out(self.log, self.config.pipeline.name, *names)) is not None:
            return uncompared(*names, snapshot.lsn, why.reason, why.outcome)
        try:
            return work(table)
        except TableMovedError:
            if not last:
                raise
            problem = f"it was truncated, rewritten, altered or locked during each of {_ATTEMPTS} snapshots"
            return uncompared(*names, snapshot.lsn, problem)
        except _OF_ONE_TABLE as error:
            return uncompared(*names, snapshot.lsn, " ".join(filter(None, (error.message, error.hint))))

    def _expected(self, tables: Sequence[Location]) -> list[Location]:
        """Those that the pipeline does not leave out by now."""
        pipeline = self.config.pipeline.name
        return [table for table in tables if left_out(self.log, pipeline, *split_qualified(table.name)) is None]

    def _unpublished(self, snapshot: SourceSnapshot, published: Sequence[PublishedTable]) -> Iterator[TableResult]:
        """The tables that the lake has, and nothing brings changes of any more; where all were asked for."""
        names = set(map(str, published))
        for namespace, name in () if self.only else known_tables(self.log.storage, self.config.pipeline.name):
            if qualified(namespace, name) not in names and locate(self.config.lake, namespace, name).exists():
                problem = "it is not in the publication any more; the lake has it as it was then"
                yield uncompared(namespace, name, snapshot.lsn, problem, "not published")

    def _for_each(
        self,
        tables: Sequence[PublishedTable],
        work: Callable[[PublishedTable], T],
        threads: int,
        snapshot: SourceSnapshot,
        *,
        done: float = 0.0,
    ) -> dict[str, T]:
        """What ``work``, which is the other half where one is ``done``, makes of each table, by name, begun in this
        order.

        Whatever ends it early, the first failure or Ctrl-C, ends what has begun on either side.
        """
        context, tag = self.session.sparkContext, f"wal2lake-verify-{snapshot.lsn:x}"
        with ThreadPoolExecutor(threads, initializer=context.addJobTag, initargs=(tag,)) as pool:
            begun = {str(table): pool.submit(work, table) for table in tables}
            try:
                for number, future in enumerate(as_completed(begun.values()), 1):
                    future.result()
                    self.show(done + number / len(begun) / 2)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                context.cancelJobsWithTag(tag)
                snapshot.cancel()
                raise
        return {name: future.result() for name, future in begun.items()}

    def _digest(self, snapshot: SourceSnapshot, table: PublishedTable) -> SourceDigest | None:
        """Compared with the columns that the lake has by now; if it gets others on its way, it is read again."""
        with _mapped_errors(table):
            location = self._locate(table)
            position = location.position(snapshot.lsn)
            if position is None or position.version < 0:
                return None
            return digest_source(snapshot, self._comparison(table, types_of(location.at(position))), self.range_rows)

    def _locate_all(self, tables: Iterable[PublishedTable]) -> list[Location]:
        return list(map(self._locate, tables))

    def _locate(self, table: PublishedTable) -> Location:
        return locate(self.config.lake, table.namespace, table.name, table.relation_id)

    def _comparison(self, table: PublishedTable, types: Mapping[str, Any]) -> Comparison:
        settings = self.config.pipeline
        own = dict(settings.policies(table.namespace, table.name))
        finite = {column.name for column in table.columns if own.get(column.name, settings.unrepresentable) == "null"}
        return compare_columns(table, types, finite=finite)

    @contextmanager
    def _barrier(self, snapshot: SourceSnapshot) -> Iterator[None]:
        name = f"verify-{snapshot.lsn:x}"
        self.log.request_barrier(name, snapshot.lsn)
        try:
            yield
        finally:
            self.log.remove_barrier(name)

    def _compare(
        self,
        snapshot: SourceSnapshot,
        digests: Mapping[str, SourceDigest | TableResult | None],
        notes: list[str],
        table: PublishedTable,
    ) -> TableResult:
        """The result; among ``notes``, why its ranges could not be narrowed, if so. Raises TableMovedError."""
        digest = digests.get(str(table))
        if isinstance(digest, TableResult):
            return digest
        location = self._locate(table)
        with _mapped_errors(table):
            position = location.position(snapshot.lsn)
            if position is None or position.version < 0:
                what = "has no such table" if position is None else f"has no version as old as {snapshot.lsn}"
                return uncompared(table.namespace, table.name, snapshot.lsn, f"the lake {what}")
            version = location.at(position)
            comparison = self._comparison(table, types_of(version))
            if digest is None or digest.comparison != comparison:
                digest = digest_source(snapshot, comparison, self.range_rows)
            both = TableComparison(snapshot, digest, rows_of(self.session, version, location))
            result = both.run(position.version)
            if both.note is not None:
                notes.append(both.note)
            return result


@contextmanager
def _mapped_errors(table: PublishedTable) -> Iterator[None]:
    """Let Spark's and Delta's exceptions leave the block as errors of our tree; their first line names files only."""
    try:
        yield
    except PySparkException as error:
        hint = "Was the table vacuumed meanwhile? Then verify again."
        raise SparkError(
            f"Spark could not read the table: {_first_line(error)}", relation=str(table), hint=hint
        ) from error
    except DeltaError as error:
        raise VerifyError(f"The Delta table cannot be read: {_first_line(error)}", relation=str(table)) from error


def _first_line(error: Exception) -> str:
    if said := _OURS.search(str(error)):  # raised in a task
        return said[1]
    return next(iter(str(error).splitlines()), type(error).__name__)
