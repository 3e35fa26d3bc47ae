"""Values made of others, as both sides print them: each part by its own rule, in quotes, within what holds it.

The source takes a value apart by PostgreSQL's own means (subscripts, attributes, lower and upper), each part printed by
its type's output function, so nothing here depends on how a composite or a range looks as a text. A part in quotes has
those that it contains doubled; one that is NULL is a hyphen.

Source: PostgreSQL documentation, "Accessing Composite Types", "Range Functions and Operators", "Array Functions".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from wal2lake.errors import VerifyError
from wal2lake.postgres.catalog import CatalogColumn, output_text
from wal2lake.user_types import Part, UserType
from wal2lake.wire.command_text import quote_identifier

_LAKE_FLOATS = frozenset(("float", "double"))
_FLOATS, _NUMERIC = (700, 701), 1700
_KINDS = {1083: "time", 1266: "timetz", 790: "money", 1186: "interval"}
_LISTS = frozenset(("multirange", "vector", "halfvec"))
_NAN = "7ff8000000000000"
_GREATEST_DOUBLE = "1.7976931348623158e308::numeric"


@dataclass(frozen=True, slots=True)
class Shape:
    """A value as it is compared. ``kind``: array, composite, range, multirange, vector, made of ``parts``; hstore,
    time, timetz, money, interval, geometry; else scalar, in the lake of the type ``lake``, in Delta's words.

    ``output``: the type's output function. ``names``: of a composite's attributes. ``depth``: an array's. ``bits``,
    ``finite``, ``scaled``: as a ComparedColumn's. ``cast``: of a domain, to what it is one of, for output functions.
    """

    kind: str
    output: str
    lake: str = ""
    parts: tuple[Shape, ...] = ()
    names: tuple[str, ...] = ()
    depth: int = 1
    bits: bool = False
    finite: bool = False
    scaled: bool = False
    cast: str = ""


def shape_of(column: CatalogColumn, lake: Any, *, finite: bool) -> Shape | None:
    """How a column is compared that the lake has as ``lake``, Delta's JSON for a type; None if that is a scalar, or an
    array of scalars. Raises VerifyError for a type of the lake's that its type in the source never becomes."""
    types = {kind.oid: kind for kind in column.types}
    if column.type_oid not in types:
        return None
    try:
        found = _shape(types, Part("", column.type_oid, column.typmod), lake, finite)
    except (KeyError, TypeError, ValueError):
        message = "Verify cannot compare the lake column's type with the source's."
        raise VerifyError(message, column=column.name) from None
    inner = found.parts[0].kind if found.kind == "array" else found.kind
    return None if inner in ("scalar", "interval") else found


def _shape(types: Mapping[int, UserType], part: Part, lake: Any, finite: bool) -> Shape:
    kind = types[part.type_oid]
    if kind.kind == "domain":
        found = _shape(types, kind.parts[0], lake, finite)
        return replace(found, cast=found.cast or types[kind.parts[0].type_oid].sql_name)
    if lake == "string" or not (kind.kind or kind.oid in _KINDS) or kind.kind in ("enum", "citext"):
        return _scalar(kind, part.typmod, lake, finite)
    if kind.kind == "array":
        element, depth = kind.parts[0]._replace(typmod=part.typmod), _levels(lake) - _own_levels(types, kind.parts[0])
        for _ in range(depth):
            lake = lake["elementType"]
        return Shape("array", kind.output, parts=(_shape(types, element, lake, finite),), depth=depth)
    if kind.kind == "composite":
        fields = {field["name"]: field["type"] for field in lake["fields"]}
        attributes = [each for each in kind.parts if each.name in fields]
        parts = tuple(_shape(types, each, fields[each.name], finite) for each in attributes)
        return Shape("composite", kind.output, parts=parts, names=tuple(each.name for each in attributes))
    if kind.kind == "range":
        (bound,) = (field["type"] for field in lake["fields"] if field["name"] == "lower")
        return Shape("range", kind.output, parts=(_shape(types, kind.parts[0], bound, finite),))
    if kind.kind == "multirange":
        return Shape("multirange", kind.output, parts=(_shape(types, kind.parts[0], lake["elementType"], finite),))
    if kind.kind in ("vector", "halfvec"):
        return Shape("vector", kind.output)
    endless = kind.oid in _KINDS and _KINDS[kind.oid] == "interval" and finite
    return Shape(kind.kind or _KINDS[kind.oid], kind.output, lake if isinstance(lake, str) else "", finite=endless)


def _levels(lake: Any) -> int:
    return 1 + _levels(lake["elementType"]) if isinstance(lake, dict) and lake["type"] == "array" else 0


def _own_levels(types: Mapping[int, UserType], part: Part) -> int:
    """How many arrays of the lake's a value is by itself, as far as its type says."""
    kind = types[part.type_oid]
    if kind.kind in ("domain", "array"):
        return int(kind.kind == "array") + _own_levels(types, kind.parts[0])
    return int(kind.kind in _LISTS)


def _scalar(kind: UserType, typmod: int, lake: str, finite: bool) -> Shape:
    if not isinstance(lake, str):
        raise TypeError(lake)
    numeric = kind.oid == _NUMERIC
    scaled = numeric and lake not in ("string", decimal_word(typmod))
    endless = finite and (scaled or lake.startswith(("decimal", "date", "timestamp")))
    bits = (numeric or kind.oid in _FLOATS) and lake in _LAKE_FLOATS
    return Shape("scalar", kind.output, lake, bits=bits, finite=endless, scaled=scaled)


def decimal_word(typmod: int) -> str:
    """numeric(p,s) in Delta's words. Source: src/backend/utils/adt/numeric.c, make_numeric_typmod."""
    typmod -= 4
    return f"decimal({typmod >> 16 & 0xFFFF},{((typmod & 0x7FF) ^ 1024) - 1024})"


# -- the source's side, as SQL


def source_text(shape: Shape, value: str, aliases: Iterator[int] | None = None) -> str:
    """The text of ``value``, an SQL expression that is short: it is repeated."""
    aliases = count(1) if aliases is None else aliases
    value = f"(({value})::{shape.cast})" if shape.cast else value
    if shape.kind == "array":
        return _array(shape, value, aliases)
    if shape.kind == "composite":
        fields = (_part(part, f"({value}).{quote_identifier(name)}", aliases)
                  for part, name in zip(shape.parts, shape.names, strict=True))  # fmt: skip
        return f"CASE WHEN {value} IS DISTINCT FROM NULL THEN {_concat(fields)} END"  # a row of NULLs "IS NULL"
    if shape.kind == "range":
        flags = f"lower_inc({value})::int, upper_inc({value})::int, isempty({value})::int"
        ends = ", ".join(_part(shape.parts[0], f"{end}({value})", aliases) for end in ("lower", "upper"))
        return f"CASE WHEN {value} IS NOT NULL THEN concat({flags}, {ends}) END"
    if shape.kind == "multirange":
        return f"CASE WHEN {value} IS NOT NULL THEN {_unnested(shape.parts[0], value, aliases)} END"
    text = output_text(shape.output, value)
    if shape.kind == "vector":
        floats = f"(string_to_array(btrim({text}, '[]'), ',')::real[])"
        return f"CASE WHEN {value} IS NOT NULL THEN {_unnested(Shape('scalar', '', bits=True), floats, aliases)} END"
    if shape.kind == "money":
        return f"{value}::numeric::text"
    if shape.bits:
        return bits(value, numeric=shape.scaled)
    if shape.scaled:
        return scaled(value, shape.lake, finite=shape.finite)
    return f"CASE WHEN {text} !~ '{unrepresentable(shape.lake)}' THEN {text} END" if shape.finite else text


def unrepresentable(lake: str) -> str:
    """A pattern: infinity and NaN; of dates and times also those before the year 1 and after the year 9999."""
    return "NaN|Infinity" if lake.startswith("decimal") else "infinity|BC|^[0-9]{5}"


def _array(shape: Shape, value: str, aliases: Iterator[int]) -> str:
    """One of another shape than the lake's lists would be no text of the lake's, so it is printed as it is."""
    levels = [next(aliases) for _ in range(shape.depth)]
    bounds = [f"array_lower({value}, {level}) = 1" for level in range(1, shape.depth + 1)]
    fits = " AND ".join([f"array_ndims({value}) = {shape.depth}", *bounds])
    if shape.depth == 1:
        text = _unnested(shape.parts[0], value, aliases)
    else:
        text = _part(shape.parts[0], value + "".join(f"[i{level}]" for level in levels), aliases)
        for place, level in reversed(list(enumerate(levels, 1))):
            rows = f"generate_subscripts({value}, {place}) AS i{level}"
            text = f"concat('{{', (SELECT string_agg({text}, ',' ORDER BY i{level}) FROM {rows}), '}}')"
    return f"CASE WHEN {fits} THEN {text} ELSE {output_text(shape.output, value)} END"


def _unnested(element: Shape, values: str, aliases: Iterator[int]) -> str:
    alias = next(aliases)
    if element.kind == "composite":  # of which unnest would make columns
        rows = f"(SELECT ({values})[s] AS e, s AS i FROM generate_subscripts({values}, 1) AS s) AS u{alias}"
    else:
        rows = f"unnest({values}) WITH ORDINALITY AS u{alias}(e, i)"
    text = _part(element, f"u{alias}.e", aliases)
    return f"concat('{{', (SELECT string_agg({text}, ',' ORDER BY u{alias}.i) FROM {rows}), '}}')"


def _part(shape: Shape, value: str, aliases: Iterator[int]) -> str:
    return f"""coalesce('"' || replace({source_text(shape, value, aliases)}, '"', '""') || '"', '-')"""


def _concat(texts: Iterable[str]) -> str:
    return f"({' || '.join(texts)})"


def bits(value: str, *, numeric: bool = False) -> str:
    """A numeric that is greater than any double has none."""
    found = f"CASE WHEN {value}::float8 = 'NaN' THEN '{_NAN}' ELSE encode(float8send({value}::float8), 'hex') END"
    if not numeric:
        return found
    return f"CASE WHEN abs({value}) <= {_GREATEST_DOUBLE} OR {value}::text ~ '[Nn]' THEN {found} END"


def scaled(value: str, lake: str, *, finite: bool) -> str:
    """A numeric as the lake's decimal(p,s) prints it; what has no place there as it is, or NULL by policy."""
    precision, scale = map(int, lake[len("decimal(") : -1].split(","))
    fits = f"{value} = round({value}, {scale}) AND abs({value}) < 1e{precision - scale}::numeric"
    otherwise = "NULL" if finite else f"{value}::text"
    return f"CASE WHEN {fits} THEN round({value}, {scale})::text ELSE {otherwise} END"
