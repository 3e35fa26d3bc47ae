"""Type names as format_type prints them, without a catalog where the type is built in.

pgoutput announces the types that are not built in, by namespace and name as they were when the change was made; a
domain is announced under the name of its base type, and an array under the name of its pg_type row. With a catalog to
ask both get their own names; what was renamed since the change keeps the announced one, for the catalog has the new.

Source: format_type_extended in src/backend/utils/adt/format_type.c; src/include/catalog/pg_type.dat (PostgreSQL 18);
logicalrep_write_typ in proto.c; the typmod output functions in varchar.c, numeric.c, timestamp.c, date.c, varbit.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from wal2lake.decoding.sql import quote_identifier

if TYPE_CHECKING:
    from wal2lake.decoding.context import Catalog
    from wal2lake.pgoutput.messages import Type

# oid, oid of its array (0: none that is built in), name
_BUILT_IN: Final = """
16 1000 boolean, 17 1001 bytea, 18 1002 "char", 19 1003 name, 20 1016 bigint, 21 1005 smallint, 22 1006 int2vector,
23 1007 integer, 24 1008 regproc, 25 1009 text, 26 1028 oid, 27 1010 tid, 28 1011 xid, 29 1012 cid,
30 1013 oidvector, 32 0 pg_ddl_command, 71 210 pg_type, 75 270 pg_attribute, 81 272 pg_proc, 83 273 pg_class,
114 199 json, 142 143 xml, 194 0 pg_node_tree, 269 0 table_am_handler, 325 0 index_am_handler, 600 1017 point,
601 1018 lseg, 602 1019 path, 603 1020 box, 604 1027 polygon, 628 629 line, 650 651 cidr, 700 1021 real,
701 1022 double precision, 705 0 unknown, 718 719 circle, 774 775 macaddr8, 790 791 money, 829 1040 macaddr,
869 1041 inet, 1033 1034 aclitem, 1042 1014 character, 1043 1015 character varying, 1082 1182 date,
1083 1183 time without time zone, 1114 1115 timestamp without time zone, 1184 1185 timestamp with time zone,
1186 1187 interval, 1248 0 pg_database, 1266 1270 time with time zone, 1560 1561 bit, 1562 1563 bit varying,
1700 1231 numeric, 1790 2201 refcursor, 2202 2207 regprocedure, 2203 2208 regoper, 2204 2209 regoperator,
2205 2210 regclass, 2206 2211 regtype, 2249 2287 record, 2275 1263 cstring, 2276 0 "any", 2277 0 anyarray,
2278 0 void, 2279 0 trigger, 2280 0 language_handler, 2281 0 internal, 2283 0 anyelement, 2776 0 anynonarray,
2842 0 pg_authid, 2843 0 pg_auth_members, 2950 2951 uuid, 2970 2949 txid_snapshot, 3115 0 fdw_handler,
3220 3221 pg_lsn, 3310 0 tsm_handler, 3361 0 pg_ndistinct, 3402 0 pg_dependencies, 3500 0 anyenum,
3614 3643 tsvector, 3615 3645 tsquery, 3642 3644 gtsvector, 3734 3735 regconfig, 3769 3770 regdictionary,
3802 3807 jsonb, 3831 0 anyrange, 3838 0 event_trigger, 3904 3905 int4range, 3906 3907 numrange, 3908 3909 tsrange,
3910 3911 tstzrange, 3912 3913 daterange, 3926 3927 int8range, 4066 0 pg_shseclabel, 4072 4073 jsonpath,
4089 4090 regnamespace, 4096 4097 regrole, 4191 4192 regcollation, 4451 6150 int4multirange,
4532 6151 nummultirange, 4533 6152 tsmultirange, 4534 6153 tstzmultirange, 4535 6155 datemultirange,
4536 6157 int8multirange, 4537 0 anymultirange, 4538 0 anycompatiblemultirange, 4600 0 pg_brin_bloom_summary,
4601 0 pg_brin_minmax_multi_summary, 5017 0 pg_mcv_list, 5038 5039 pg_snapshot, 5069 271 xid8,
5077 0 anycompatible, 5078 0 anycompatiblearray, 5079 0 anycompatiblenonarray, 5080 0 anycompatiblerange,
6101 0 pg_subscription
"""

_BPCHAR, _VARCHAR, _BIT, _VARBIT, _NUMERIC, _INTERVAL = 1042, 1043, 1560, 1562, 1700, 1186
_TIMES: Final = {1083: "time", 1114: "timestamp", 1184: "timestamp", 1266: "time"}
_TYPMOD_NAMES: Final = {_BPCHAR: "bpchar", _BIT: '"bit"'}  # where -1 differs from none given at all
_HEADER: Final = 4  # VARHDRSZ, which these typmods include
_FULL_PRECISION, _FULL_RANGE = 0xFFFF, 0x7FFF
_YEAR, _MONTH, _DAY, _HOUR, _MINUTE, _SECOND = (1 << bit for bit in (2, 1, 3, 10, 11, 12))
_FIELDS: Final = {
    _YEAR: " year",
    _MONTH: " month",
    _DAY: " day",
    _HOUR: " hour",
    _MINUTE: " minute",
    _SECOND: " second",
    _YEAR | _MONTH: " year to month",
    _DAY | _HOUR: " day to hour",
    _DAY | _HOUR | _MINUTE: " day to minute",
    _DAY | _HOUR | _MINUTE | _SECOND: " day to second",
    _HOUR | _MINUTE: " hour to minute",
    _HOUR | _MINUTE | _SECOND: " hour to second",
    _MINUTE | _SECOND: " minute to second",
}


def _read_built_in() -> tuple[dict[int, str], dict[int, int]]:
    names: dict[int, str] = {}
    elements: dict[int, int] = {}
    for item in _BUILT_IN.replace("\n", " ").split(","):
        oid, array, name = item.strip().split(" ", 2)
        names[int(oid)] = name
        if array != "0":
            elements[int(array)] = int(oid)
    return names, elements


BUILT_IN, ELEMENTS = _read_built_in()


def is_built_in(type_oid: int) -> bool:
    """Whether the type is the same on every server, its arrays included."""
    return type_oid in BUILT_IN or type_oid in ELEMENTS


class TypeRow(NamedTuple):
    """What a catalog says of a type: namespace, name, element type (0: no array)."""

    namespace: str
    name: str
    element: int
    is_domain: bool = False


class TypeNames:
    """Names of types. ``announced``: the Type messages so far, by OID, kept up to date by whoever owns them; types in
    ``search_path`` need no schema before their name."""

    def __init__(
        self,
        announced: Mapping[int, Type],
        catalog: Catalog | None = None,
        search_path: tuple[str, ...] = ("public",),
    ) -> None:
        self._announced = announced
        self._catalog = catalog
        self._visible = {*search_path, "pg_catalog"}

    def format_type(self, type_oid: int, typmod: int | None = None) -> str:
        """format_type(type_oid, typmod); ``typmod`` None is SQL's NULL. ``???`` for what nobody knows."""
        if type_oid in BUILT_IN:
            return BUILT_IN[type_oid] if typmod is None else _with_typmod(type_oid, typmod)
        if type_oid in ELEMENTS:
            return self.format_type(ELEMENTS[type_oid], typmod) + "[]"
        known = None if self._catalog is None else self._catalog.type_names(type_oid)
        if known is not None and self._holds(type_oid, known):
            element = known.element
            return self.format_type(element, typmod) + "[]" if element else self._quoted(known.namespace, known.name)
        return self._announced_name(type_oid)

    def catalog_name(self, type_oid: int) -> str:
        """pg_type.typname: ``int4``, ``_varchar``. In a change log a domain has its base type's."""
        if type_oid in BUILT_IN:
            return _CATALOG_NAMES.get(BUILT_IN[type_oid], BUILT_IN[type_oid])
        if type_oid in ELEMENTS:
            return f"_{self.catalog_name(ELEMENTS[type_oid])}"
        known = None if self._catalog is None else self._catalog.type_names(type_oid)
        if known is not None and self._holds(type_oid, known):
            return known.name
        message = self._announced.get(type_oid)
        return "???" if message is None else message.name

    def _holds(self, type_oid: int, known: TypeRow) -> bool:
        """Whether what the catalog says now is what the change had, as far as anything tells."""
        message = self._announced.get(type_oid)
        if message is None or known.is_domain:  # announced by another type's name
            return True
        return (message.namespace or "pg_catalog", message.name) == (known.namespace, known.name)

    def _announced_name(self, type_oid: int) -> str:
        message = self._announced.get(type_oid)
        if message is None:
            return "???"
        namespace, name = message.namespace or "pg_catalog", message.name
        element = name[1:] if name.startswith("_") and len(name) > 1 else ""  # what the array of a type is called
        return f"{self._plain(namespace, element)}[]" if element else self._plain(namespace, name)

    def _plain(self, namespace: str, name: str) -> str:
        """A domain over a built-in type is announced by that type's name."""
        known = _INTERNAL_NAMES.get(name) if namespace == "pg_catalog" else None
        return known or self._quoted(namespace, name)

    def _quoted(self, namespace: str, name: str) -> str:
        quoted = quote_identifier(name)
        return quoted if namespace in self._visible else f"{quote_identifier(namespace)}.{quoted}"


_INTERNAL_NAMES: Final = {
    "bool": "boolean", "int8": "bigint", "int2": "smallint", "int4": "integer", "float4": "real",
    "float8": "double precision", "bpchar": "character", "varchar": "character varying",
    "time": "time without time zone", "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone", "timetz": "time with time zone", "varbit": "bit varying",
    "char": '"char"',
}  # fmt: skip

_CATALOG_NAMES: Final = {name: internal for internal, name in _INTERNAL_NAMES.items()}


def _with_typmod(type_oid: int, typmod: int) -> str:
    name = BUILT_IN[type_oid]
    if typmod < 0:
        return _TYPMOD_NAMES.get(type_oid, name)
    if type_oid in (_BPCHAR, _VARCHAR):
        return f"{name}({typmod - _HEADER})"
    if type_oid in (_BIT, _VARBIT):
        return f"{name}({typmod})"
    if type_oid == _NUMERIC:
        precision, scale = (typmod - _HEADER) >> 16 & 0xFFFF, (((typmod - _HEADER) & 0x7FF) ^ 1024) - 1024
        return f"{name}({precision},{scale})"
    if type_oid in _TIMES:
        return name.replace(_TIMES[type_oid], f"{_TIMES[type_oid]}({typmod})", 1)
    return name + _interval_typmod(typmod) if type_oid == _INTERVAL else name


def _interval_typmod(typmod: int) -> str:
    precision, fields = typmod & 0xFFFF, typmod >> 16 & 0x7FFF
    named = "" if fields == _FULL_RANGE else _FIELDS.get(fields, "")
    return named if precision == _FULL_PRECISION else f"{named}({precision})"
