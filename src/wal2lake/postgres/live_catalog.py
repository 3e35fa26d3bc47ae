"""The catalog as output plugins may read it: system catalogs and user catalog tables, nothing else, and no writes.

It is the catalog of now. A C plugin reads it under the snapshot of the change; what was altered since then looks
altered here. The connection is made when it is first needed, and again when it was lost.

Source: PostgreSQL documentation, "Logical Decoding Output Plugins", Capabilities; CREATE TABLE, user_catalog_table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import sql

from wal2lake.decoding.types import TypeRow
from wal2lake.errors import ConnectError, PluginError
from wal2lake.login import Dsn
from wal2lake.postgres.connection import Connection, connect, mapped_errors

_SETTINGS = {"default_transaction_read_only": "on", "search_path": ""}

_TYPE = """
SELECT n.nspname::text, t.typname::text,
       coalesce((SELECT e.oid FROM pg_type e WHERE e.typarray = t.oid), 0)::bigint,
       t.typtype = 'd'
  FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
 WHERE t.oid = %s
"""
# The names in an expression are printed as somebody sees them who has public in the search_path, as walsenders have. So
# that nothing in public can take part in the query itself, it names the schema of everything that it uses.
_DEFAULTS_SEARCH_PATH = "SET LOCAL search_path = public"
_DEFAULTS = """
SELECT d.adnum, pg_catalog.pg_get_expr(d.adbin, d.adrelid)
  FROM pg_catalog.pg_attrdef d
  JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) d.adrelid
                                AND a.attnum OPERATOR(pg_catalog.=) d.adnum
 WHERE d.adrelid OPERATOR(pg_catalog.=) %s::pg_catalog.oid
   AND a.attgenerated OPERATOR(pg_catalog.=) ''::pg_catalog."char"
"""
_READABLE = """
SELECT n.nspname::text, c.relname::text,
       c.relkind = 'r' AND (n.nspname = 'pg_catalog'
         OR EXISTS (SELECT FROM pg_options_to_table(c.reloptions)
                     WHERE option_name = 'user_catalog_table' AND option_value::boolean))
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = to_regclass(%s)
"""


class LiveCatalog:
    """The Catalog of a server. Raises what map_error says, PluginError for what a plugin may not read."""

    def __init__(self, dsn: Dsn) -> None:
        self._dsn = dsn
        self._connection: Connection | None = None

    def type_names(self, type_oid: int) -> TypeRow | None:
        for row in self._rows(_TYPE.encode(), [type_oid])[0]:
            return TypeRow(*row)
        return None

    def column_defaults(self, relation_id: int) -> dict[int, str]:
        rows, _ = self._rows(_DEFAULTS.encode(), [relation_id], before=_DEFAULTS_SEARCH_PATH)
        return dict(rows)

    def scan(self, relation: str, keys: Mapping[str, object]) -> list[dict[str, Any]]:
        found = self._rows(_READABLE.encode(), [relation])[0]
        if not found:
            raise PluginError(f"There is no relation {relation}.", hint="Write it with its schema.")
        namespace, name, readable = found[0]
        if not readable:
            raise PluginError(
                f"{relation} is neither a system catalog nor a user catalog table, and plugins read nothing else.",
                hint="Its owner may set its storage parameter user_catalog_table to true.",
            )
        wanted = [sql.SQL("{} = %s").format(sql.Identifier(column)) for column in keys]
        query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(namespace, name))
        if wanted:
            query += sql.SQL(" WHERE ") + sql.SQL(" AND ").join(wanted)
        rows, columns = self._rows(query, list(keys.values()))
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rows(
        self, query: bytes | sql.Composed, values: list[object], *, before: str = ""
    ) -> tuple[list[tuple[Any, ...]], list[str]]:
        if self._connection is None or self._connection.broken:
            self._connection = connect(self._dsn, application_name="wal2lake output plugin", settings=_SETTINGS)
        try:
            with mapped_errors(), self._connection.transaction(), self._connection.cursor() as cursor:
                if before:
                    cursor.execute(before.encode())
                cursor.execute(query, values)
                return cursor.fetchall(), [column.name for column in cursor.description or ()]
        except ConnectError:
            self.close()
            raise
