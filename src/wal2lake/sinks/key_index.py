"""Where the keys of a data file are: a file beside it, made of it by the first who looks through its key columns.

It is only a cache, and nothing depends on it: where it is absent, torn, damaged, or of other columns it is made anew,
and where it cannot be made the key columns are read. A data file never changes, so neither does its index, which says
what it is of. It is put in its place in one step, and its checksum tells what a crash of the machine left.

::

    Arrow IPC file     its schema's metadata says of what it is; a batch for each run of the data file's rows
    uint32             CRC-32 of all bytes before
    "W2LK"

A run has, where a key is its own number (key_numbers.py), the numbers in order, and the row of each. Otherwise it has
the upper bits of the numbers in order, each with its row in the lower bits, and the keys themselves in the rows' order:
what is found by a number that others may have is compared.

Numbers are little-endian. The file is mapped into memory, and what a look-up does not touch is not read again.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa

from wal2lake.apply.row_index import Ids, RowIndex, take
from wal2lake.files import replacing
from wal2lake.sinks.key_numbers import Numbers, is_own_number, key_numbers

RUN_ROWS: Final = 2 << 20  # as many are sorted at once: some 75 MB, of long keys three times that
KEY_BYTES: Final = 64  # of a key that is hashed, on average: an index of longer ones were as large as the data
_FORMAT: Final = 1
_ABOUT: Final = b"wal2lake"
_TRAILER: Final = struct.Struct("<I4s")
_MAGIC: Final = b"W2LK"
_CHUNK: Final = 1 << 20

Found = tuple[Ids, Ids]  # positions in the data file, rising, and the ids of their keys


def about(columns: Sequence[pa.Field], size: int, rows: int, seed: int) -> bytes:
    """What an index says of itself: the key's columns, the data file's bytes and rows, and the hash's seed."""
    key = [[column.name, str(column.type)] for column in columns]
    return json.dumps({"format": _FORMAT, "key": key, "size": size, "rows": rows, "seed": f"{seed:x}"}).encode()


class Wanted:
    """The distinct keys for which somebody looks, in the order of their numbers."""

    def __init__(self, index: RowIndex, keys: pa.Table, seed: int) -> None:
        self._index = index
        self._own = is_own_number(keys.schema.types)
        numbers = key_numbers(take(keys, index.representatives()), seed)
        self._ids: Ids = np.argsort(numbers, kind="stable")
        self._numbers = numbers[self._ids]

    def find_in(self, runs: Sequence[pa.RecordBatch]) -> Found:
        """All rows that have one of the keys."""
        start, positions, ids = 0, [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for run in runs:
            at, of = self._by_number(run) if self._own else self._by_hash(run)
            order = np.argsort(at)
            positions.append(at[order] + start)
            ids.append(of[order])
            start += run.num_rows
        return np.concatenate(positions), np.concatenate(ids)

    def _by_number(self, run: pa.RecordBatch) -> Found:
        there = run.column(0).to_numpy()
        low, high = np.searchsorted(self._numbers, there[0]), np.searchsorted(self._numbers, there[-1], "right")
        at, which = _equal(there, self._numbers[low:high], np.uint64(0))
        return run.column(1).to_numpy()[at].astype(np.int64), self._ids[low:high][which]

    def _by_hash(self, run: pa.RecordBatch) -> Found:
        there, rest = run.column(0).to_numpy(), _row_mask(run.num_rows)
        at, _ = _equal(there, self._numbers & ~rest, rest)
        rows: Ids = np.unique(there[at] & rest).astype(np.int64)
        of = self._index.find(pa.Table.from_batches([run]).select(range(1, run.num_columns)).take(pa.array(rows)))
        return rows[of >= 0], of[of >= 0]


def _row_mask(rows: int) -> np.uint64:
    """The bits that tell the row in a run of so many."""
    return np.uint64((1 << (rows - 1).bit_length()) - 1)


def _equal(there: Numbers, wanted: Numbers, width: np.uint64) -> Found:
    """Where in ``there`` stand numbers from each of ``wanted`` up to ``width`` more, and which of them; both rise."""
    first = np.searchsorted(there, wanted)
    which = np.flatnonzero(there[np.minimum(first, len(there) - 1)] - wanted <= width)
    first, wanted = first[which], wanted[which]
    several = np.flatnonzero(there[np.minimum(first + 1, len(there) - 1)] - wanted <= width)
    if not len(several):  # which is how it mostly is, and each search may touch pages that no other does
        return first, which
    count = np.ones(len(which), np.int64)
    count[several] = np.searchsorted(there, wanted[several] + width, "right") - first[several]
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(count.sum()), np.repeat(which, count)


def open_index(path: Path, said: bytes) -> list[pa.RecordBatch] | None:
    """The runs of the index at ``path``, mapped into memory; [] where such keys have none; None where it is not there,
    whole, and of what is ``said`` (by ``about``)."""
    try:
        found = path.stat()
        if not _is_whole(str(path), found.st_ino, found.st_size, found.st_mtime_ns):
            return None
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(pa.BufferReader(file.read_buffer(found.st_size - _TRAILER.size)))
        if reader.schema.metadata[_ABOUT] != said:
            return None
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except (OSError, pa.ArrowException):
        return None


@lru_cache(1 << 14)
def _is_whole(path: str, *_identity: int) -> bool:
    """Its checksum holds; read once by each process, and not through the map: a disk's error is one here."""
    with open(path, "rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END) - _TRAILER.size
        return size > 0 and _TRAILER.pack(_checksum(file, size), _MAGIC) == file.read(_TRAILER.size)


def _checksum(file: IO[bytes], size: int) -> int:
    """CRC-32 of the first ``size`` bytes."""
    checksum = file.seek(0)
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        checksum, size = zlib.crc32(chunk, checksum), size - len(chunk)
    return checksum


class _UnfitError(Exception):
    """Such keys have no index."""


def write_index(path: Path, keys: Iterable[pa.Table], kinds: list[pa.DataType], said: bytes, seed: int) -> None:
    """Put the index at ``path`` of the rows with these ``keys``, of these ``kinds``, in order. Raises OSError.

    It has no run where a key is NULL, or keys are long.
    """
    own = is_own_number(kinds)
    columns = [(f"key {place}", kind) for place, kind in enumerate(kinds)]
    fields = [("number", pa.uint64()), ("row", pa.uint32())] if own else [("entry", pa.uint64()), *columns]
    schema = pa.schema(fields, metadata={_ABOUT: said})
    try:
        _write(path, schema, (_run(schema, rows, own, seed) for rows in _gathered(keys)))
    except _UnfitError:
        _write(path, schema, [])


def _write(path: Path, schema: pa.Schema, runs: Iterable[pa.RecordBatch]) -> None:
    with replacing(path) as file:
        with pa.ipc.new_file(file, schema) as out:
            for run in runs:
                out.write_batch(run)
        size = file.tell()
        file.flush()
        with open(file.name, "rb", buffering=0) as written:
            file.write(_TRAILER.pack(_checksum(written, size), _MAGIC))


def _gathered(keys: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """In runs of RUN_ROWS, but for the last."""
    pending: list[pa.Table] = []
    count = 0
    for rows in keys:
        pending.append(rows)
        count += rows.num_rows
        while count >= RUN_ROWS:
            whole = pa.concat_tables(pending)
            yield whole.slice(0, RUN_ROWS)
            pending, count = [whole.slice(RUN_ROWS)], count - RUN_ROWS
    if count:
        yield pa.concat_tables(pending)


def _run(schema: pa.Schema, keys: pa.Table, own: bool, seed: int) -> pa.RecordBatch:
    if any(column.null_count for column in keys.columns) or (not own and keys.nbytes > KEY_BYTES * keys.num_rows):
        raise _UnfitError
    numbers = key_numbers(keys, seed)
    if own:
        order = np.argsort(numbers, kind="stable")
        return pa.record_batch([pa.array(numbers[order]), pa.array(order.astype(np.uint32))], schema=schema)
    rest = _row_mask(keys.num_rows)
    entries = np.sort((numbers & ~rest) | np.arange(keys.num_rows, dtype=np.uint64))
    return pa.record_batch([pa.array(entries), *(column.combine_chunks() for column in keys.columns)], schema=schema)
