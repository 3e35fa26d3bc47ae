"""Parquet files that every reader can prune: ~128 MiB, row groups of at most 1 Mi rows, with statistics for the log.

A wrong statistic loses rows, so what is not sure is left out: floats have no bounds (NaN has no place in them). Long
strings have prefixes for bounds.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from wal2lake.apply.packed import is_nested
from wal2lake.sinks.base import Bound, FileAction
from wal2lake.sinks.folder import Folder
from wal2lake.sinks.sink_errors import using_file

FILE_BYTES: Final = 128 << 20
ROW_GROUP_ROWS: Final = 1 << 20
ROW_GROUP_BYTES: Final = 64 << 20
FIELD_ID: Final = "PARQUET:field_id"  # metadata of a field in Arrow, and an id of the column's in the file
_ID: Final = FIELD_ID.encode()
STATISTICS_COLUMNS: Final = 32  # the first ones, as in Delta's own writers
_THREADS_BYTES: Final = 4 << 20  # of a row group; waking threads for a smaller one costs more than it brings
_STRING_BOUND: Final = 32  # characters; the same
_LAST: Final = "\U0010ffff"
# zstd alone makes files as small as dictionaries and zstd, is written in two thirds of the time and read in half.
_WRITER: Final = {"compression": "zstd", "compression_level": 1, "use_dictionary": False, "store_schema": False}


def write_data_files(
    folder: Folder, batches: Iterable[pa.RecordBatch], schema: pa.Schema, said: Mapping[str, str] | None = None
) -> list[FileAction]:
    """Write the rows below ``folder`` in durable Parquet files; none for no rows.

    ``schema``: top-level columns of THE type table. Batches may lack some of them. ``said``: the footers' own entries.
    """
    folder.create()
    groups = _row_groups(batches, schema)
    names: list[str] = []
    actions = []
    try:
        for group in groups:
            names.append(f"part-{uuid.uuid4()}.zstd.parquet")
            with folder.files.open_output_stream(names[-1]) as stream:
                metadata = _write_file(stream, group, groups, schema, said or {})
                size = stream.tell()
            written = time.time_ns() // 1_000_000
            actions.append(FileAction(names[-1], size, written, metadata.num_rows, *_statistics(metadata, schema)))
        folder.sync(names)
    except BaseException:  # what nobody will ever name must not keep a full disk full
        folder.remove(names)
        raise
    return actions


def write_empty_file(folder: Folder, schema: pa.Schema, said: Mapping[str, str]) -> FileAction:
    """A durable file that has the columns and no rows."""
    folder.create()
    name = f"part-{uuid.uuid4()}.zstd.parquet"
    with folder.files.open_output_stream(name) as stream:
        _write_file(stream, schema.empty_table(), iter(()), schema, said)
        size = stream.tell()
    folder.sync([name])
    return FileAction(name, size, time.time_ns() // 1_000_000, 0, {}, {}, {})


def _write_file(
    stream: Any, first: pa.Table, rest: Iterator[pa.Table], schema: pa.Schema, said: Mapping[str, str]
) -> pq.FileMetaData:
    """Write ``first`` and as many more row groups as make a full file."""
    writer = pq.ParquetWriter(stream, schema, **_WRITER)
    with writer:
        if said:
            writer.add_key_value_metadata(said)
        writer.write_table(first, row_group_size=ROW_GROUP_ROWS)
        while stream.tell() < FILE_BYTES and (group := next(rest, None)) is not None:
            writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
    return writer.writer.metadata


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Gather batches, in ``schema``, until they make a row group, by rows or bytes."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        pending.append(align(batch, schema))
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending, schema)
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending, schema)


def _statistics(
    metadata: pq.FileMetaData, schema: pa.Schema
) -> tuple[dict[str, int], dict[str, Bound], dict[str, Bound]]:
    """A FileAction's ``nulls``, ``low`` and ``high`` of a file's flat columns, from the Parquet footer."""
    nulls: dict[str, int] = {}
    low: dict[str, Bound] = {}
    high: dict[str, Bound] = {}
    leaf = -1
    for field in list(schema)[:STATISTICS_COLUMNS]:
        leaf += _leaves(field.type)
        if is_nested(field.type):
            continue
        parts = [metadata.row_group(g).column(leaf).statistics for g in range(metadata.num_row_groups)]
        if all(part is not None and part.has_null_count for part in parts):
            nulls[field.name] = sum(part.null_count for part in parts)
        valued = [part for part in parts if part is None or part.num_values]
        if valued and all(part is not None and part.has_min_max for part in valued):
            bounds = _bounds(valued, field.type)
            if bounds is not None:
                low[field.name], high[field.name] = bounds
    return nulls, low, high


def _leaves(kind: pa.DataType) -> int:
    """How many columns of Parquet's a column is; their paths do not tell, for a name may have dots."""
    if pa.types.is_list(kind):
        return _leaves(kind.value_type)
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    return sum(_leaves(field.type) for field in kind) if pa.types.is_struct(kind) else 1


def _bounds(parts: list[Any], kind: pa.DataType) -> tuple[Bound, Bound] | None:
    """What no value is below, and above; None where that cannot be told for sure."""
    if pa.types.is_string(kind):
        return _string_bounds(min(part.min for part in parts), max(part.max for part in parts))
    if pa.types.is_decimal(kind):
        ends = [(_unscaled(part.min_raw), _unscaled(part.max_raw)) for part in parts]
    elif pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        ends = [(part.min_raw, part.max_raw) for part in parts]
    else:
        return None
    return min(low for low, _ in ends), max(high for _, high in ends)


def _unscaled(raw: bytes) -> int:
    """Source: Parquet format, LogicalTypes, DECIMAL: big-endian two's complement."""
    return int.from_bytes(raw, "big", signed=True)


def _string_bounds(low: str, high: str) -> tuple[str, str]:
    """Prefixes that still bound: a prefix sorts before its string; with the last character behind, after it."""
    return low[:_STRING_BOUND], high if len(high) <= _STRING_BOUND else high[:_STRING_BOUND] + _LAST


def read_batches(folder: Folder, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The file's rows in order, a row group at a time, in ``schema``: NULL in columns that the file lacks."""
    with _opened(folder, path) as file:
        for group in range(file.num_row_groups):
            yield from _row_group(folder, file, group, schema)


def read_rows(folder: Folder, path: str, schema: pa.Schema, positions: npt.NDArray[np.int64]) -> pa.Table:
    """The file's rows at ``positions``, which rise, as ``read_batches`` has them; other row groups are not read."""
    pieces, start = [schema.empty_table()], 0
    with _opened(folder, path) as file:
        for group in range(file.num_row_groups):
            stop = start + file.metadata.row_group(group).num_rows
            first, last = np.searchsorted(positions, (start, stop))
            if first < last:
                rows = pa.Table.from_batches(_row_group(folder, file, group, schema), schema)
                pieces.append(rows.take(positions[first:last] - start))
            start = stop
    return pa.concat_tables(pieces)


def _opened(folder: Folder, path: str) -> pq.ParquetFile:
    with using_file(folder.uri):
        return pq.ParquetFile(folder.files.open_input_file(path), pre_buffer=not folder.is_local)


def _row_group(folder: Folder, file: pq.ParquetFile, group: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns = _columns_there(file, schema)
    if columns:
        large = file.metadata.row_group(group).total_byte_size >= _THREADS_BYTES
        with using_file(folder.uri):
            rows = file.read_row_group(group, columns=list(columns), use_threads=large)
        rows = rows.rename_columns([columns[name] for name in rows.column_names])
        yield from (align(batch, schema) for batch in rows.to_batches())
    else:
        count = file.metadata.row_group(group).num_rows
        yield pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in schema], schema=schema)


def _columns_there(file: pq.ParquetFile, schema: pa.Schema) -> dict[str, str]:
    """The file's names of those of ``schema``'s columns that it has, with the names there.

    Columns that say an id (FIELD_ID) are known by that alone, whatever bears their names.
    """
    own = file.schema_arrow
    ids = {field.metadata[_ID]: field.name for field in own if _ID in (field.metadata or {})}
    names = {field.name: ids.get(field.metadata[_ID]) if _ID in (field.metadata or {}) else field.name
             for field in schema}  # fmt: skip
    return {there: name for name, there in names.items() if there is not None and there in own.names}


def align(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in ``schema``'s columns and types (the same or wider), NULL where it has none."""
    if batch.schema.equals(schema):
        return batch
    own = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in own else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
