"""The lake's tables as SQL statements that make them known to an engine or a catalog, each in its own dialect.

The rule: a name or a place is quoted as its dialect quotes it, whatever is in it; and no statement makes a name lead
to another table's rows. None of these tells names by case; so of tables that differ by nothing else there is a comment
instead, as of those whose names cannot be printed. Nothing is run here.

Delta tables are known to all of them; what there is no statement for is refused, with what to do instead.

Source: Spark SQL reference, "CREATE TABLE" and "String literal"; Amazon Athena, "Query Delta Lake tables"; Trino,
"Delta Lake connector", register_table; DuckDB, "Delta extension".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wal2lake.errors import ConfigError
from wal2lake.names import printable, qualified

_INSTEAD: Final = {
    "iceberg": "An engine finds them in the catalog: give it the one of lake.catalog (docs/iceberg.md).",
    "parquet": "Read the tables' folders (docs/parquet.md), or print DuckDB's views: --sql duckdb.",
}


class Dialect(StrEnum):
    """Of whom the statements are understood. ``spark`` is Databricks', Unity Catalog's and a Hive metastore's too."""

    SPARK = "spark"
    TRINO = "trino"
    ATHENA = "athena"
    DUCKDB = "duckdb"


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table's schema and name, and where it lies: a URL, or the absolute path of a folder."""

    namespace: str
    name: str
    place: str


def statements(
    tables: Iterable[LakeTable], dialect: Dialect, catalog: str = "", lake_format: str = "delta"
) -> Iterator[str]:
    """A schema's statement before those of its tables; each ends with a semicolon, or is a comment. ``catalog``: what
    the names begin with, '' where the session's own is meant. Raises ConfigError for a lake of a format that has none.
    """
    if lake_format != "delta" and (lake_format, dialect) != ("parquet", Dialect.DUCKDB):
        instead = _INSTEAD.get(lake_format, "Its reader is the business of the package that writes it.")
        raise ConfigError(f"There is no statement of {dialect}'s for tables of the format {lake_format}.", hint=instead)
    above, tables = [catalog] if catalog else [], list(tables)
    alike = Counter(_folded(table) for table in tables)
    schemas: set[str] = set()
    for table in tables:
        schema = [*above, table.namespace]
        name = qualified(table.namespace, table.name)
        if alike[_folded(table)] > 1:
            yield f"-- {name}: left out, for another table's name differs by case alone."
            continue
        if printable(table.namespace + table.name) != table.namespace + table.name:
            yield f"-- {name}: left out, for its name cannot be printed."
            continue
        if table.namespace not in schemas:
            schemas.add(table.namespace)
            yield f"CREATE SCHEMA IF NOT EXISTS {_name(dialect, schema)};"
        yield f"{_known(dialect, schema, table) if lake_format == 'delta' else _files(dialect, schema, table)};"


def _folded(table: LakeTable) -> tuple[str, str]:
    return table.namespace.casefold(), table.name.casefold()


def _known(dialect: Dialect, schema: list[str], table: LakeTable) -> str:
    name, place = _name(dialect, [*schema, table.name]), _text(dialect, table.place)
    match dialect:
        case Dialect.SPARK:
            return f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION {place}"
        case Dialect.ATHENA:
            return f"CREATE EXTERNAL TABLE IF NOT EXISTS {name} LOCATION {place} TBLPROPERTIES ('table_type' = 'DELTA')"
        case Dialect.DUCKDB:
            return f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM delta_scan({place})"
        case Dialect.TRINO:
            own = _name(dialect, [*schema[:-1], "system", "register_table"])
            named = {"schema_name": table.namespace, "table_name": table.name, "table_location": table.place}
            return f"CALL {own}({', '.join(f'{key} => {_text(dialect, value)}' for key, value in named.items())})"


def _files(dialect: Dialect, schema: list[str], table: LakeTable) -> str:
    """A Parquet change feed, for DuckDB."""
    files = _text(dialect, f"{table.place}/after_lsn=*/*.parquet")
    read = f"read_parquet({files}, union_by_name = true, hive_partitioning = true)"
    return f"CREATE OR REPLACE VIEW {_name(dialect, [*schema, table.name])} AS SELECT * FROM {read}"


def _name(dialect: Dialect, parts: list[str]) -> str:
    mark = "`" if dialect in (Dialect.SPARK, Dialect.ATHENA) else '"'
    return ".".join(mark + part.replace(mark, mark * 2) + mark for part in parts)


def _text(dialect: Dialect, text: str) -> str:
    if dialect in (Dialect.SPARK, Dialect.ATHENA):  # where a backslash is not itself
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + text.replace("'", "''") + "'"
