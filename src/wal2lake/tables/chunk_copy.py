"""One chunk of a table, read under an exported snapshot into data files: what a task of a snapshot does.

The rule: a chunk is durable the moment its task ends, with the identity of the snapshot that it was read under; and the
task makes sure, under COPY's own lock, that this very table was read, and not rewritten since the snapshot was taken.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final

import pyarrow as pa

from wal2lake.apply.envelope import snapshot_envelope
from wal2lake.columnar.copy_rows import iter_copy_rows
from wal2lake.columnar.framing import Framed
from wal2lake.columnar.types import TableSchema
from wal2lake.errors import RightsError, ServerError, Wal2LakeError
from wal2lake.login import Dsn
from wal2lake.postgres.catalog import PublishedTable
from wal2lake.postgres.connection import Connection, connect
from wal2lake.postgres.live_tables import current_names, has_opened, heap_files
from wal2lake.postgres.snapshot import SnapshotIdentity, copy_binary
from wal2lake.tables.chunks import chunk_bytes, columns_as_read, planned_schema
from wal2lake.tables.failures import reading_table
from wal2lake.tables.landing import target_schema
from wal2lake.tables.state import Chunk, DoneChunk, SnapshotPlan
from wal2lake.tables.table_folder import TableFolder
from wal2lake.tables.target import Target

_LARGE_BYTES: Final = 8 << 20
_LARGE: Final = threading.Lock()


class TableChangedError(Wal2LakeError):
    """The table was rewritten or lost a column while it was read; what was read does not count."""

    transient: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class CopyTask:
    """One chunk to read, as it travels to an executor; ``lock_timeout_s`` as in copy_binary."""

    dsn: Dsn = field(repr=False)
    log: str
    pipeline: str
    table: PublishedTable
    plan: SnapshotPlan
    chunk: Chunk
    snapshot: SnapshotIdentity
    target: Target
    lsn: int
    lock_timeout_s: int

    def __str__(self) -> str:
        return str(self.table)

    @property
    def weight(self) -> int:
        """About how many bytes are read."""
        return chunk_bytes(self.plan, self.chunk)


def copy_chunk(task: CopyTask) -> int:
    """Read a chunk into data files and make that durable; returns its rows. Runs on an executor."""
    schema = planned_schema(task.plan, task.table.namespace, task.table.name, task.target.types)
    columns = columns_as_read(task.table, task.target.text_columns, task.target.types)
    blocks = task.chunk.block_from, task.chunk.block_to
    unchanged, patience = partial(_require_read, task), task.lock_timeout_s
    snapshot = task.snapshot
    read = copy_binary(
        task.dsn, snapshot.name, task.table, columns, *blocks, unchanged, patience, server=snapshot.instance
    )
    try:
        with reading_table(task.table), closing(one_large_at_a_time(read)) as pieces:
            batches = (batch for rows in pieces for batch in decode_rows(rows, schema, task.target, task.lsn))
            actions = task.target.sink().write_files(batches, target_schema(schema, task.target))
    except (RightsError, ServerError) as error:
        _require_unchanged(task, error)
        raise
    chunk = DoneChunk(
        number=task.chunk.number,
        rows=sum(action.rows for action in actions),
        snapshot=task.snapshot,
        actions=tuple(actions),
    )
    folder = TableFolder(task.log, task.pipeline, task.table.namespace, task.table.name)
    folder.finish_chunk(task.plan.plan_id, chunk)
    return chunk.rows


def one_large_at_a_time(pieces: Iterator[Framed]) -> Generator[Framed]:
    """The pieces of a chunk, of those of other threads in turn once they are many: heap blocks, by which a chunk is
    taken for a light one, do not count what is stored out of line."""
    size = 0
    with ExitStack() as alone:
        for piece in pieces:
            before, size = size, size + int(piece.ends[-1] - piece.begins[0])
            if before <= _LARGE_BYTES < size:
                alone.enter_context(_LARGE)
            yield piece


def _require_read(task: CopyTask, connection: Connection) -> None:
    """COPY has read this very table, as it was planned; its lock keeps that so. Filenodes are never used again: the
    same one now as before the snapshot means that nothing was rewritten."""
    relation_id = task.table.relation_id
    if not has_opened(connection, relation_id):
        raise TableChangedError("Another table had its name while it was read.", relation=str(task.table))
    if heap_files(connection, [relation_id])[relation_id] != task.plan.heap:
        raise TableChangedError("The table was rewritten while it was read.", relation=str(task.table))
    _require_names(task, connection)


def _require_unchanged(task: CopyTask, error: Wal2LakeError) -> None:
    """COPY fails for a column, or a table, that was dropped or renamed after the plan was made."""
    with closing(connect(task.dsn, application_name="wal2lake copy")) as connection:
        try:
            _require_names(task, connection)
        except ServerError:  # there is no such table any more
            raise TableChangedError("The table changed while it was read.", relation=str(task.table)) from error


def _require_names(task: CopyTask, connection: Connection) -> None:
    """The columns that were planned have the names by which COPY found them, and so has the table."""
    table, columns = task.table, task.plan.columns
    names = current_names(connection, table.relation_id, [column.attnum for column in columns])
    if names != [(table.namespace, table.name, column.name) for column in columns]:
        raise TableChangedError("The table changed while it was read.", relation=str(table))


def decode_rows(rows: Framed, schema: TableSchema, target: Target, lsn: int) -> Iterator[pa.RecordBatch]:
    """COPY binary rows as the target's columns, in parts; in append mode they are 'R' rows at ``lsn``."""
    name, shape = schema.qualified_name, schema.arrow_schema
    for arrays in iter_copy_rows(rows, schema.columns, name, unrepresentable=target.unrepresentable):
        if target.mode == "append":
            yield from snapshot_envelope(pa.table(arrays, schema=shape), schema, lsn).to_batches()
        else:
            yield pa.RecordBatch.from_arrays(arrays, schema=shape)
