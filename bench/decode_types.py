"""What a value of each type costs: nanoseconds to a typed column, from text and from binary form, beside int4's.

The values are a server's, in blocks of the size in which batches are decoded; the fastest of the rounds counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final

from bench import common
from wal2lake.columnar.buffer import BLOCK_ROWS, MessageBatch
from wal2lake.columnar.copy_rows import walk
from wal2lake.columnar.decoders import binary_decoder, text_decoder
from wal2lake.columnar.framing import Framed
from wal2lake.columnar.tuples import AS_BINARY, decode_field
from wal2lake.columnar.types import TableColumn
from wal2lake.postgres.catalog import published_tables
from wal2lake.postgres.connection import connect
from wal2lake.postgres.live_tables import copy_rows
from wal2lake.tables.chunks import table_schema
from wal2lake.tables.column_types import newest_types

_ROUNDS: Final = 15
# by name of the type: its value in row i
TYPES: Final[Mapping[str, str]] = {
    "int4": "i * 7919 % 1000003",
    "int8": "i::bigint * 1000003",
    "bool": "i % 3 = 0",
    "float8": "i / 7.0::float8",
    "numeric(12,2)": "i * 7919 % 100003 / 100.0",
    "numeric(30,8)": "i * 12345678901.12345678",
    "text": "md5(i::text)",
    "bytea": "decode(md5(i::text), 'hex')",
    "uuid": "md5(i::text)::uuid",
    "date": "'2020-01-01'::date + i % 3000",
    "timestamptz": "'2020-01-01'::timestamptz + i * '1 h 1.000001 s'::interval",
    "timestamp": "'2020-01-01'::timestamp + i * '1 h 1.000001 s'::interval",
    "interval": "make_interval(months => i % 30, days => i % 40 - 20, secs => i * 0.25)",
    "time": "'00:00'::time + i * '7.000001 s'::interval",
    "jsonb": "jsonb_build_object('a', i, 'b', md5(i::text))",
    "int4[]": "ARRAY[i, i + 1, i + 2]",
    "int4range": "int4range(i, i + 10)",
    "pair": "ROW(i, md5(i::text))::pair",
}


def report() -> None:
    """Print a line for each type."""
    print(f"{'ns per value':16}{'text':>8}{'binary':>8}{'÷ int4':>8}{'÷ int4':>8}")
    base: tuple[float, float] | None = None
    for name, text, binary in _measured():
        base = base or (text, binary)
        print(f"{name:16}{text:8.1f}{binary:8.1f}{text / base[0]:8.1f}{binary / base[1]:8.1f}")


def _measured() -> Sequence[tuple[str, float, float]]:
    with common.server() as postgres:
        columns = ", ".join(f"c{place} {name}" for place, name in enumerate(TYPES))
        postgres.psql("CREATE TYPE pair AS (a int, b text)")
        postgres.psql(f"CREATE TABLE kinds ({columns})")
        postgres.psql(f"INSERT INTO kinds SELECT {', '.join(TYPES.values())} FROM generate_series(1, {BLOCK_ROWS}) i")
        postgres.psql("CREATE PUBLICATION kinds FOR TABLE kinds")
        with closing(connect(postgres.dsn)) as connection:
            (table,) = published_tables(connection, "kinds")
            kinds = table_schema(table, newest_types(table.columns, "text")).columns
            found = []
            for name, column, catalog in zip(TYPES, kinds, table.columns, strict=True):
                source = f"SELECT {{}} FROM {table.quoted} WHERE {column.name} IS DISTINCT FROM NULL"
                rows = [copy_rows(connection, f"COPY ({source.format(value)}) TO STDOUT (FORMAT binary)")
                        for value in (f"textin({catalog.output_function}({column.name}))", column.name)]  # fmt: skip
                found.append((name, _cost(rows[0], column, text=True), _cost(rows[1], column, text=False)))
    return found


def _cost(rows: list[bytes], column: TableColumn, *, text: bool) -> float:
    messages = MessageBatch.framed(Framed.of(rows), "kinds")
    (field,) = walk(messages, [column]).fields
    formats = {AS_BINARY: text_decoder if text else binary_decoder}
    spent = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        decode_field(messages, field, column, formats, "error")
        spent.append(time.perf_counter() - began)
    return min(spent) / len(rows) * 1e9
