"""Lake tables written the plain way, sharing nothing with wal2lake: COPY's text, Python objects, write_deltalake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.lsn import LSN
from wal2lake.testing.embedded import EmbeddedPostgres

Row = dict[str, Any]

BOOL, INT16, INT32, INT64 = pa.bool_(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE, STRING, BINARY, DATE = pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32()
NTZ, UTC_US = pa.timestamp("us"), pa.timestamp("us", tz="UTC")


@dataclass
class Shop:
    """A schema of its own on the server with a publication, and an empty lake and log beside it."""

    connection: psycopg.Connection[tuple[Any, ...]]
    name: str
    config: Config

    @classmethod
    def open(cls, server: EmbeddedPostgres, name: str, folder: Path) -> Shop:
        connection = psycopg.connect(server.dsn, autocommit=True)
        connection.execute(f"CREATE SCHEMA {name}")
        connection.execute(f"CREATE PUBLICATION {name} FOR TABLES IN SCHEMA {name}")
        connection.execute(f"SET search_path = {name}; SET TimeZone = 'UTC'; SET extra_float_digits = 3")
        source = SourceConfig(dsn=server.dsn, publication=name, slot=name)
        config = Config(source, LogConfig(path=str(folder / "log")), LakeConfig(path=str(folder / "lake")))
        shop = cls(connection, name, config)
        ChangeLog.create(config.log.path, LogIdentity("1", 1, "postgres", name, name, shop.lsn()))
        return shop

    def lsn(self) -> LSN:
        row = self.connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        return LSN.parse(row[0])

    def sql(self, query: str) -> None:
        self.connection.execute(query.encode())

    def close(self) -> None:
        self.sql(f"DROP PUBLICATION {self.name}; DROP SCHEMA {self.name} CASCADE")
        self.connection.close()

    def uri(self, table: str) -> str:
        return f"{self.config.lake.path}/{self.name}/{table}"

    def rows(
        self, table: str, schema: pa.Schema, text: Callable[[str | None], str | None] = lambda text: text
    ) -> list[Row]:
        """The table's rows as Python values of the lake's types, read from COPY's ``text``."""
        columns = ", ".join('"' + name.replace('"', '""') + '"' for name in schema.names)
        with self.connection.cursor().copy(f'COPY "{table}" ({columns}) TO STDOUT'.encode()) as copy:
            return [_row(schema, tuple(map(text, values))) for values in copy.rows()]

    def land(self, table: str, schema: pa.Schema, lsn: LSN | None = None) -> None:
        """Write the lake table as the pipeline would leave it at ``lsn`` (now)."""
        stamp = CommitProperties(custom_metadata={"wal2lake.lsn": str(self.lsn() if lsn is None else lsn)})
        rows = pa.Table.from_pylist(self.rows(table, schema), schema=schema)
        write_deltalake(self.uri(table), rows, mode="overwrite", commit_properties=stamp)

    def sabotage(self, table: str, schema: pa.Schema, change: Callable[[list[Row]], object]) -> None:
        """Commit changed rows behind wal2lake's back."""
        rows = self.rows(table, schema)
        change(rows)
        write_deltalake(self.uri(table), pa.Table.from_pylist(rows, schema=schema), mode="overwrite")


def _row(schema: pa.Schema, values: tuple[str | None, ...]) -> Row:
    return {
        field.name: None if value is None else _READERS.get(field.type, _other(field.type))(value)
        for field, value in zip(schema, values, strict=True)
    }


def _other(kind: pa.DataType) -> Callable[[str], Any]:
    return Decimal if pa.types.is_decimal(kind) else int if pa.types.is_integer(kind) else str


_READERS: Mapping[pa.DataType, Callable[[str], Any]] = {
    BOOL: lambda text: {"t": True, "f": False}[text],
    FLOAT: float,
    DOUBLE: float,
    BINARY: lambda text: bytes.fromhex(text.removeprefix("\\x")),
    DATE: date.fromisoformat,
    NTZ: datetime.fromisoformat,
    UTC_US: lambda text: datetime.fromisoformat(text).astimezone(UTC),
}
