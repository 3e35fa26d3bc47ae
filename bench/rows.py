"""The server's rows beside the lake's, as values and nothing else: by code that shares nothing with the product's."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
from deltalake import DeltaTable
from psycopg import sql

_NATIVE = (16, 20, 21, 23, 25, 26, 700, 701, 1005, 1007, 1009, 1016, 1043, 1114, 1184)
_INTERVAL_OID = 1186
_OUTPUT = "CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END"  # by the type's output function, no cast
_PARTS = """
CASE WHEN {0} IS NOT NULL THEN concat_ws(' ',
    (extract(year FROM {0}) * 12 + extract(month FROM {0}))::int, extract(day FROM {0})::int,
    ((extract(hour FROM {0}) * 60 + extract(minute FROM {0})) * 60000000 + extract(microseconds FROM {0}))::bigint) END
"""
_PUBLISHED = """
SELECT c.oid::int, p.tablename, p.rowfilter, c.relkind = 'p'
  FROM pg_publication_tables p
  JOIN pg_class c ON c.relname = p.tablename AND c.relnamespace = to_regnamespace(quote_ident(p.schemaname))
 WHERE p.pubname = 'pub' AND p.schemaname = %s
"""
_COLUMNS = """
SELECT a.attname, a.atttypid::int
  FROM pg_publication_tables p
  JOIN pg_attribute a ON a.attname = ANY (p.attnames) AND a.attrelid = %s AND a.attnum > 0
 WHERE p.pubname = 'pub' AND p.schemaname = %s AND p.tablename = %s
 ORDER BY a.attnum
"""


def published(connection: psycopg.Connection, schema: str) -> list[str]:
    """The names of the schema's tables in the publication pub."""
    return [name for _, name, *_ in connection.execute(_PUBLISHED, [schema])]


def difference(connection: psycopg.Connection, lake: str, schema: str) -> str | None:
    """What of the schema's tables in pub the folder ``lake`` has otherwise, in words; None where all is equal."""
    for oid, name, row_filter, partitioned in connection.execute(_PUBLISHED, [schema]).fetchall():
        columns = connection.execute(_COLUMNS, [oid, schema, name]).fetchall()
        source = Counter(_source_rows(connection, (schema, name), columns, row_filter, partitioned))
        found = Counter(_lake_rows(f"{lake}/{schema}/{_escaped(name)}", [column for column, _ in columns]))
        if source != found:
            return f"{name}: only the source has {list(source - found)[:3]}, only the lake {list(found - source)[:3]}"
    return None


def _source_rows(
    connection: psycopg.Connection,
    table: tuple[str, str],
    columns: Sequence[tuple[str, int]],
    row_filter: str | None,
    partitioned: bool,
) -> list[tuple[str | None, ...]]:
    wanted = sql.SQL(", ").join(sql.SQL(_expression(oid)).format(sql.Identifier(column)) for column, oid in columns)
    only = sql.SQL("" if partitioned else "ONLY ")
    query = sql.SQL("SELECT {} FROM {}{}").format(wanted, only, sql.Identifier(*table))
    if row_filter:
        query += sql.SQL(" WHERE ") + sql.SQL(row_filter)
    return [tuple(map(_text, row)) for row in connection.execute(query)]


def _expression(oid: int) -> LiteralString:
    if oid == _INTERVAL_OID:
        return _PARTS
    return "{0}" if oid in _NATIVE else _OUTPUT


def _lake_rows(path: str, columns: Sequence[str]) -> list[tuple[str | None, ...]]:
    if not DeltaTable.is_deltatable(path):
        return [("no table",)]
    rows = pa.table(DeltaTable(path).scan()).to_pylist()
    return [tuple(_text(row.get(column)) for column in columns) for row in rows]


def _escaped(name: str) -> str:
    """As the lake's folders are named: bytes that are not plain stand as ~XX."""
    return re.sub(rb"[^A-Za-z0-9_.-]", lambda found: b"~%02X" % ord(found[0]), name.encode()).decode()


def _field(value: Any) -> str:
    """As record_out writes an attribute."""
    text = _text(value)
    if text is None or (text and not re.search(r'[\s,()"\\]', text)):
        return text or ""
    return '"' + re.sub(r'(["\\])', r"\1\1", text) + '"'


def _element(value: Any) -> str:
    """As array_out writes an element."""
    text = str(_text(value))
    if text and text.upper() != "NULL" and not re.search(r'[\s,{}"\\]', text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _text(value: Any) -> str | None:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    if isinstance(value, dict):
        interval = "microseconds" in value
        value = " ".join(map(str, value.values())) if interval else f"({','.join(map(_field, value.values()))})"
    if isinstance(value, list):
        value = f"{{{','.join('NULL' if each is None else _element(each) for each in value)}}}"
    if isinstance(value, bytes):
        value = f"\\x{value.hex()}"
    return None if value is None else str(value)
