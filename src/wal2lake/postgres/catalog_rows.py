"""What makes a table published and gives its rows their meaning, as versions of the catalog's own rows.

A catalog row has an OID, and the xid that wrote it (xmin). Whoever alters a publication and takes that back leaves rows
that read as before, and are others. So two looks that find the same versions prove that nothing changed in between,
wherever they fell. Freezing leaves xmin as it is, and VACUUM FULL of a catalog copies it; a dump and restore, or an
upgrade, writes all rows anew. pg_class's own xmin proves nothing: GRANT, OWNER, ADD COLUMN and triggers move it.

Everything is read from tables of the catalog in one snapshot: no lock of a user's keeps anybody here waiting.

Source: PostgreSQL documentation, "System Catalogs" (pg_publication, pg_publication_rel, pg_publication_namespace,
pg_depend, pg_inherits, pg_class, pg_attribute, pg_enum), "System Columns".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from psycopg import sql

from wal2lake.lsn import LSN
from wal2lake.names import qualified
from wal2lake.postgres.connection import Connection, mapped_errors

_CREATED_AS_PARTITION = 3  # commands between the two rows in CREATE TABLE … PARTITION OF; CREATE and ATTACH are farther


@dataclass(frozen=True, slots=True)
class HeapFile:
    """The table itself, or one of its partitions, however deep, as it stands now.

    ``file`` is pg_class.relfilenode (0: it has none), ``link`` the version of its row in pg_inherits ('' for the table
    itself). ``born``: one command made it, and as this partition; ``first``: its file is the one that it was made with.
    ``writer``: the xid of the last change of its row in pg_class, of which a TRUNCATE is one. ``identity``: the columns
    of its replica identity, by name ("*": all). ``name``: its own. None of these is a part of equality.
    """

    relation_id: int
    file: int
    persistence: str
    link: str = ""
    born: bool = False
    first: bool = False
    writer: int = field(default=0, compare=False)
    identity: tuple[str, ...] = field(default=(), compare=False)
    name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """One row of pg_attribute, ``xmin`` included."""

    attnum: int
    name: str
    type_oid: int
    typmod: int
    xmin: int


@dataclass(frozen=True, slots=True)
class CatalogRows:
    """One table's rows. ``published``: those that make the stream speak of it; empty: nothing does.

    ``listed``: it is in the publication by its own name, so it cannot be unlogged while it is there. ``files``: its own
    and those of all its partitions; ``labels``: of the enums in its columns; ``attributes``: of their composite types,
    ``attribute_names``: what they are called.
    """

    name: str
    published: tuple[str, ...]
    listed: bool
    columns: tuple[ColumnRow, ...]
    files: tuple[HeapFile, ...]
    labels: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    attribute_names: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The reverse."""
        columns = tuple(ColumnRow(**column) for column in document["columns"])
        files = tuple(HeapFile(**{**file, "identity": tuple(file.get("identity", ()))}) for file in document["files"])
        own = ("published", "labels", "attributes", "attribute_names")
        others = {name: tuple(document.get(name, ())) for name in own}
        return cls(**{**document, **others, "columns": columns, "files": files})


@dataclass(frozen=True, slots=True)
class Look:
    """What one snapshot of the catalog says of tables, by OID; a table that does not exist is missing.

    ``lsn``: whatever had its commit record below it is in ``rows``, unless ``pending`` says that somebody held a lock
    under which a publication or a table is altered: that one may have committed, and not be visible yet.
    ``before_lsn``: whatever is in ``rows`` has its commit record below it.
    """

    rows: Mapping[int, CatalogRows]
    lsn: LSN
    before_lsn: LSN
    pending: bool


def look(connection: Connection, publication: str, relation_ids: Iterable[int]) -> Look:
    """The present rows of these tables. The order is the proof: a commit record precedes the end of its transaction's
    locks, and that comes after everybody sees what it did."""
    oids = sorted(set(relation_ids))
    with mapped_errors():
        lsn = _wal_end(connection)
        (pending,) = connection.execute(_PENDING, [publication, oids]).fetchone() or (True,)
    rows = rows_in(connection, publication, oids)
    with mapped_errors():
        return Look(rows, lsn, _wal_end(connection), pending)


def _wal_end(connection: Connection) -> LSN:
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return LSN.parse(row[0])


def rows_in(
    connection: Connection, publication: str, relation_ids: Iterable[int], snapshot: str | None = None
) -> dict[int, CatalogRows]:
    """Each table's rows in an exported ``snapshot`` (None: in one of now), by OID; who is not in it is missing."""
    oids = sorted(set(relation_ids))
    with mapped_errors(), _snapshot(connection, snapshot):
        found = connection.execute(_PUBLICATION, [publication]).fetchone() or (0, "", False)
        schemas = _SCHEMAS if connection.info.server_version >= 150000 else ""
        ways = connection.execute(_WAYS.format(schemas=schemas).encode(), {"oids": oids, "pub": found[0]})
        parts = {"ways": _by_table(ways.fetchall())}
        for kind, query in (("columns", _COLUMNS), ("files", _FILES), ("types", _TYPES), ("names", _NAMES)):
            parts[kind] = _by_table(connection.execute(query, [oids]).fetchall())
    whole = f"publication {found[0]} {found[1]}"
    return {oid: _rows(parts, oid, whole, every=found[2]) for oid in parts["names"]}


@contextmanager
def _snapshot(connection: Connection, name: str | None) -> Iterator[None]:
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        if name is not None:
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
        yield


def _by_table(rows: Sequence[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for oid, *values in rows:
        found.setdefault(oid, []).append(tuple(values))
    return found


def _rows(
    parts: Mapping[str, Mapping[int, list[tuple[Any, ...]]]], oid: int, whole: str, *, every: bool
) -> CatalogRows:
    ((namespace, name),) = parts["names"][oid]
    mine = {kind: own.get(oid, []) for kind, own in parts.items()}
    return CatalogRows(
        name=qualified(namespace, name),
        published=_published(mine["ways"], whole, every=every),
        listed=any(kind == "table" and not depth for depth, kind, _ in mine["ways"]),
        columns=tuple(ColumnRow(*values) for values in mine["columns"]),
        files=tuple(_heap_file(*values) for values in mine["files"]),
        labels=tuple(row for kind, row in mine["types"] if kind == "label"),
        attributes=tuple(row for kind, row in mine["types"] if kind == "attribute"),
        attribute_names=tuple(row for kind, row in mine["types"] if kind == "name"),
    )


def _published(ways: Sequence[tuple[int, str, str]], whole: str, *, every: bool) -> tuple[str, ...]:
    """The rows by which the table itself is in the publication; else those by which an ancestor is, and the links.

    Its place in a schema counts where the publication has the schema.
    """
    own = [way for way in ways if not way[0] and way[1] in ("table", "schema")]
    above = [way for way in ways if way[0] and way[1] in ("table", "schema")]
    if not (own or above or every):
        return ()
    links = [way for way in ways if way[1] == "link"] if above and not own and not every else []
    places = [way for way in ways if way[1] == "place"]
    return (whole, *sorted(f"{kind} {row}" for _, kind, row in (*own, *above, *links, *places)))


def _heap_file(
    oid: int,
    file: int,
    persistence: str,
    writer: int,
    link: str,
    apart: int | None,
    first: bool,
    identity: list[str],
    *name: str,
) -> HeapFile:
    born = apart is not None and 0 <= apart <= _CREATED_AS_PARTITION
    return HeapFile(oid, file, persistence, link, born, first, writer, tuple(identity), qualified(*name))


_PUBLICATION = "SELECT oid::bigint, xmin::text, puballtables FROM pg_publication WHERE pubname = %s"

_NAMES = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY (%s::oid[])
"""

# ALTER PUBLICATION locks the publication itself (from 15 on); what rewrites or detaches locks the table.
_PENDING = """
SELECT EXISTS (
    SELECT FROM pg_locks l
     WHERE l.granted AND l.mode IN ('AccessExclusiveLock', 'ShareRowExclusiveLock') AND l.pid <> pg_backend_pid()
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND (l.locktype = 'object' AND l.classid = 'pg_publication'::regclass
              AND l.objid = (SELECT oid FROM pg_publication WHERE pubname = %s)
         OR l.locktype = 'relation' AND (l.relation = ANY (%s::oid[])
              OR l.relation IN (SELECT inhrelid FROM pg_inherits UNION ALL SELECT inhparent FROM pg_inherits))))
"""

_WAYS = """
WITH RECURSIVE up (relation, ancestor, depth, link) AS (
    SELECT o.oid, o.oid, 0, NULL::text FROM unnest(%(oids)s::oid[]) o (oid)
     UNION ALL
    SELECT u.relation, i.inhparent, u.depth + 1, i.inhparent || ' ' || i.xmin
      FROM up u
      JOIN pg_class c ON c.oid = u.ancestor AND c.relispartition
      JOIN pg_inherits i ON i.inhrelid = u.ancestor)
SELECT u.relation::bigint, u.depth, 'link', u.link FROM up u WHERE u.depth > 0
 UNION ALL
SELECT u.relation::bigint, u.depth, 'table', p.oid || ' ' || p.xmin
  FROM up u JOIN pg_publication_rel p ON p.prrelid = u.ancestor AND p.prpubid = %(pub)s
{schemas}
"""

_SCHEMAS = """
 UNION ALL
SELECT u.relation::bigint, u.depth, kind, row
  FROM up u
  JOIN pg_class c ON c.oid = u.ancestor
  JOIN pg_publication_namespace p ON p.pnnspid = c.relnamespace AND p.pnpubid = %(pub)s
  JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = u.ancestor AND d.objsubid = 0
                  AND d.refclassid = 'pg_namespace'::regclass,
  LATERAL (VALUES ('schema', p.oid || ' ' || p.xmin), ('place', u.ancestor || ' ' || d.xmin)) v (kind, row)
"""

_COLUMNS = """
SELECT attrelid::bigint, attnum::int, attname::text, atttypid::bigint, atttypmod, xmin::text::bigint
  FROM pg_attribute
 WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped
 ORDER BY attrelid, attnum
"""

# A system column's row is written when its table is made, and never again: it tells by which command that was.
_FILES = """
WITH RECURSIVE down (root, relation, link, written, command) AS (
    SELECT o.oid, o.oid, ''::text, NULL::text, NULL::text FROM unnest(%s::oid[]) o (oid)
     UNION ALL
    SELECT d.root, i.inhrelid, i.inhparent || ' ' || i.xmin, i.xmin::text, i.cmin::text
      FROM down d
      JOIN pg_class p ON p.oid = d.relation AND p.relkind = 'p'
      JOIN pg_inherits i ON i.inhparent = d.relation)
SELECT d.root::bigint, d.relation::bigint, c.relfilenode::bigint, c.relpersistence::text, c.xmin::text::bigint, d.link,
       CASE WHEN a.xmin::text = d.written THEN d.command::bigint - a.cmin::text::bigint END,
       c.relfilenode = c.oid OR c.relkind = 'p',
       CASE WHEN c.relreplident = 'f' THEN ARRAY['*']
            ELSE ARRAY(SELECT a.attname::text
                         FROM pg_index i
                         JOIN pg_attribute a ON a.attrelid = d.relation
                                            AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
                        WHERE i.indrelid = d.relation
                          AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END)
       END,
       n.nspname::text, c.relname::text
  FROM down d
  JOIN pg_class c ON c.oid = d.relation
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_attribute a ON a.attrelid = d.relation AND a.attnum = -1
 ORDER BY d.root, d.relation
"""

_TYPES = """
WITH RECURSIVE used (relation, type) AS (
    SELECT a.attrelid, a.atttypid
      FROM pg_attribute a
     WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
     UNION
    SELECT u.relation, o.type
      FROM used u
      JOIN pg_type t ON t.oid = u.type,
      LATERAL (SELECT t.typelem UNION ALL SELECT t.typbasetype
                UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = t.oid
                UNION ALL SELECT a.atttypid FROM pg_attribute a
                           WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) o (type)
     WHERE o.type >= 16384)
SELECT u.relation::bigint, 'label', e.oid || ' ' || e.xmin FROM used u JOIN pg_enum e ON e.enumtypid = u.type
 UNION ALL
SELECT u.relation::bigint, v.kind, u.type || ' ' || a.attnum || ' ' || v.row
  FROM used u
  JOIN pg_type t ON t.oid = u.type AND t.typrelid <> 0
  JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped,
  LATERAL (VALUES ('attribute', a.atttypid || ' ' || a.atttypmod), ('name', a.attname::text)) v (kind, row)
 ORDER BY 1, 2, 3
"""
