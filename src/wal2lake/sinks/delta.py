"""Delta by delta-rs: every commit is a compare-and-swap on the version whose applied LSN was read.

(pipeline, LSN) travels as the app transaction of the very commit that carries the data, and no commit is ever retried
on another version (max_commit_retries=0): if anyone committed in between, ours fails and nothing is doubled.
A table that bears no app transaction of this pipeline is not ours, and is never written. A second app transaction says
which snapshot the rows began with: an LSN alone does not tell two snapshots apart that start at the same one. A third
is in the commit that finds many others since the last maintenance, whatever numbers they have: who made that commit is
told that maintenance is due, and no other, so it is due once and needs no commit to be called done. A fourth is the
LSN up to which the rows are of several snapshots. Two more are the seconds of retention that we gave the table's
properties: who finds another value there knows that it is the user's.

Rows of large files are marked in deletion vectors (marking.py) unless the setting or the table's property says no; a
table that has some is read with them, whatever either says. Tables made before that was so say no, and are as they were
to whoever reads them, until they are read anew.

Checkpoints are made by maintenance alone, for delta_past.py's reason.

Source: Delta transaction log protocol, "Transaction Identifiers".
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import RemoveAction, create_table_with_add_actions

from wal2lake.apply.fold import Folded, FoldedRows
from wal2lake.apply.row_index import Mask
from wal2lake.apply.unify import Fill
from wal2lake.deltadv.bitmap import VectorError
from wal2lake.deltadv.log import ENABLED, DataFile, LiveFiles
from wal2lake.errors import RESYNC, SchemaChangeError, SinkError, Wal2LakeError
from wal2lake.lakes import Place
from wal2lake.lsn import LSN
from wal2lake.sinks.base import FileAction, SinkConflictError, SinkState, TargetError, is_applied, require_at
from wal2lake.sinks.columns import comment, evolved, refuse_case_twins
from wal2lake.sinks.commit_log import CommitLog
from wal2lake.sinks.datafiles import read_batches, write_data_files
from wal2lake.sinks.dead_rows import NONE_DEAD, DeadRows
from wal2lake.sinks.delta_files import add_action, files_of, with_values
from wal2lake.sinks.delta_past import LOG, REMOVED_FILES, Past, kept_seconds, read_past
from wal2lake.sinks.delta_schema import as_said, columns, has_naive_time
from wal2lake.sinks.folder import File, Folder
from wal2lake.sinks.key_indexes import INDEXES, KeyIndexes
from wal2lake.sinks.marking import (
    commits_alike,
    description_actions,
    enabling_actions,
    has_vectors,
    is_plain,
    may_mark,
    property_actions,
)
from wal2lake.sinks.open_tables import OPEN_TABLES, OpenTable
from wal2lake.sinks.rearrange import to_rearrange
from wal2lake.sinks.retention import Retention, interval
from wal2lake.sinks.rewrite import CommittedFiles, Rewrite, holds, merge_all, without
from wal2lake.sinks.sink_errors import GivenError, failure, marking_given_errors

MAINTAIN_EVERY: Final = 20  # versions; opening a table costs some 0.5 ms for each since the last checkpoint
PROPERTIES: Final = {"delta.checkpointInterval": str(MAINTAIN_EVERY)}
# the last one without a column of its type: delta-rs names it wherever it sets a property of a table with features
_FEATURES: Final = {"timestampNtz", "deletionVectors", "appendOnly", "invariants", "variantType"}
_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
MARK_BYTES: Final = 256 << 10  # a smaller file is as soon rewritten as marked
ORPHAN_S: Final = 7 * 86_400  # longer than any snapshot takes, whose files nobody names until its end
_NOT_OURS: Final = "Move it away, or choose another lake.path or pipeline.name."


T = TypeVar("T")


class DeltaSink:
    """The Delta table at ``place`` as the target of one table of ``pipeline``. A ``Sink`` (sinks/base.py).

    ``cache``: a folder of this machine for what is made of a table in an object store, None: nothing is kept.
    """

    def __init__(
        self,
        place: Place | str,
        pipeline: str,
        retention: Retention | None = None,
        deletion_vectors: bool = False,
        cache: Path | None = None,
    ) -> None:
        self._folder = Folder(place)
        self.uri = uri = self._folder.uri
        if self._folder.is_local and _ESCAPE.search(uri):
            raise SinkError(f"delta-rs cannot use {uri}: it takes %XX for an escape.", hint="Choose another lake.path.")
        self.pipeline = pipeline
        self._snapshot_id = f"wal2lake-snapshot:{pipeline}"
        self._converges_id = f"wal2lake-converges:{pipeline}"
        self._maintained_id = f"wal2lake-maintained:{pipeline}"
        self._kept_ids = {REMOVED_FILES: f"wal2lake-files-kept:{pipeline}", LOG: f"wal2lake-log-kept:{pipeline}"}
        self._retention = retention or Retention()
        self._log = CommitLog(self._folder, pipeline)
        self._cache = Path(uri) if self._folder.is_local else cache
        self._lent: OpenTable | None = None  # while an operation is under way, see _mapped_errors
        self._marks = deletion_vectors

    def state(self) -> SinkState | None:
        """The version, applied LSN and columns; None if nothing is there. Raises TargetError if it is not ours."""
        with self._mapped_errors():
            table = self._open()
            return self._standing(table)

    def is_gone(self) -> bool:
        """``Sink.is_gone``; a folder without a log is no table."""
        with self._mapped_errors():
            return self._folder.lacks("_delta_log")

    def count_rows(self) -> int:
        """The rows of the newest version, from the log's statistics alone; 0 if nothing is there."""
        with self._mapped_errors():
            table = self._open()
            if table is None:
                return 0
            vectors = [file.vector for file in self._named(table).values() if file.vector is not None]
            counts = files_of(table)["num_records"].to_pylist()
            return sum(count or 0 for count in counts) - sum(vector.cardinality for vector in vectors)

    def write_files(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[FileAction]:
        """Write durable Parquet files, of which no reader knows until commit_files names them."""
        with self._mapped_errors():
            return write_data_files(self._folder, marking_given_errors(batches), schema)

    def read_files(self, actions: Iterable[FileAction], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of Parquet files of write_files, whether a commit names them by now or not."""
        for action in actions:
            yield from read_batches(self._folder, action.path, schema)

    def without(self, actions: Sequence[FileAction], keys: pa.Table, schema: pa.Schema) -> list[FileAction]:
        """``Sink.without``; one pass over the files' key columns, and a rewrite of those that hold a key."""
        with self._mapped_errors():
            return without(self._folder, schema, actions, keys, self._write)

    def commit_files(
        self,
        actions: Sequence[FileAction],
        lsn: int,
        schema: pa.Schema,
        applied: int | None,
        plan_id: str | None = None,
    ) -> bool:
        """``Sink.commit_files``, with the end LSN in the Delta commit that names the files."""
        refuse_case_twins(schema)
        with self._mapped_errors():
            table = self._open()
            if is_applied(self.uri, self._standing(table), lsn, applied):
                return False
            if table is None:
                self._create(actions, lsn, schema, plan_id)
                return False
            self._require(table, schema)
            return self._commit(table, actions, [], lsn)

    def replace_files(
        self, actions: Sequence[FileAction], lsn: int, schema: pa.Schema, applied: int, plan_id: str | None = None
    ) -> None:
        """``Sink.replace_files``, in one Delta commit."""
        refuse_case_twins(schema)
        with self._mapped_errors():
            table = self._open()
            state = self._standing(table)
            same = state is not None and (plan_id is None or state.plan_id == plan_id.zfill(12))
            if same and is_applied(self.uri, state, lsn, applied):
                return
            require_at(self.uri, state, lsn, applied)
            assert table is not None
            self._replace(self._marking(table), actions, schema, lsn, plan_id)

    def merge(self, folded: Folded | FoldedRows, lsn: int, applied: int, converges_lsn: int | None = None) -> bool:
        """Apply the fold in one commit. Raises TargetError when the target lacks rows that the batch builds on.

        Returns whether ``maintain`` is due.
        """
        return self._merge(iter([folded]), lsn, applied, converges_lsn)

    def merge_pieces(self, pieces: Iterable[Folded | FoldedRows], lsn: int, applied: int) -> bool:
        """``Sink.merge_pieces``: each piece finds the files as those before it have left them, committed or not."""
        return self._merge(marking_given_errors(pieces), lsn, applied)

    def _merge(
        self, pieces: Iterator[Folded | FoldedRows], lsn: int, applied: int, converges_lsn: int | None = None
    ) -> bool:
        with self._mapped_errors():
            table = self._open()
            if is_applied(self.uri, self._standing(table), lsn, applied):
                return False
            assert table is not None
            committed = self._target(table)
            written: dict[str, FileAction] = {}
            with self._log.removing_if_refused(table, written):
                target = merge_all(committed, pieces, self._write, written)
                gone = set(committed.files["path"].to_pylist()) - set(target.files["path"].to_pylist())
                return self._commit(table, list(written.values()), sorted(gone), lsn, converges_lsn, target.dead)

    def holds(self, keys: pa.Table) -> Mask:
        """bool[keys]: the target has a row with this key."""
        with self._mapped_errors():
            return holds(self._target(self._require_table()), keys)

    def evolve(self, schema: pa.Schema, fill: Fill | None = None) -> None:
        """Add the columns that ``schema`` has more (behind the others) and widen those that it has wider.

        Existing rows get ``fill``'s value in a new column, else NULL, in the same commit that adds it, so that
        doing it again does nothing. Columns that ``schema`` lacks stay. Raises SchemaChangeError for other changes.
        """
        with self._mapped_errors():
            table = self._require_table()
            have = columns(table)
            want = evolved(have, schema)
            refuse_case_twins(want)
            if want.equals(have):
                return
            new = set(want.names) - set(have.names)
            added = {name: value for name, value in (fill or {}).items() if name in new and value.is_valid}
            if added or want.types[: len(have)] != have.types:
                self._rewrite_all(table, want, added)
            else:
                fields = [Field.from_arrow(field) for field in list(want)[len(have) :]]
                with self._log.durably(table, one=True):
                    table.alter.add_columns(fields, **self._log.options(None))

    def maintain(self) -> float | None:
        """Join small files when there are many, and delete what the table no longer has to keep; ``Sink.maintain``.

        Every merge leaves the files that it rewrote, so a long retention costs disk, and a short one cuts queries off
        that run longer. How long it is stands in the table's properties before anything goes. Files of writers that
        never committed go after ORPHAN_S.
        """
        with self._mapped_errors():
            table = self._rearrange(self._require_table())
            past = self._past(table)
            table = self._settle_retention(table, past)
            kept_s = kept_seconds(self.uri, table.metadata().configuration)
            self._delete(past.removed, kept_s)
            self._checkpoint(table, past)
            left = self._delete(past.removed, kept_s)  # the checkpoint knows no more of what it was time for by then
            self._delete(past.unnamed, max(ORPHAN_S, kept_s))
            if self._cache is not None:
                KeyIndexes(self._cache).remove_others(files_of(table)["path"].to_pylist())
            return min((file.since + kept_s - past.now for file in left), default=None)

    def _rearrange(self, table: DeltaTable) -> DeltaTable:
        """Join small files where there are many, and leave out what is dead of those that are much so."""
        target = self._target(table)
        removed = to_rearrange(target)
        if not removed:
            return table
        self._apply(table, Rewrite(removed, chain.from_iterable(map(target.live_rows, removed)), {}), target.dead)
        return self._require_table()

    def _settle_retention(self, table: DeltaTable, past: Past) -> DeltaTable:
        marks = {name: self._transaction(table, mark) for name, mark in self._kept_ids.items()}
        ours = {name: seconds for name, seconds in marks.items() if seconds is not None}
        changes = past.settle(table.metadata().configuration, ours, self._retention)
        if not changes:
            return table
        properties = {name: interval(seconds) for name, seconds in changes.items()}
        told = {self._kept_ids[name]: seconds for name, seconds in changes.items()}
        if not self._folder.is_local or table.protocol().min_reader_version == 3:
            self._log.put(table, property_actions(table, *self._log.said(None, told), properties))
        else:
            with self._log.durably(table):
                table.alter.set_table_properties(properties, raise_if_not_exists=False, **self._log.options(None, told))
        return self._require_table()

    def _past(self, table: DeltaTable) -> Past:
        files = files_of(table)
        live = dict(zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True))
        vectors = {file.vector.path for file in self._named(table).values() if file.vector is not None}
        return read_past(self._folder, live | dict.fromkeys(filter(None, vectors), 0))

    def _delete(self, files: Sequence[File], kept_s: int) -> list[File]:
        """Those that are older, and give those that are not."""
        before = time.time() - kept_s
        self._folder.remove(file.path for file in files if file.since < before)
        return [file for file in files if file.since >= before]

    def _checkpoint(self, table: DeltaTable, past: Past) -> None:
        """Make one where there is none of this version, and let go of the log before it that need not be kept."""
        if past.checkpoint < table.version():
            table.create_checkpoint()
            stem = f"_delta_log/{table.version():020d}"
            self._folder.sync([f"{stem}.checkpoint.parquet", "_delta_log/_last_checkpoint"])
        configuration = table.metadata().configuration
        if configuration.get("delta.enableExpiredLogCleanup") != "false" and past.has_expired_log(configuration):
            table.cleanup_metadata()

    def _open(self) -> DeltaTable | None:
        try:
            if self._lent is None or not self._lent.refresh():
                self._lent = OPEN_TABLES.borrow(self._folder)
        except TableNotFoundError:
            self._lent = None
            return None
        table = self._lent.table
        if self._transaction(table, self._log.app_id) is None:
            raise TargetError(f"Pipeline {self.pipeline!r} did not make the Delta table at {self.uri}.", hint=_NOT_OURS)
        protocol = table.protocol()
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _FEATURES
        if features or table.metadata().partition_columns:
            what = ", ".join(sorted(features)) or "partitions"
            raise TargetError(
                f"The Delta table at {self.uri} was given features that wal2lake does not write: {what}.",
                hint="Drop them, or take a new snapshot of the table elsewhere.",
            )
        return table

    def _require_table(self) -> DeltaTable:
        table = self._open()
        if table is None:
            raise TargetError(f"There is no Delta table at {self.uri}.", hint=RESYNC)
        return table

    def _standing(self, table: DeltaTable | None) -> SinkState | None:
        return None if table is None else self._state(table)

    def _state(self, table: DeltaTable) -> SinkState:
        applied = self._transaction(table, self._log.app_id)
        assert applied is not None
        converges = self._transaction(table, self._converges_id) or 0
        snapshot = self._transaction(table, self._snapshot_id)
        plan_id = None if snapshot is None else f"{snapshot:012x}"
        schema = self._lent_as(table).of_version("columns", columns)
        return SinkState(table.version(), LSN(applied), schema, LSN(converges), plan_id)

    def _transaction(self, table: DeltaTable, app_id: str) -> int | None:
        """The version of an app transaction, as the table's log has it."""
        return self._lent_as(table).transaction_version(app_id)

    def _lent_as(self, table: DeltaTable) -> OpenTable:
        assert self._lent is not None and self._lent.table is table, "the table that is open"
        return self._lent

    def _create(self, actions: Sequence[FileAction], lsn: int, schema: pa.Schema, plan_id: str | None) -> None:
        kept_s = self._retention.seconds
        marks = self._snapshot_mark(plan_id) | dict.fromkeys(self._kept_ids.values(), kept_s)
        properties = PROPERTIES if self._marks else PROPERTIES | {ENABLED: "false"}
        foreign = set(self._folder.names()) - {"_delta_log", INDEXES}
        foreign = {name for name in foreign if not name.startswith("part-")}
        if foreign:
            raise TargetError(f"{self.uri} holds files that are not this table's: {min(foreign)}.", hint=_NOT_OURS)
        self._folder.create()
        try:
            create_table_with_add_actions(
                self.uri,
                Schema.from_arrow(schema),
                [add_action(action, schema) for action in actions],
                mode="error",
                description=comment(schema) or None,
                configuration=properties | dict.fromkeys(self._kept_ids, interval(kept_s)),
                storage_options=self._folder.place.storage_options(),
                **self._log.options(lsn, marks),
            )
        except (DeltaError, OSError) as error:
            if not self._log.is_named(0):
                if isinstance(error, DeltaError) and self._folder.has(f"_delta_log/{0:020d}.json"):
                    raise SinkConflictError(f"Another task created the Delta table at {self.uri}.", lsn=lsn) from None
                raise
        self._log.sync(-1)

    def _write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[FileAction]:
        return write_data_files(self._folder, batches, schema)

    def _apply(self, table: DeltaTable, rewrite: Rewrite, dead: DeadRows) -> None:
        """The same rows in other files."""
        actions = write_data_files(self._folder, rewrite.batches, columns(table))
        with self._log.removing_if_refused(table, [action.path for action in actions]):
            self._commit(table, actions, rewrite.removed, None, None, dead)

    def _commit(
        self,
        table: DeltaTable,
        actions: Sequence[FileAction],
        removed: Sequence[str],
        lsn: int | None,
        converges_lsn: int | None = None,
        dead: DeadRows | None = None,
    ) -> bool:
        """Swap files in one commit; ``lsn`` None: the same rows in other files. Returns whether ``maintain`` is due.

        ``dead``: what is marked in the table's files, and in those that stay is marked by this commit.
        """
        opened = self._lent_as(table)
        files, schema = opened.of_version("files", files_of), opened.of_version("columns", columns)
        sizes = dict(zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True))
        now, changed = time.time_ns() // 1_000_000, lsn is not None
        version = table.version() + 1
        due = changed and version - (self._transaction(table, self._maintained_id) or 0) >= MAINTAIN_EVERY
        marks = {self._maintained_id: version if due else None, self._converges_id: converges_lsn}
        come = [add_action(action, schema, changed) for action in actions]
        dead = dead or NONE_DEAD
        if (removed or dead.marked) and changed:
            self._require_removable(table)
        if dead.concerns(removed) or commits_alike(table):
            known = self._known(table, {path: sizes[path] for path in removed}, dead)
            self._log.swap(table, come, removed, dead, known, lsn, marks)
        else:
            with self._log.durably(table, one=True):
                table.create_write_transaction(
                    [*come, *(RemoveAction(path, changed, now, sizes[path], {}) for path in removed)],
                    mode="append",
                    schema=table.schema(),
                    **self._log.options(lsn, marks),
                )
        opened.committed(self._log.said(lsn, marks)[1])
        return due

    def _require_removable(self, table: DeltaTable) -> None:
        if table.metadata().configuration.get("delta.appendOnly") == "true":
            raise TargetError(
                f"Rows are to go from the Delta table at {self.uri}, and its property delta.appendOnly forbids it.",
                hint="Set the property to false, or mirror the table elsewhere.",
            )

    def _known(self, table: DeltaTable, removed: Mapping[str, int], dead: DeadRows) -> Mapping[str, DataFile]:
        """The files of which a commit speaks, by path, as the log names them, which is read only where it must be;
        ``removed``: those that go, and their bytes."""
        if dead.concerns([*removed]) or not all(map(is_plain, removed)):
            return dead.named or self._named(table, anyhow=True)
        return {path: DataFile({"path": path, "size": size}, None) for path, size in removed.items()}

    def _marking(self, table: DeltaTable) -> DeltaTable:
        """The table as one in which rows may be marked from now on, if the setting says so."""
        if not self._marks or may_mark(table):
            return table
        actions = enabling_actions(table, *self._log.said(None, {}))
        if actions:
            self._log.put(table, actions)
        return self._require_table()

    def _replace(
        self,
        table: DeltaTable,
        actions: Sequence[FileAction],
        schema: pa.Schema,
        lsn: int | None,
        plan_id: str | None = None,
    ) -> None:
        """Exchange all files, and the columns, in one commit, after those that allow timestamps without zone and have
        the table's comment."""
        features = table.protocol().writer_features or ()
        with self._log.durably(table):
            if comment(schema) != (table.metadata().description or "") and schema.metadata:
                self._log.put(table, description_actions(table, *self._log.said(None, {}), comment(schema)))
                table.update_incremental()
            if any(map(has_naive_time, schema.types)) and "timestampNtz" not in features:
                table.alter.add_feature(
                    TableFeatures.TimestampWithoutTimezone,
                    allow_protocol_versions_increase=True,
                    **self._log.options(None),
                )
            table.create_write_transaction(
                [add_action(action, schema) for action in actions],
                mode="overwrite",
                schema=Schema.from_arrow(schema),
                **self._log.options(lsn, self._snapshot_mark(plan_id)),
            )

    def _rewrite_all(self, table: DeltaTable, schema: pa.Schema, fill: Fill) -> None:
        filled = {schema.get_field_index(name): value.cast(schema.field(name).type) for name, value in fill.items()}
        target = replace(self._target(table), schema=schema)
        batches = (
            with_values(batch, filled) for path in target.files["path"].to_pylist() for batch in target.live_rows(path)
        )
        actions = write_data_files(self._folder, batches, schema)
        with self._log.removing_if_refused(table, [action.path for action in actions]):
            self._replace(table, actions, as_said(schema, table), None)

    def _target(self, table: DeltaTable) -> CommittedFiles:
        opened = self._lent_as(table)
        schema, files = opened.of_version("columns", columns), opened.of_version("files", files_of)
        dead = DeadRows(self._folder.files, self._named(table))
        if not self._marks or not may_mark(table):
            return CommittedFiles(self._folder, schema, files, dead)
        indexes = None if self._cache is None else KeyIndexes(self._cache, str(table.metadata().id))
        return CommittedFiles(self._folder, schema, files, dead, MARK_BYTES, indexes)

    def _named(self, table: DeltaTable, *, anyhow: bool = False) -> dict[str, DataFile]:
        """Its files as the log names them, if one of them may have a vector, or ``anyhow``."""
        if not (anyhow or has_vectors(table)):
            return {}
        known = self._lent_as(table).as_long_as_open("files", lambda: LiveFiles(self._folder.files))
        named = known.at(table.version())
        if set(named) != set(files_of(table)["path"].to_pylist()):  # dead rows would be read, or live vectors deleted
            raise VectorError("delta-rs reads other files in its log.")
        return named

    def _require(self, table: DeltaTable, schema: pa.Schema) -> None:
        if not columns(table).equals(schema):
            raise SchemaChangeError(
                f"The files to commit do not have the columns of the Delta table at {self.uri}.",
                hint="Evolve the table before files are written for it.",
            )

    def _snapshot_mark(self, plan_id: str | None) -> dict[str, int | None]:
        return {self._snapshot_id: None if plan_id is None else int(plan_id, 16)}

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Every failure of the library or the system is one of ours; what ``batches`` raise stays what it is.

        So does an exception of Arrow: outside of files, which read_batches minds, it is the rows' or the code's.
        A table that is opened in the block stays open for the next one, unless it fails.
        """
        try:
            yield
            if self._lent is not None:
                OPEN_TABLES.give_back(self._folder, self._lent)
        except Wal2LakeError:
            raise
        except GivenError as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None
        except CommitFailedError as error:
            raise SinkConflictError(f"Someone else committed to the Delta table at {self.uri} meanwhile.") from error
        except VectorError as error:
            raise TargetError(f"The Delta table at {self.uri} cannot be read: {error}", hint=RESYNC) from error
        except (DeltaError, OSError) as error:
            raise failure(self.uri, error) from error
        finally:
            self._lent = None
