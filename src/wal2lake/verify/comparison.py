"""Which columns of a table are compared, and in which text; the rule both sides keep without sharing its code.

A row becomes one text: for each compared column, in the source's order, the number of characters, ``:``, and the
value in PostgreSQL's output form. NULL is ``:`` without a number, so NULL, '' and values that run into each other
all differ. Rows digest to the two first 15-digit groups of the MD5 of its UTF-8 bytes, each summed over a key range:
order does not matter, a doubled row does.

A float is compared as the 16 hex digits of its IEEE 754 double (float4 widens exactly, every NaN is one value): two
printers may disagree on the shortest digits of the same number, and -0 is not 0. So are the elements of an array.

Ranges are cut on the first key column, or the first column of a table without a key: integers as numbers, all else
as the first 64 characters of its text in the order of its UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from wal2lake.errors import VerifyError
from wal2lake.postgres.catalog import CatalogColumn, PublishedTable
from wal2lake.verify.report import Key
from wal2lake.verify.shapes import Shape, decimal_word, shape_of

_INTEGERS = frozenset((20, 21, 23))  # int8, int2, int4
_FLOATS = frozenset((700, 701, 1021, 1022))  # and arrays of them
_NUMERICS = frozenset((1700, 1231))
_LAKE_INTEGERS = frozenset(("byte", "short", "integer", "long"))
_LAKE_FLOATS = frozenset(("float", "double"))
_INTERVAL = ["months", "days", "microseconds"]
RANGE_CHARACTERS = 64

Piece = tuple[Key | None, Key | None]


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """``output_function`` is PostgreSQL's, quoted; ``type`` the lake's, in Delta's words (``array<integer>``);
    ``finite``: what has no place in the lake's type was written as NULL by policy, so infinity, NaN and years outside
    1 to 9999 are NULL. ``scaled``: a numeric that the lake has in a type of another scale. ``shape``: of a value that
    is made of others, or a number in the lake and a text in the source. ``cast``: of a domain, its base type in SQL."""

    name: str
    output_function: str
    type: str
    bits: bool
    finite: bool
    scaled: bool = False
    shape: Shape | None = None
    cast: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared of one table. ``key`` are the key columns among ``columns`` (the first column without a key),
    ``integer`` says that ranges are cut by number; ``missing`` columns are published, but not in the lake."""

    table: PublishedTable
    columns: tuple[ComparedColumn, ...]
    key: tuple[ComparedColumn, ...]
    integer: bool
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Which keys are digested, and where they are cut: range i lies between bounds i − 1 and i (ascending, distinct).

    ``pieces`` are [lower, upper) each, within the bounds; None is an open end, and NULL belongs to an open lower one.
    """

    bounds: tuple[Key, ...] = ()
    pieces: tuple[Piece, ...] = ((None, None),)

    def range(self, index: int) -> Piece:
        ends = (None, *self.bounds, None)
        return ends[index], ends[index + 1]


def compare_columns(table: PublishedTable, lake: Mapping[str, Any], *, finite: Collection[str] = ()) -> Comparison:
    """Match the published columns with the lake's (name → Delta's JSON for its type); those that only the lake has are
    left out.

    ``finite``: the columns in which the pipeline's policy wrote unrepresentable values as NULL. Raises VerifyError when
    none is common.
    """
    found = [column for column in table.columns if column.name in lake]
    if not found:
        raise VerifyError("Source and lake have no column in common.", relation=str(table))
    columns = {}
    for column in found:
        lake_type = type_word(lake[column.name])
        scalar = element_type(lake_type)
        numeric = column.base_oid in _NUMERICS
        bits = (numeric or column.base_oid in _FLOATS) and scalar in _LAKE_FLOATS
        infinite = scalar.startswith(("decimal", "date", "timestamp", "interval"))
        scaled = numeric and scalar not in ("string", decimal_word(max(column.typmod, column.base_typmod)))
        null = column.name in finite
        shape = shape_of(column, lake[column.name], finite=null)
        cast = column.base_type_name if column.base_oid != column.type_oid else ""
        columns[column.name] = ComparedColumn(
            column.name, column.output_function, lake_type, bits, null and (infinite or scaled), scaled, shape, cast
        )
    key = _key(table, found)
    return Comparison(
        table,
        tuple(columns.values()),
        tuple(columns[column.name] for column in key),
        key[0].base_oid in _INTEGERS and lake[key[0].name] in _LAKE_INTEGERS,
        tuple(column.name for column in table.columns if column.name not in lake),
    )


def type_word(kind: Any) -> str:
    """A type in Delta's words; an array is ``array<…>``, a struct of an interval's parts "interval", what else is no
    primitive "nested"."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{type_word(kind['elementType'])}>"
    return "interval" if [field["name"] for field in kind.get("fields", ())] == _INTERVAL else "nested"


def element_type(lake_type: str) -> str:
    """What is in the arrays, at whatever depth; the type itself if it is none."""
    return lake_type[lake_type.rfind("<") + 1 :].rstrip(">")


def _key(table: PublishedTable, found: list[CatalogColumn]) -> list[CatalogColumn]:
    """The primary key in its own order, else the replica identity's index, else the first column."""
    by_name = {column.name: column for column in found}
    primary = [by_name[name] for name in table.primary_key if name in by_name]
    indexed = [column for column in found if column.key and table.replica_identity == "i"]
    return primary or indexed or found[:1]
