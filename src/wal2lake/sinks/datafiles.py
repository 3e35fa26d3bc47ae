"""Parquet files that every Delta reader can prune: ~128 MiB, row groups of at most 1 Mi rows, statistics in the log.

A statistic that a reader could misread is left out, for a wrong one loses rows: no bounds for floats (NaN has no
place in them) and decimals (JSON numbers are read as floats); long strings and sub-millisecond times are widened.

Source: Delta transaction log protocol, "Per-file Statistics".
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wal2lake.sinks.base import FileAction
from wal2lake.sinks.failures import using_file
from wal2lake.sinks.folder import Folder

FILE_BYTES: Final = 128 << 20
ROW_GROUP_ROWS: Final = 1 << 20
ROW_GROUP_BYTES: Final = 64 << 20
STATISTICS_COLUMNS: Final = 32  # Delta's own default
_STRING_BOUND: Final = 32  # characters; Delta's own default
_LAST: Final = "\U0010ffff"
# zstd alone makes files as small as dictionaries and zstd, is written in two thirds of the time and read in half.
_WRITER: Final = {"compression": "zstd", "compression_level": 1, "use_dictionary": False, "store_schema": False}


def write_data_files(folder: Folder, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[FileAction]:
    """Write the rows below ``folder`` in durable Parquet files; none for no rows.

    ``schema``: top-level columns of THE type table, or lists of strings. Batches must have exactly this schema.
    """
    folder.create()
    groups = _row_groups(batches, schema)
    names: list[str] = []
    actions = []
    try:
        for group in groups:
            names.append(f"part-{uuid.uuid4()}.zstd.parquet")
            with folder.files.open_output_stream(names[-1]) as stream:
                metadata = _write_file(stream, group, groups, schema)
                size = stream.tell()
            stats = json.dumps(file_statistics(metadata, schema))
            actions.append(FileAction(names[-1], size, time.time_ns() // 1_000_000, metadata.num_rows, stats))
        folder.sync(names)
    except BaseException:  # what nobody will ever name must not keep a full disk full
        folder.remove(names)
        raise
    return actions


def _write_file(stream: Any, first: pa.Table, rest: Iterator[pa.Table], schema: pa.Schema) -> pq.FileMetaData:
    """Write ``first`` and as many more row groups as make a full file."""
    writer = pq.ParquetWriter(stream, schema, **_WRITER)
    with writer:
        writer.write_table(first, row_group_size=ROW_GROUP_ROWS)
        while stream.tell() < FILE_BYTES and (group := next(rest, None)) is not None:
            writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
    return writer.writer.metadata


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Gather batches until they make a row group, by rows or bytes."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending, schema)
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending, schema)


def file_statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """Delta's statistics object for a file of flat columns, read from the Parquet footer."""
    found: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    columns = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for field in list(schema)[:STATISTICS_COLUMNS]:
        if field.name not in columns:
            continue  # a list; its leaf has another path
        leaf = columns[field.name]
        parts = [metadata.row_group(g).column(leaf).statistics for g in range(metadata.num_row_groups)]
        if all(part is not None and part.has_null_count for part in parts):
            found["nullCount"][field.name] = sum(part.null_count for part in parts)
        valued = [part for part in parts if part is None or part.num_values]
        if valued and all(part is not None and part.has_min_max for part in valued):
            low, high = _bounds(valued, field.type)
            if low is not None and high is not None:
                found["minValues"][field.name], found["maxValues"][field.name] = low, high
    return found


def _bounds(parts: list[Any], kind: pa.DataType) -> tuple[Any, Any]:
    """The least and greatest value as Delta writes them in JSON, or None where no safe bound can be told."""
    if pa.types.is_string(kind):
        return _string_bounds(min(part.min for part in parts), max(part.max for part in parts))
    if not (pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return None, None
    low, high = min(part.min_raw for part in parts), max(part.max_raw for part in parts)
    if pa.types.is_integer(kind):
        return low, high
    if pa.types.is_date32(kind):
        return _time(low, "D", ""), _time(high, "D", "")
    zone = "Z" if kind.tz else ""
    return _time(low // 1000, "ms", zone), _time(-(-high // 1000), "ms", zone)


def _string_bounds(low: str, high: str) -> tuple[str, str]:
    """Prefixes that still bound: a prefix sorts before its string; with the last character behind, after it."""
    return low[:_STRING_BOUND], high if len(high) <= _STRING_BOUND else high[:_STRING_BOUND] + _LAST


def _time(value: int, unit: str, zone: str) -> str | None:
    text = str(np.array(value).astype(f"datetime64[{unit}]"))
    return text + zone if len(text.partition("-")[0]) == 4 else None  # years 0 … 9999 only


def read_batches(folder: Folder, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The file's rows in order, a row group at a time, in ``schema``: NULL in columns that the file lacks."""
    with using_file(folder.uri):
        opened = pq.ParquetFile(folder.files.open_input_file(path), pre_buffer=False)
    with opened as file:
        own = set(file.schema_arrow.names)
        columns = [name for name in schema.names if name in own]
        for group in range(file.num_row_groups):
            if columns:
                with using_file(folder.uri):
                    rows = file.read_row_group(group, columns=columns)
                yield from (align(batch, schema) for batch in rows.to_batches())
            else:
                yield _nulls(file.metadata.row_group(group).num_rows, schema)


def _nulls(rows: int, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


def align(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in ``schema``'s columns and types (the same or wider), NULL where it has none."""
    own = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in own else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
