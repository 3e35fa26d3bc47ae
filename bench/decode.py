"""decode: the TupleData of 1.5 M real changes to typed Arrow columns, one core, against pypgoutput on the same bytes.

pypgoutput decodes to Python strings only, and slowly: it gets a sample of the messages in each round. Before that
stands what a value of each type costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import psycopg
import pyarrow as pa
from pypgoutput import decoders

from bench import common, decode_types
from wal2lake.columnar.changes import iter_changes
from wal2lake.columnar.copy_rows import decode_copy_rows
from wal2lake.columnar.types import TableColumn, TableSchema, column_type
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Relation

BAR = 27
ROUNDS = 5
ROWS_PER_BATCH = 65_536
_COPY_HEADER = 19
_PG_LSN_AS_INT8, _XID_AS_OID, _BYTEA = 20, 26, 17
_RAW = [TableColumn(name, column_type(oid), False)
        for name, oid in (("lsn", _PG_LSN_AS_INT8), ("xid", _XID_AS_OID), ("payload", _BYTEA))]  # fmt: skip


def main(argv: list[str]) -> int:
    """Run the benchmark; 0 if the bar is met."""
    parser = argparse.ArgumentParser(prog="python -m bench decode", description=__doc__)
    parser.add_argument("--changes", type=int, default=common.CHANGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sample", type=int, default=50_000, help="messages per round for pypgoutput")
    parser.add_argument("--rows-per-batch", type=int, default=ROWS_PER_BATCH)
    parser.add_argument("--binary", action="store_true", help="stream tuples in binary form")
    parser.add_argument("--no-types", dest="types", action="store_false", help="without the cost of each type")
    options = parser.parse_args(argv)
    if options.types:
        decode_types.report()
    batches = list(real_changes(options.changes, options.rows_per_batch, binary=options.binary))
    schema = relation_schema(batches)
    sample = inserts(batches)[: options.sample]
    common.one_core()
    print(f"{options.changes:,} changes, {len(sample):,} of them for pypgoutput")
    medians = common.alternate(
        {"wal2lake": lambda: ours(batches, schema), "pypgoutput": lambda: theirs(sample)}, options.rounds
    )
    return common.verdict(medians, BAR)


def ours(batches: list[pa.RecordBatch], schema: TableSchema) -> float:
    """Rows per second to typed columns."""
    rows = 0
    began = time.perf_counter()
    for batch in batches:
        rows += sum(len(part) for part in iter_changes(batch, schema))
    return rows / (time.perf_counter() - began)


def theirs(payloads: list[bytes]) -> float:
    """Rows per second to Python strings."""
    began = time.perf_counter()
    for payload in payloads:
        decoders.Insert(payload)
    return len(payloads) / (time.perf_counter() - began)


def real_changes(changes: int, rows_per_batch: int, *, binary: bool) -> Iterator[pa.RecordBatch]:
    """What a server's pgoutput says of that many inserts, as batches of the change log's columns."""
    with common.server() as postgres:
        common.create_table(postgres)
        common.create_slot(postgres, "decode")
        common.insert_rows(postgres, changes)
        options = f"'proto_version', '1', 'publication_names', '{common.PUBLICATION}', 'binary', '{binary}'"
        query = f"SELECT lsn, xid, data FROM pg_logical_slot_peek_binary_changes('decode', NULL, NULL, {options})"
        copy_out = f"COPY ({query}) TO STDOUT (FORMAT binary)"
        with psycopg.connect(postgres.tcp_dsn) as connection, connection.cursor().copy(copy_out) as copy:
            yield from _log_batches((bytes(row) for row in copy), rows_per_batch)


def _log_batches(rows: Iterator[bytes], rows_per_batch: int) -> Iterator[pa.RecordBatch]:
    part = [next(rows)[_COPY_HEADER:]]
    for row in rows:
        if len(row) > 2:  # the trailer is 2 bytes
            part.append(row)
        if len(part) == rows_per_batch:
            yield _log_batch(part)
            part = []
    if part:
        yield _log_batch(part)


def _log_batch(rows: list[bytes]) -> pa.RecordBatch:
    lsn, xid, payload = decode_copy_rows([row for row in rows if row], _RAW, "raw changes")
    _, offsets, data = payload.buffers()
    start = np.frombuffer(offsets, np.int32)[:-1]
    tag = np.frombuffer(data, np.uint8)[start]
    second_to_fifth_byte = np.ndarray((data.size - 4,), ">u4", data, 1, (1,))[start]
    relation_id = np.where(np.isin(tag, list(b"IR")), second_to_fifth_byte, 0).astype(np.uint32)
    columns = [lsn.cast(pa.uint64()), pa.array(tag), pa.array(relation_id), xid.cast(pa.uint32()), payload]
    return pa.RecordBatch.from_arrays(columns, ["lsn", "tag", "relation_id", "xid", "payload"])


def relation_schema(batches: list[pa.RecordBatch]) -> TableSchema:
    """The schema that the first Relation message announces."""
    batch = batches[0]
    row = batch.column("tag").to_pylist().index(ord("R"))
    message = read_message(batch.column("payload")[row].as_py())
    assert isinstance(message, Relation)
    return TableSchema.from_relation(message)


def inserts(batches: list[pa.RecordBatch]) -> list[bytes]:
    """The Insert payloads of the first batch as pypgoutput wants them."""
    batch = batches[0]
    mask = pa.array(batch.column("tag").to_numpy() == ord("I"))
    payloads: list[bytes] = batch.column("payload").filter(mask).to_pylist()
    return payloads
