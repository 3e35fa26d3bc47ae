"""What the catalog says of the types that users and extensions made, down to PostgreSQL's own that they are made of.

Nothing is asked of a type itself: no function of its maker's runs, and its name is a text. An extension's type is known
by the extension that it belongs to, for anybody may give a name to a type.

Source: PostgreSQL documentation, "pg_type", "pg_enum", "pg_range", "pg_depend".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from wal2lake.postgres.connection import Connection, mapped_errors
from wal2lake.user_types import Part, UserType

_EXTENSION_KINDS = {
    ("hstore", "hstore"): "hstore",
    ("citext", "citext"): "citext",
    ("vector", "vector"): "vector",
    ("vector", "halfvec"): "halfvec",
    ("postgis", "geometry"): "geometry",
    ("postgis", "geography"): "geometry",
}


def user_types(connection: Connection, type_oids: Iterable[int]) -> dict[int, UserType]:
    """By OID, these types and all that they are made of."""
    multiranges = connection.info.server_version >= 140000
    query = _TYPES.format(
        made_of=_MULTIRANGE_OF if multiranges else "",
        multirange=f"(SELECT {_OF_MULTIRANGE})" if multiranges else "NULL::oid",
    )
    with mapped_errors():
        rows = connection.execute(query.encode(), [sorted(set(type_oids))]).fetchall()
    return {row[0]: _user_type(*row) for row in rows}


def within(known: Mapping[int, UserType], oid: int) -> tuple[UserType, ...]:
    """Of ``known`` those that the type is made of, itself included, in the order of their OIDs."""
    found: set[int] = set()
    pending = [oid]
    while pending:
        if (kind := known.get(pending.pop())) is not None and kind.oid not in found:
            found.add(kind.oid)
            pending += [part.type_oid for part in kind.parts]
    return tuple(known[each] for each in sorted(found))


def _user_type(
    oid: int,
    name: str,
    typtype: str,
    extension: str | None,
    output: str,
    sql_name: str,
    element: int | None,
    base: int,
    base_typmod: int,
    bound: int | None,
    range_oid: int | None,
    labels: Collection[str],
    names: Collection[str],
    oids: Collection[int],
    typmods: Collection[int],
    dimensions: Collection[int],
) -> UserType:
    below = {
        "d": ("domain", base, base_typmod),
        "r": ("range", bound, -1),
        "m": ("multirange", range_oid, -1),
        "b": ("array", element, -1),
    }
    if typtype == "c":
        parts = tuple(map(Part, names, oids, typmods, dimensions))
        return UserType(oid, "composite", name, parts, output=output, sql_name=sql_name)
    if typtype == "e":
        return UserType(oid, "enum", name, labels=tuple(labels), output=output, sql_name=sql_name)
    kind, part, typmod = below.get(typtype, ("", None, -1))
    if part:
        return UserType(oid, kind, name, (Part("", part, typmod),), output=output, sql_name=sql_name)
    return UserType(oid, _EXTENSION_KINDS.get((extension or "", name), ""), name, output=output, sql_name=sql_name)


_MULTIRANGE_OF = "UNION ALL SELECT r.rngtypid FROM pg_range r WHERE r.rngmultitypid = t.oid"
_OF_MULTIRANGE = "r.rngtypid FROM pg_range r WHERE r.rngmultitypid = t.oid"
# An array's elements stand between commas but for a few types, whose arrays are text.
_TYPES = """
WITH RECURSIVE used (type) AS (
    SELECT unnest(%s::oid[])
     UNION
    SELECT o.type
      FROM used u
      JOIN pg_type t ON t.oid = u.type,
      LATERAL (SELECT e.oid FROM pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid
                UNION ALL SELECT t.typbasetype
                UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = t.oid
                {made_of}
                UNION ALL SELECT a.atttypid FROM pg_attribute a
                           WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) o (type)
     WHERE o.type <> 0)
SELECT t.oid::bigint, t.typname::text, t.typtype::text,
       (SELECT x.extname::text FROM pg_depend d JOIN pg_extension x ON x.oid = d.refobjid
         WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.objsubid = 0 AND d.deptype = 'e'
           AND d.refclassid = 'pg_extension'::regclass),
       quote_ident(n.nspname) || '.' || quote_ident(o.proname), format_type(t.oid, -1),
       (SELECT e.oid FROM pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid AND e.typdelim = ',')::bigint,
       t.typbasetype::bigint, t.typtypmod,
       (SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = t.oid)::bigint, {multirange}::bigint,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder),
       f.names, f.types, f.typmods, f.dimensions
  FROM used u
  JOIN pg_type t ON t.oid = u.type
  JOIN pg_proc o ON o.oid = t.typoutput
  JOIN pg_namespace n ON n.oid = o.pronamespace,
  LATERAL (SELECT coalesce(array_agg(a.attname::text ORDER BY a.attnum), '{{}}'),
                  coalesce(array_agg(a.atttypid::bigint ORDER BY a.attnum), '{{}}'),
                  coalesce(array_agg(a.atttypmod ORDER BY a.attnum), '{{}}'),
                  coalesce(array_agg(a.attndims::int ORDER BY a.attnum), '{{}}')
             FROM pg_attribute a
            WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
          f (names, types, typmods, dimensions)
 ORDER BY 1
"""
