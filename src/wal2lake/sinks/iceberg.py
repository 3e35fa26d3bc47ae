"""Iceberg by pyiceberg: every commit is a compare-and-swap of the catalog's, on the snapshot whose LSN was read before.

The LSN, the pipeline and what else is noted stand in the snapshot's own summary, so they come and go with its rows. A
snapshot of somebody else's (another engine's compaction) says nothing of it: its nearest ancestor of ours does. Where
that has been expired, a property of the table says it, which the same commit has set and a roll-back would not take
back; so it counts in no other case.
pyiceberg would try a lost race again on top of the winner; that is switched off, since the winner may have been this
very batch. A commit whose answer is an error may be there all the same: the LSN that is read back tells a lost answer
from a conflict.

A mirror rewrites the files that hold a row that goes (copy on write), as Delta's does where it marks none: readers need
no delete files. Rows are found and files rewritten in sinks/rewrite.py. Never equality deletes: each query would have
to apply them.

Source: Iceberg, "Table Spec", "Snapshots", "Optimistic Concurrency".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.schema import UpdateSchema

from wal2lake.apply.fold import Folded, FoldedRows
from wal2lake.apply.row_index import Mask
from wal2lake.apply.unify import Fill
from wal2lake.errors import RESYNC, SchemaChangeError
from wal2lake.files import make_folder
from wal2lake.lakes import table_uri
from wal2lake.lsn import LSN
from wal2lake.sinks.base import FileAction, SinkConflictError, SinkState, TargetError, is_applied, require_at
from wal2lake.sinks.columns import comment, evolved, refuse_case_twins, with_values
from wal2lake.sinks.datafiles import FIELD_ID, align, read_batches, write_data_files
from wal2lake.sinks.folder import Folder
from wal2lake.sinks.iceberg_catalog import identifier, lake_catalog
from wal2lake.sinks.iceberg_errors import mapped_errors, reading_metadata
from wal2lake.sinks.iceberg_past import Past, has_dead_manifests, maintenance_due
from wal2lake.sinks.iceberg_schema import arrow_columns, as_lake, exchange, growth, lake_columns, planned
from wal2lake.sinks.iceberg_statistics import bounds, data_file
from wal2lake.sinks.rearrange import to_rearrange
from wal2lake.sinks.retention import Retention
from wal2lake.sinks.rewrite import CommittedFiles, holds, merge_all, without
from wal2lake.sinks.sink_errors import marking_given_errors

if TYPE_CHECKING:
    from wal2lake.config import LakeConfig

PIPELINE: Final = "wal2lake.pipeline"
LSN_KEY: Final = "wal2lake.lsn"
PLAN: Final = "wal2lake.plan"
CONVERGES: Final = "wal2lake.converges"
_NOTED: Final = (PIPELINE, LSN_KEY, PLAN, CONVERGES)
_LAST: Final = "wal2lake.last"
_SNAPSHOT: Final = "snapshot"
_PROPERTIES: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_NO_RETRY: Final = {"commit.retry.num-retries": "0"}
_NOT_OURS: Final = "Move it away, drop it from the catalog, or choose another lake.path or pipeline.name."
_KNOWN: Final = {"data", "metadata"}

Said = dict[str, str]


class IcebergSink:
    """One table of the lake's catalog as the target of one table of ``pipeline``. A ``Sink`` (sinks/base.py)."""

    def __init__(self, lake: LakeConfig, pipeline: str, namespace: str, name: str) -> None:
        self.uri = table_uri(lake.path, namespace, name)
        self.pipeline = pipeline
        self._lake = lake
        self._identifier = identifier(lake, namespace, name)
        self._retention = Retention.of(lake)
        self._folder = Folder(f"{self.uri}/data")

    @staticmethod
    def check(lake: LakeConfig) -> None:
        """Ask the catalog for its namespaces, if it is there; ``check_lake`` in the factory."""
        with mapped_errors(lake.path):
            catalog = lake_catalog(lake)
            if catalog is not None:
                catalog.list_namespaces()

    def state(self) -> SinkState | None:
        """``Sink.state``."""
        with mapped_errors(self.uri):
            table = self._open()
            return self._standing(table)

    def is_gone(self) -> bool:
        """``Sink.is_gone``; a table of which the metadata are gone is none, whatever the lake's own catalog says. Of
        another they may lie elsewhere."""
        own = not (self._lake.catalog or self._lake.catalog_properties)
        return own and Folder(self.uri).lacks("metadata")

    def count_rows(self) -> int:
        """``Sink.count_rows``, by what the newest snapshot says of itself."""
        with mapped_errors(self.uri):
            table = self._open()
            snapshot = None if table is None else table.current_snapshot()
            return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)

    def write_files(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[FileAction]:
        """``Sink.write_files``: Parquet files whose columns bear the ids that the table has, or will have."""
        with mapped_errors(self.uri):
            columns = arrow_columns(planned(self._open(), lake_columns(schema)))
            return self._write(marking_given_errors(batches), columns)

    def read_files(self, actions: Iterable[FileAction], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """``Sink.read_files``, by the columns' names."""
        for action in actions:
            yield from read_batches(self._folder, action.path, schema)

    def without(self, actions: Sequence[FileAction], keys: pa.Table, schema: pa.Schema) -> list[FileAction]:
        """``Sink.without``; one pass over the files' key columns, and a rewrite of those that hold a key."""
        with mapped_errors(self.uri):
            columns = arrow_columns(planned(self._open(), lake_columns(schema)))
            return without(self._folder, columns, actions, as_lake(keys), self._write)

    def commit_files(
        self,
        actions: Sequence[FileAction],
        lsn: int,
        schema: pa.Schema,
        applied: int | None,
        plan_id: str | None = None,
    ) -> bool:
        """``Sink.commit_files``, in one snapshot."""
        refuse_case_twins(schema)
        want = lake_columns(schema)
        with mapped_errors(self.uri):
            table = self._open()
            if is_applied(self.uri, self._standing(table), lsn, applied):
                return False
            said = self._saying(table, lsn, plan_id)
            if table is None:
                self._create(actions, want, said)
                return False
            if not arrow_columns(table.schema()).equals(pa.schema([(field.name, field.type) for field in want])):
                raise SchemaChangeError(f"The files to commit do not have the columns of the table at {self.uri}.",
                                        hint="Evolve the table before files are written for it.")  # fmt: skip
            return self._commit(table, self._with_ids(actions, table.schema()), [], said)

    def replace_files(
        self, actions: Sequence[FileAction], lsn: int, schema: pa.Schema, applied: int, plan_id: str | None = None
    ) -> None:
        """``Sink.replace_files``, in one commit: columns, rows and LSN."""
        refuse_case_twins(schema)
        want = lake_columns(schema)
        with mapped_errors(self.uri):
            table = self._open()
            state = self._standing(table)
            same = state is not None and (plan_id is None or state.plan_id == plan_id.zfill(12))
            if same and is_applied(self.uri, state, lsn, applied):
                return
            require_at(self.uri, state, lsn, applied)
            assert table is not None
            actions = self._with_ids(actions, planned(table, want))
            said = self._saying(None, lsn, plan_id)
            have = table.schema()
            differs = planned(table, want) != have or want.metadata
            self._commit(table, actions, list(self._live(table).values()), said,
                         exchange(have, want) if differs else None)  # fmt: skip

    def merge(self, folded: Folded | FoldedRows, lsn: int, applied: int, converges_lsn: int | None = None) -> bool:
        """``Sink.merge``. Raises NotACopyError when the target lacks rows that the batch builds on."""
        return self._merge(iter([folded]), lsn, applied, converges_lsn)

    def merge_pieces(self, pieces: Iterable[Folded | FoldedRows], lsn: int, applied: int) -> bool:
        """``Sink.merge_pieces``: each piece finds the files as those before it have left them, committed or not."""
        return self._merge(marking_given_errors(pieces), lsn, applied)

    def _merge(
        self, pieces: Iterator[Folded | FoldedRows], lsn: int, applied: int, converges_lsn: int | None = None
    ) -> bool:
        with mapped_errors(self.uri):
            table = self._open()
            if is_applied(self.uri, self._standing(table), lsn, applied):
                return False
            assert table is not None
            live, written = self._live(table), dict[str, FileAction]()
            pieces = map(_as_lake, pieces)
            first = list(islice(pieces, 1))
            target = self._target(table, live, _key_of(first[0]) if first else None)
            pieces = chain(iter(first), pieces)
            del first  # which goes when the next one is made
            try:
                target = merge_all(target, pieces, self._write, written)
            except BaseException:  # nobody will ever name them
                self._folder.remove(written)
                raise
            left = set(target.files["path"].to_pylist())
            gone = [file for path, file in live.items() if path not in left]
            said = self._saying(table, lsn, converges_lsn=converges_lsn)
            return self._commit(table, list(written.values()), gone, said)

    def holds(self, keys: pa.Table) -> Mask:
        """``Sink.holds``."""
        with mapped_errors(self.uri):
            table = self._require()
            keys = as_lake(keys)
            return holds(self._target(table, self._live(table), keys.column_names[0]), keys)

    def evolve(self, schema: pa.Schema, fill: Fill | None = None) -> None:
        """``Sink.evolve``. New columns and wider ones need no file rewritten; only a value for the rows that are there
        does, in the same commit."""
        with mapped_errors(self.uri):
            table = self._require()
            have = arrow_columns(table.schema())
            want = evolved(have, lake_columns(schema))
            refuse_case_twins(want)
            if want.equals(have):
                return
            added = {name: value for name, value in (fill or {}).items() if name not in have.names and value.is_valid}
            change, live = growth(have, want), self._live(table)
            if added and live:
                columns = arrow_columns(self._changed(table, change).table_metadata.schema())
                files = self._target(table, live)
                rows = (batch for path in live for batch in read_batches(files.folder, path, columns))
                actions = self._write((with_values(batch, added) for batch in rows), columns)
                self._commit(table, actions, list(live.values()), self._noted(table), change)
            else:
                with self._landing(None, ()):
                    self._changed(table, change).commit_transaction()

    def maintain(self) -> float | None:
        """Join small files where there are many, and let go of snapshots, and of what they alone hold, as the
        retention says; ``Sink.maintain``."""
        with mapped_errors(self.uri):
            table = self._require()
            live = self._live(table)
            target = self._target(table, live)
            if removed := to_rearrange(target):
                rows = chain.from_iterable(map(target.live_rows, removed))
                self._commit(table, self._write(rows, target.schema), [live[path] for path in removed],
                             self._noted(table))  # fmt: skip
                table = self._require()
            if has_dead_manifests(table):
                self._commit(table, [], [], self._noted(table))  # an append carries none of them along
                table = self._require()
            return Past(table, self.uri, self._retention).settle()

    def _open(self) -> Table | None:
        catalog = lake_catalog(self._lake)
        if catalog is None:
            return None
        try:
            with reading_metadata(self.uri):
                table = catalog.load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        table.metadata.properties.update(_NO_RETRY)  # of this copy, by which pyiceberg goes
        if not table.spec().is_unpartitioned():
            raise TargetError(f"The Iceberg table at {self.uri} was given partitions, which wal2lake does not write.",
                              hint=f"Take them away. {RESYNC}")  # fmt: skip
        return table

    def _require(self) -> Table:
        table = self._open()
        if table is None:
            raise TargetError(f"There is no Iceberg table for {self.uri} in its catalog.", hint=RESYNC)
        self._noted(table)
        return table

    def _noted(self, table: Table) -> Said:
        """What our last commit said that the table's rows come from."""
        snapshot, said = table.current_snapshot(), Said()
        while snapshot is not None and PIPELINE not in said:
            said = {} if snapshot.summary is None else snapshot.summary.additional_properties
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        if PIPELINE not in said:
            with reading_metadata(self.uri):
                last: Said = json.loads(table.properties.get(_LAST, "{}"))
                said = last if last and table.snapshot_by_id(int(last[_SNAPSHOT])) is None else {}
        if said.get(PIPELINE) != self.pipeline:
            raise TargetError(f"Pipeline {self.pipeline!r} did not make the Iceberg table at {self.uri}.",
                              hint=_NOT_OURS)  # fmt: skip
        return {name: said[name] for name in _NOTED if name in said}

    def _standing(self, table: Table | None) -> SinkState | None:
        return None if table is None else self._state(table)

    def _state(self, table: Table) -> SinkState:
        said = self._noted(table)
        schema = pa.schema([(field.name, field.type) for field in arrow_columns(table.schema())])
        return SinkState(
            table.metadata.next_sequence_number() - 1,
            LSN.parse(said[LSN_KEY]),
            schema,
            LSN.parse(said.get(CONVERGES, "0/0")),
            said.get(PLAN),
        )

    def _saying(
        self, table: Table | None, lsn: int, plan_id: str | None = None, converges_lsn: int | None = None
    ) -> Said:
        said = {} if table is None else self._noted(table)
        said |= {PIPELINE: self.pipeline, LSN_KEY: str(LSN(lsn))}
        if plan_id is not None:
            said[PLAN] = plan_id.zfill(12)
        if converges_lsn is not None:
            said[CONVERGES] = str(LSN(converges_lsn))
        return said

    def _live(self, table: Table) -> dict[str, DataFile]:
        """The data files of the newest snapshot, by their paths below the folder of data files."""
        snapshot = table.current_snapshot()
        found: dict[str, DataFile] = {}
        with reading_metadata(self.uri):
            manifests = [] if snapshot is None else snapshot.manifests(table.io)
            files = [entry.data_file for each in manifests for entry in each.fetch_manifest_entry(table.io)]
        for file in files:
            path = file.file_path.removeprefix("file://").removeprefix("file:")
            if file.content != DataFileContent.DATA or not path.startswith(f"{self._folder.uri}/"):
                what = "delete files" if file.content != DataFileContent.DATA else "files that lie elsewhere"
                raise TargetError(f"The Iceberg table at {self.uri} was given {what}, which wal2lake does not read.",
                                  hint=f"Have them rewritten, or read the table anew. {RESYNC}")  # fmt: skip
            found[path[len(self._folder.uri) + 1 :]] = file
        return found

    def _target(self, table: Table, live: Mapping[str, DataFile], key: str | None = None) -> CommittedFiles:
        """``key``: the column by whose bounds files are passed over."""
        columns = arrow_columns(table.schema())
        files = {
            "path": pa.array(list(live), pa.string()),
            "size_bytes": pa.array([file.file_size_in_bytes for file in live.values()], pa.int64()),
            "num_records": pa.array([file.record_count for file in live.values()], pa.int64()),
        }
        if key is not None and live and key in columns.names:
            found = bounds(list(live.values()), table.schema().find_field(key), columns.field(key).type)
            sides = zip(("min", "max"), found or (), strict=False)
            files |= {side: pa.StructArray.from_arrays([values], [key]) for side, values in sides}
        return CommittedFiles(self._folder, columns, pa.table(files))

    def _write(self, batches: Iterable[pa.RecordBatch], columns: pa.Schema) -> list[FileAction]:
        if self._folder.is_local and not Path(self._folder.uri).exists():
            make_folder(Path(self._folder.uri))
        return write_data_files(self._folder, batches, columns)

    def _with_ids(self, actions: Sequence[FileAction], schema: Schema) -> list[FileAction]:
        """The files, written anew where their columns bear other ids than these: the table changed meanwhile."""
        columns = arrow_columns(schema)
        want = {field.name: field.metadata[FIELD_ID.encode()] for field in columns}
        found: list[FileAction] = []
        for action in actions:
            with self._folder.files.open_input_file(action.path) as file:
                own = pq.read_schema(file)
            if {field.name: (field.metadata or {}).get(FIELD_ID.encode()) for field in own} == want:
                found.append(action)
            else:
                rows = read_batches(self._folder, action.path, own.remove_metadata())
                found += self._write((align(batch, columns) for batch in rows), columns)
        return found

    def _create(self, actions: Sequence[FileAction], schema: pa.Schema, said: Said) -> None:
        foreign = set(Folder(self.uri).names()) - _KNOWN
        if foreign:
            raise TargetError(f"{self.uri} holds files that are not this table's: {min(foreign)}.", hint=_NOT_OURS)
        catalog = lake_catalog(self._lake, make=True)
        assert isinstance(catalog, Catalog)
        catalog.create_namespace_if_not_exists(self._identifier[0])
        made = planned(None, schema)
        properties = _PROPERTIES | ({"comment": comment(schema)} if comment(schema) else {})
        transaction = catalog.create_table_transaction(self._identifier, made, self.uri, properties=properties)
        with self._landing(LSN.parse(said[LSN_KEY]), ()):
            self._snapshot(transaction, self._with_ids(actions, made), [], said)
            transaction.commit_transaction()

    def _commit(
        self,
        table: Table,
        come: Sequence[FileAction],
        gone: Sequence[DataFile],
        said: Said,
        change: Callable[[UpdateSchema], None] | None = None,
    ) -> bool:
        """Exchange files, and columns, in one commit. Returns whether ``maintain`` is due."""
        transaction = self._changed(table, change)
        before = self._noted(table).get(LSN_KEY)
        with self._landing(LSN.parse(said[LSN_KEY]) if said[LSN_KEY] != before else None, [file.path for file in come]):
            self._snapshot(transaction, come, gone, said)
            transaction.commit_transaction()
        return maintenance_due(table)

    @staticmethod
    def _changed(table: Table, change: Callable[[UpdateSchema], None] | None) -> Transaction:
        transaction = table.transaction()
        if change is not None:
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                change(update)
        return transaction

    def _snapshot(
        self, transaction: Transaction, come: Sequence[FileAction], gone: Sequence[DataFile], said: Said
    ) -> None:
        schema, spec_id = transaction.table_metadata.schema(), transaction.table_metadata.default_spec_id
        columns = arrow_columns(schema)
        made = transaction.update_snapshot(snapshot_properties=said)
        with made.overwrite() if gone else made.merge_append() as files:
            for action in come:
                files.append_data_file(data_file(action, f"{self._folder.uri}/{action.path}", schema, columns, spec_id))
            for file in gone:
                files.delete_data_file(file)
        transaction.set_properties({_LAST: json.dumps({**said, _SNAPSHOT: str(files.snapshot_id)})})

    @contextmanager
    def _landing(self, lsn: LSN | None, written: Collection[str]) -> Iterator[None]:
        """Where the block's commit fails, look whether it is there all the same (``lsn`` None: it has none to know it
        by); of one that certainly is not, the ``written`` files go."""
        try:
            yield
        except Exception as error:
            table = self._open()
            if lsn is not None and table is not None and self._state(table).applied_lsn >= lsn:
                self._remove_unnamed(table, written)  # another task's, of the same batch, has others
                return
            if isinstance(error, CommitFailedException | TableAlreadyExistsError):
                self._folder.remove(written)
                message = f"Someone else committed to the Iceberg table at {self.uri} meanwhile."
                raise SinkConflictError(message, lsn=lsn) from error
            raise

    def _remove_unnamed(self, table: Table, written: Collection[str]) -> None:
        named = self._live(table)
        self._folder.remove(path for path in written if path not in named)


def _as_lake(folded: Folded | FoldedRows) -> Folded | FoldedRows:
    if isinstance(folded, FoldedRows):
        return FoldedRows(folded.truncated, as_lake(folded.rows), folded.net)
    tables: dict[str, Any] = {name: as_lake(getattr(folded, name)) for name in ("upserts", "deletes", "source_key")}
    return Folded(folded.key, folded.truncated, unknown=folded.unknown, **tables)


def _key_of(folded: Folded | FoldedRows) -> str | None:
    return folded.rows.column_names[0] if isinstance(folded, FoldedRows) else folded.key[0]
