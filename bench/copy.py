"""copy: a table of ten columns by COPY binary over one connection into Arrow, against adbc-driver-postgresql.

Both begin with a connection and end when the last batch is there; what was read is counted and let go. ADBC's driver
gives numeric as text, ours as decimal128.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from urllib.parse import quote

from adbc_driver_postgresql import dbapi

from bench import common
from wal2lake.columnar.copy_rows import iter_copy_rows
from wal2lake.postgres.catalog import published_tables
from wal2lake.postgres.connection import connect
from wal2lake.postgres.snapshot import SnapshotKeeper, copy_binary
from wal2lake.tables.chunks import table_schema
from wal2lake.testing.embedded import EmbeddedPostgres

BAR = 0.9


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench copy", description=__doc__)
    parser.add_argument("--rows", type=int, default=common.CHANGES)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(argv)
    with common.server() as postgres:
        common.create_table(postgres)
        common.insert_rows(postgres, given.rows)
        postgres.psql(f"VACUUM (FREEZE, ANALYZE) {common.TABLE}; CHECKPOINT")
        with SnapshotKeeper(postgres.dsn) as keeper:
            readers = {"wal2lake copy": ours(postgres, keeper.identity.name), "adbc-driver-postgresql": adbc(postgres)}
            return common.verdict(
                common.alternate({name: _rate(read, given.rows) for name, read in readers.items()}, given.rounds), BAR
            )


def _rate(read: Callable[[], int], rows: int) -> Callable[[], float]:
    def measure() -> float:
        found: list[int] = []
        seconds = common.timed(lambda: found.append(read()))
        assert found == [rows], f"{found[0]} rows arrived"
        return rows / seconds

    return measure


def ours(postgres: EmbeddedPostgres, snapshot: str) -> Callable[[], int]:
    """As a snapshot's task reads a chunk; how many rows came."""
    with connect(postgres.tcp_dsn) as connection:
        (table,) = published_tables(connection, common.PUBLICATION)
    columns = table_schema(table).columns

    def read() -> int:
        batches = copy_binary(postgres.tcp_dsn, snapshot, table, table.columns)
        parts = (arrays for rows in batches for arrays in iter_copy_rows(rows, columns, str(table)))
        return sum(len(arrays[0]) for arrays in parts)

    return read


def adbc(postgres: EmbeddedPostgres) -> Callable[[], int]:
    """The driver's own reading, which is COPY binary too."""
    words = dict(word.split("=") for word in postgres.tcp_dsn.split())
    user = f"{words['user']}:{quote(words['password'])}"
    uri = f"postgresql://{user}@{words['host']}:{words['port']}/{words['dbname']}"

    def read() -> int:
        with dbapi.connect(uri) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {common.TABLE}")
            return sum(batch.num_rows for batch in cursor.fetch_record_batch())

    return read
