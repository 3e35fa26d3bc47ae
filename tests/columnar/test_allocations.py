"""No Python object per value: a million rows make no more of them than their blocks need."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import pyarrow as pa

from tests.columnar.stream import LOG_SCHEMA
from wal2lake.columnar.changes import decode_changes, iter_changes
from wal2lake.columnar.copy_rows import decode_copy_rows
from wal2lake.columnar.types import TableSchema
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import Insert
from wal2lake.pgoutput.tuples import TupleColumn, TupleData

ROWS, MINE, NUMERIC_12_2 = 1_000_000, 16_400, (12 << 16 | 2) + 4
OIDS = [20, 23, 25, 23, 1700, 701, 1184, 25, 16, 2950]
VALUES = [
    b"1234567890", b"42", b"customer name 42", b"-7", b"1234.50", b"2.718281828459045",
    b"2024-02-29 01:02:03.456789+00", "a note, été".encode(), b"t", b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
]  # fmt: skip
SCHEMA = TableSchema.build(
    MINE, "s", "t", [(f"c{n}", oid, NUMERIC_12_2 if oid == 1700 else -1, None, n == 0) for n, oid in enumerate(OIDS)]
)


class Peak:
    """How many calls ``work`` makes, and the most Python blocks alive when a Python function returns."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.calls = 0
        self._before = self._most = sys.getallocatedblocks()
        sys.setprofile(self._sample)
        try:
            work()
        finally:
            sys.setprofile(None)
        self.blocks = self._most - self._before

    def _sample(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")
        if event == "return":
            self._most = max(self._most, sys.getallocatedblocks())


def log_rows(count: int) -> pa.RecordBatch:
    """``count`` times the same Insert, made without touching each."""
    message = write_message(Insert(MINE, TupleData(tuple(TupleColumn("t", value) for value in VALUES))))
    offsets = np.arange(0, (count + 1) * len(message), len(message), dtype=np.int32)
    payload = pa.Array.from_buffers(
        pa.binary(),
        count,
        [None, pa.py_buffer(offsets), pa.py_buffer(np.tile(np.frombuffer(message, np.uint8), count))],
    )
    numbers = (np.arange(count), np.full(count, ord("I")), np.full(count, MINE), np.ones(count))
    columns = [pa.array(column, field.type) for column, field in zip(numbers, LOG_SCHEMA, strict=False)]
    return pa.RecordBatch.from_arrays([*columns, payload], schema=LOG_SCHEMA)


def test_parts_need_no_more_for_more_rows() -> None:
    rows = 200_000
    batch, decoded = log_rows(rows), 0

    def work() -> None:
        nonlocal decoded
        for part in iter_changes(batch, SCHEMA):
            decoded += len(part)

    peak = Peak(work)
    assert decoded == rows
    assert peak.blocks < 2_000
    assert peak.calls < rows / 4


def test_a_million_rows_in_one() -> None:
    batch = log_rows(ROWS)
    peak = Peak(lambda: decode_changes(batch, SCHEMA))
    assert peak.blocks < ROWS / 50


def test_copy_rows_allocate_no_more_than_their_list() -> None:
    text = TableSchema.build(1, "s", "t", [(f"c{n}", 25, -1, None, False) for n in range(3)])
    rows = [b"\x00\x03" + b"\x00\x00\x00\x01a" * 3] * 100_000
    assert Peak(lambda: decode_copy_rows(rows, text.columns, "s.t")).blocks < 1_000
