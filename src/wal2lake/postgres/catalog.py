"""What the catalog says about the server and the published tables; read anew each time, cached nowhere.

Column lists, row filters and publish_via_partition_root are PostgreSQL's to resolve: everything goes through
pg_publication_tables, so a table here is what the stream will call it.

Source: PostgreSQL documentation, "System Catalogs", pg_publication_tables, IDENTIFY_SYSTEM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import psycopg

from wal2lake.errors import PublicationError
from wal2lake.lsn import LSN
from wal2lake.names import qualified
from wal2lake.postgres.catalog_types import user_types, within
from wal2lake.postgres.connection import Connection, execute, mapped_errors, run
from wal2lake.postgres.exchange import PGconn, reading_answer, rows
from wal2lake.postgres.waiting import Exchange
from wal2lake.user_types import UserType
from wal2lake.wire.command_text import quote_identifier, quote_string


class SystemIdentity(NamedTuple):
    """Which cluster this is and where its WAL ends (bytes; flushed, or replayed on a standby)."""

    system_id: str
    timeline: int
    wal_lsn: LSN
    dbname: str | None


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """One published column.

    ``typmod`` is -1 for a domain, as the stream says; ``base_oid`` is a domain's ultimate base type (else the type
    itself) and ``base_type_name`` its SQL name; ``output_function`` is schema-qualified and quoted; ``key``: part of
    the replica identity; ``dimensions`` as declared (pg_attribute.attndims); ``base_typmod``: a domain's base type's,
    else -1. ``as_text``: COPY shall read its output
    text; None: if the type table's first edition has no more for it. ``types``: its type and all that that is made of.
    ``money_scale``: digits behind the point of a money in this database.
    """

    name: str
    attnum: int
    type_oid: int
    typmod: int
    base_oid: int
    type_name: str
    output_function: str
    not_null: bool
    key: bool
    base_type_name: str = ""
    dimensions: int = 0
    base_typmod: int = -1
    as_text: bool | None = None
    types: tuple[UserType, ...] = ()
    money_scale: int = 2
    comment: str = ""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of a publication. ``replica_identity`` is pg_class.relreplident; ``blocks`` counts heap blocks of 8 kB
    (0: empty, or a partitioned table, which has none of its own); ``row_estimate`` is -1 when never analysed;
    ``row_filter`` is the publication's SQL expression; ``partitioned``: a root that holds no rows itself.
    ``primary_key`` is () when it is DEFERRABLE: amid a transaction it may hold duplicates, so decoding passes it over.
    ``key_published``: the columns that name a row are all published (a publication of inserts alone need not).
    ``attributes``: the greatest attnum, of columns dropped or not published too."""

    relation_id: int
    namespace: str
    name: str
    replica_identity: str
    columns: tuple[CatalogColumn, ...]
    primary_key: tuple[str, ...]
    blocks: int
    row_estimate: int
    row_filter: str | None
    partitioned: bool = False
    attributes: int = 0
    key_published: bool = True
    comment: str = ""

    @property
    def quoted(self) -> str:
        """The qualified name, quoted for SQL."""
        return f"{quote_identifier(self.namespace)}.{quote_identifier(self.name)}"

    def __str__(self) -> str:
        return qualified(self.namespace, self.name)


def identify(connection: Connection | PGconn) -> SystemIdentity:
    """Ask which cluster this is: by IDENTIFY_SYSTEM on a walsender connection, else by SQL."""
    if not isinstance(connection, psycopg.Connection):
        found = execute(connection, "IDENTIFY_SYSTEM")
        with reading_answer("IDENTIFY_SYSTEM"):
            system_id, timeline, lsn, dbname = found[0]
            return SystemIdentity(str(int(str(system_id))), int(str(timeline)), LSN.parse(str(lsn)), dbname)
    with mapped_errors():
        row = connection.execute(_IDENTIFY).fetchone()
    assert row is not None
    return SystemIdentity(row[0], row[1], LSN.parse(row[2]), row[3])


def published_tables(connection: Connection, publication: str) -> list[PublishedTable]:
    """The tables of ``publication``, by name, with their published columns in attnum order.

    Raises PublicationError when there is no such publication; an empty one gives []. PostgreSQL opens the tables for
    it, and so waits for whoever locks one exclusively: past the connection's lock_timeout it raises LockedError.
    """
    lists = connection.info.server_version >= 150000
    query = _TABLES.format(
        attnames="p.attnames::text[]" if lists else "NULL::text[]",
        rowfilter="p.rowfilter" if lists else "NULL::text",
    )
    with mapped_errors():
        require_publication(connection, publication)
        rows = connection.execute(query.encode(), [publication]).fetchall()
        columns = connection.execute(_COLUMNS, [[row[0] for row in rows], lists]).fetchall()
    by_table: dict[int, list[CatalogColumn]] = {}
    for relation_id, comment, *values in columns:
        by_table.setdefault(relation_id, []).append(replace(CatalogColumn(*values), comment=comment))
    by_table = _with_types(connection, by_table)
    tables = []
    for relation_id, comment, namespace, name, identity, attnames, key, *rest in rows:
        every = by_table.get(relation_id, [])
        # before 15 the view lists no columns; in 18 it may list generated ones
        listed = tuple(column for column in every if attnames is None or column.name in attnames)
        naming = key if identity == "f" else [column.name for column in every if column.key]
        whole = {column.name for column in listed}.issuperset(naming)
        table = PublishedTable(relation_id, namespace, name, identity, listed, tuple(key), *rest)
        table = replace(table, comment=comment)
        tables.append(table if whole else replace(table, key_published=False))
    return tables


def _with_types(connection: Connection, by_table: dict[int, list[CatalogColumn]]) -> dict[int, list[CatalogColumn]]:
    """The columns with what the catalog says of their types."""
    known = user_types(connection, [column.type_oid for every in by_table.values() for column in every])
    with mapped_errors():
        row = connection.execute(_MONEY_SCALE).fetchone() if _MONEY in known else None
    scale = row[0] if row is not None else 2
    return {
        table: [replace(column, types=within(known, column.type_oid), money_scale=scale) for column in every]
        for table, every in by_table.items()
    }


def require_publication(connection: Connection, publication: str) -> None:
    """Raise PublicationError when there is no such publication. Opens no table, so no lock on one is waited for."""
    with mapped_errors():
        found = connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [publication]).fetchone()
    if found is None:
        raise _no_publication(publication, connection.info.dbname)


def require_publications(pgconn: PGconn, publications: Sequence[str]) -> None:
    """The same for several, asked on a walsender connection to a database."""
    run(pgconn, check_publications(pgconn, publications))


def check_publications(pgconn: PGconn, publications: Sequence[str]) -> Exchange[None]:
    """require_publications as an exchange."""
    named = ", ".join(map(quote_string, publications))
    found = yield from rows(pgconn, f"SELECT pubname FROM pg_catalog.pg_publication WHERE pubname IN ({named})")
    for publication in publications:
        if (publication,) not in found:
            raise _no_publication(publication, (pgconn.db or b"").decode("utf-8", "replace"))


def _no_publication(publication: str, database: str) -> PublicationError:
    return PublicationError(
        f"There is no publication {publication} in database {database}.",
        hint=f"Make it: CREATE PUBLICATION {quote_identifier(publication)} FOR TABLE …;",
    )


def output_text(output_function: str, value: str) -> str:
    """SQL: the text that a type's output function (as CatalogColumn has it) makes of ``value``, an expression.

    textout is also the output function of refcursor, which it does not take as an argument."""
    return f"textin({output_function}({value}{'::text' if output_function == 'pg_catalog.textout' else ''}))"


_MONEY = 790
_MONEY_SCALE = "SELECT scale('0'::money::numeric)"

_IDENTIFY = """
SELECT system_identifier::text,
       CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8))::bit(32)::int END,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text,
       current_database()
  FROM pg_control_system()
"""

_TABLES = """
SELECT c.oid::bigint, coalesce(obj_description(c.oid, 'pg_class'), ''), n.nspname::text, c.relname::text,
       c.relreplident::text, {attnames},
       ARRAY(SELECT a.attname::text
               FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, place), pg_attribute a
              WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND k.place <= i.indnkeyatts
                AND a.attrelid = c.oid AND a.attnum = k.attnum
              ORDER BY k.place),
       CASE WHEN c.relkind = 'p' THEN 0
            ELSE pg_relation_size(c.oid) / current_setting('block_size')::int END::bigint,
       c.reltuples::bigint, {rowfilter}, c.relkind = 'p', c.relnatts::int
  FROM pg_publication_tables p
  JOIN pg_namespace n ON n.nspname = p.schemaname
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
 WHERE p.pubname = %s
 ORDER BY 3, 4
"""

_COLUMNS = """
WITH RECURSIVE domain (type_oid, base_oid, typmod) AS (
    SELECT t.oid, t.typbasetype, t.typtypmod FROM pg_type t WHERE t.typtype = 'd'
     UNION ALL
    SELECT d.type_oid, t.typbasetype, t.typtypmod
      FROM domain d JOIN pg_type t ON t.oid = d.base_oid AND t.typtype = 'd'),
base (type_oid, base_oid, typmod) AS (
    SELECT d.type_oid, d.base_oid, d.typmod FROM domain d JOIN pg_type t ON t.oid = d.base_oid AND t.typtype <> 'd')
SELECT a.attrelid::bigint, coalesce(col_description(a.attrelid, a.attnum), ''), a.attname::text, a.attnum::int,
       a.atttypid::bigint,
       CASE WHEN t.typtype = 'd' THEN -1 ELSE a.atttypmod END,
       coalesce(b.base_oid, t.oid)::bigint,
       format_type(a.atttypid, a.atttypmod),
       quote_ident(fn.nspname) || '.' || quote_ident(f.proname),
       a.attnotnull,
       CASE c.relreplident WHEN 'f' THEN true WHEN 'n' THEN false
            ELSE EXISTS (SELECT FROM pg_index i
                          WHERE i.indrelid = c.oid
                            AND CASE c.relreplident WHEN 'd' THEN i.indisprimary AND i.indimmediate
                                ELSE i.indisreplident END
                            AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])) END,
       format_type(coalesce(b.base_oid, t.oid), -1), a.attndims::int,
       coalesce(b.typmod, -1)
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN base b ON b.type_oid = t.oid
  JOIN pg_proc f ON f.oid = t.typoutput
  JOIN pg_namespace fn ON fn.oid = f.pronamespace
 WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND (%s OR a.attgenerated = '')
 ORDER BY a.attrelid, a.attnum
"""
