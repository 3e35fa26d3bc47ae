"""A relation's columns as wal2json prints them: what is the same for every row is made once per shape.

Values are JSON where JSON has them: numbers (NaN and infinity, which JSON lacks, are null), booleans; bytea is hex
without its \\x; everything else is a string. What pgoutput does not carry (positions, NOT NULL, defaults, domains, the
primary key beside another replica identity) is asked of the catalog, once per shape, as it is at that moment; of a
column that is gone by then it is null.

Source: github.com/eulerto/wal2json, tuple_to_stringinfo, pg_decode_write_value; src/backend/utils/adt/json.c,
escape_json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring as escape_json
from typing import Any, Final

from wal2lake.decoding.changes import ReorderBufferTXN
from wal2lake.decoding.context import LogicalDecodingContext, OutputPluginPrepareWrite, OutputPluginWrite
from wal2lake.decoding.plugins.wal2json.options import Wal2JsonOptions
from wal2lake.decoding.relation import Attribute, Relation
from wal2lake.decoding.sql import timestamptz_to_str
from wal2lake.decoding.types import is_built_in
from wal2lake.errors import PluginError
from wal2lake.lsn import LSN

_BOOL, _BYTEA = 16, 17
_NUMBERS: Final = frozenset((20, 21, 23, 26, 700, 701, 1700))
_NOT_IN_JSON: Final = frozenset(("NaN", "Infinity", "-Infinity"))

Formatter = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """One column. ``name``, ``type_name`` and what follows are printed as they stand. ``format_v1``: version 1 looks
    through a domain where it prints the domain's data type, version 2 (``format_v2``) does not. ``head`` and ``tail``:
    what version 2 prints before and behind the value."""

    name: str
    type_name: str
    type_oid_v1: int
    format_v1: Formatter
    format_v2: Formatter
    position: str
    optional: str
    default: str
    head: str
    tail: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A relation as the options want it. ``key`` and ``primary_key`` are places among the columns; ``full``: replica
    identity FULL. ``is_identified``: an UPDATE or DELETE names its row."""

    schema: str
    table: str
    selected: bool
    columns: tuple[ColumnShape, ...]
    key: tuple[int, ...]
    primary_key: tuple[int, ...] | None
    full: bool

    @property
    def is_identified(self) -> bool:
        return bool(self.key) or self.full


def shape_of(ctx: LogicalDecodingContext, options: Wal2JsonOptions, relation: Relation) -> Shape:
    """The relation's shape, kept with the relation."""
    known = relation.output_plugin_private
    if isinstance(known, Shape):
        return known
    facts = _facts(ctx, options, relation)
    shape = Shape(
        escape_json(relation.namespace),
        escape_json(relation.name),
        options.selects_table(relation.namespace, relation.name),
        tuple(_column(ctx, options, attribute, facts.get(attribute.name, {})) for attribute in relation.attributes),
        relation.key,
        _primary_key(ctx, relation) if options.include_pk else None,
        relation.replica_identity == "f",
    )
    relation.output_plugin_private = shape
    return shape


def _facts(ctx: LogicalDecodingContext, options: Wal2JsonOptions, relation: Relation) -> dict[str, Mapping[str, Any]]:
    """Each column's row of pg_attribute by name, with ``default`` in it, where an option needs one."""
    if not (options.include_column_positions or options.include_not_null or options.include_default):
        return {}
    rows = ctx.catalog.scan("pg_attribute", {"attrelid": relation.relation_id, "attisdropped": False})
    defaults = ctx.catalog.column_defaults(relation.relation_id) if options.include_default else {}
    return {row["attname"]: {**row, "default": defaults.get(row["attnum"])} for row in rows}


def _primary_key(ctx: LogicalDecodingContext, relation: Relation) -> tuple[int, ...] | None:
    """None when there is none. By default the replica identity is the primary key; beside another only the catalog
    knows it."""
    if relation.replica_identity == "d":
        return relation.key or None
    if not ctx.has_catalog:
        raise PluginError(
            f"include-pk: {relation}'s replica identity is not its primary key, which only the catalog can tell.",
            hint="Decode from the server's slot, or leave out include-pk.",
        )
    found = ctx.catalog.scan("pg_index", {"indrelid": relation.relation_id, "indisprimary": True})
    if not found:
        return None
    keys = str(found[0]["indkey"]).split()[: int(found[0]["indnkeyatts"])]
    rows = ctx.catalog.scan("pg_attribute", {"attrelid": relation.relation_id, "attisdropped": False})
    names = {row["attname"] for row in rows if str(row["attnum"]) in keys}
    return tuple(place for place, attribute in enumerate(relation.attributes) if attribute.name in names)


def _column(
    ctx: LogicalDecodingContext, options: Wal2JsonOptions, attribute: Attribute, facts: Mapping[str, Any]
) -> ColumnShape:
    type_oid, name = attribute.type_oid, attribute.type_name_with_typmod
    if not options.include_typmod and options.format_version == 1:
        name = ctx.types.catalog_name(type_oid)
    base = None
    if options.include_domain_data_type and options.include_types:
        base = _domain_base(ctx, type_oid)
        if base is not None:
            name = _base_name(ctx, options, *base)
    plain, default = facts.get("default"), "null"
    if plain is not None:
        default = f'"{plain}"'  # wal2json does not escape it
    column_name = escape_json(attribute.name)
    type_name = name if name.startswith('"') and not name.endswith("]") else escape_json(name)
    position = str(facts.get("attnum", "null"))
    optional = "null" if not facts else "false" if facts["attnotnull"] else "true"
    typed = f',"type":{type_name}' if options.include_types else ""
    numbered = f',"typeoid":{type_oid}' if options.include_type_oids else ""
    tail = (
        f',"optional":{optional}' if options.include_not_null else "",
        f',"position":{position}' if options.include_column_positions else "",
        f',"default":{default}' if options.include_default else "",
    )
    return ColumnShape(
        name=column_name,
        type_name=type_name,
        type_oid_v1=base[0] if base else type_oid,
        format_v1=formatter(base[0] if base else type_oid, options.numeric_data_types_as_string),
        format_v2=formatter(type_oid, options.numeric_data_types_as_string),
        position=position,
        optional=optional,
        default=default,
        head=f'{{"name":{column_name}{typed}{numbered}',
        tail="".join(tail) + "}",
    )


def _domain_base(ctx: LogicalDecodingContext, type_oid: int) -> tuple[int, int] | None:
    """What a domain is made of (type and modifier), one step down; None for what is no domain."""
    if is_built_in(type_oid):
        return None
    row = ctx.catalog.scan("pg_type", {"oid": type_oid})
    return (int(row[0]["typbasetype"]), int(row[0]["typtypmod"])) if row and row[0]["typtype"] == "d" else None


def _base_name(ctx: LogicalDecodingContext, options: Wal2JsonOptions, type_oid: int, typmod: int) -> str:
    if options.include_typmod or options.format_version == 2:
        return ctx.types.format_type(type_oid, typmod)
    return ctx.types.catalog_name(type_oid)


def facts_of(
    options: Wal2JsonOptions, txn: ReorderBufferTXN | None, origin: int, next_lsn: LSN | None = None
) -> Iterator[tuple[str, str]]:
    """What both versions say of a transaction, names and JSON values in wal2json's order; outside of any it is null."""
    if options.include_xids:
        yield "xid", "null" if txn is None else str(txn.xid)
    if options.include_lsn and next_lsn is not None:
        yield "nextlsn", f'"{next_lsn}"'
    if options.include_timestamp:
        yield "timestamp", "null" if txn is None else f'"{timestamptz_to_str(txn.commit_time)}"'
    if options.include_origin:
        yield "origin", "null" if txn is None else str(origin)


def write_piece(ctx: LogicalDecodingContext, parts: Iterable[str]) -> None:
    """One piece of output."""
    OutputPluginPrepareWrite(ctx, True)
    ctx.out.write("".join(parts))
    OutputPluginWrite(ctx, True)


def text(value: object) -> str:
    """A value in text format; raises PluginError for one in binary, which the stream was asked for."""
    if not isinstance(value, str):
        raise PluginError("It prints text, and the stream's values are binary.", hint="Leave out the option binary.")
    return value


def formatter(type_oid: int, numbers_as_strings: bool) -> Formatter:
    """What makes JSON of a type's output text."""
    if type_oid in _NUMBERS:
        return escape_json if numbers_as_strings else _number
    return {_BOOL: _boolean, _BYTEA: _bytea}.get(type_oid, escape_json)


def _number(text: str) -> str:
    return "null" if text in _NOT_IN_JSON else text


def _boolean(text: str) -> str:
    return "true" if text == "t" else "false"


def _bytea(text: str) -> str:
    return escape_json(text[2:])
