"""The source's side: PostgreSQL prints, digests and sums its own rows; only sums and range bounds travel.

A value is printed by its type's output function, which is what the replication stream sends; ``::text`` differs for
character(n), boolean and inet. ``OFFSET 0`` keeps the planner from evaluating an expression once per use.

Source: PostgreSQL documentation, "String Functions", "Binary String Functions", width_bucket, TABLESAMPLE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wal2lake.postgres.catalog import output_text
from wal2lake.postgres.connection import Connection, mapped_errors
from wal2lake.verify.comparison import RANGE_CHARACTERS, ComparedColumn, Comparison, Piece, Window, element_type
from wal2lake.verify.report import Key
from wal2lake.verify.shapes import bits, scaled, source_text, unrepresentable
from wal2lake.verify.source_snapshot import SourceSnapshot
from wal2lake.wire.command_text import quote_identifier

_SAMPLES_PER_RANGE = 250
_ARGUMENTS = 99  # of one call of concat: three for each column, and PostgreSQL takes at most 100


@contextmanager
def source_table(snapshot: SourceSnapshot, comparison: Comparison) -> Iterator[SourceTable]:
    """The table, locked until the block ends. Raises TableMovedError when the snapshot's rows cannot be read."""
    with snapshot.reading(comparison.table) as connection:
        yield SourceTable(connection, comparison)


class SourceTable:
    """One published table in a transaction whose snapshot is set; row filter and column list apply."""

    def __init__(self, connection: Connection, comparison: Comparison) -> None:
        self._connection = connection
        self._integer = comparison.integer
        self._key = _key(comparison)
        self._from = f"{_only(connection, comparison.table.relation_id)}{comparison.table.quoted}"
        self._filter = comparison.table.row_filter or "true"

    def bounds(self, piece: Piece, range_rows: int) -> tuple[Key, ...]:
        """Keys that cut ``piece`` into ranges of about ``range_rows`` rows, from a sample; distinct and ascending."""
        percent = min(100.0, 100 * _SAMPLES_PER_RANGE / range_rows)
        every = max(1, round(range_rows * percent / 100))
        sample = f"{self._from} TABLESAMPLE BERNOULLI ({percent}) REPEATABLE (0)"
        keys = f"SELECT {self._key} AS k FROM {sample} WHERE {self._where([piece])}"
        numbered = f"SELECT k, row_number() OVER (ORDER BY k) AS n FROM ({keys}) AS keys"
        rows = self._rows(
            f"SELECT DISTINCT k FROM ({numbered}) AS numbered WHERE n % {every} = 0 AND k IS NOT NULL ORDER BY k"
        )
        return tuple(k if isinstance(k, int) else k.decode() for (k,) in rows)

    def digests(self, window: Window, groups: Sequence[Sequence[ComparedColumn]]) -> dict[int, tuple[int, ...]]:
        """Range index → row count, then two sums for each group of columns; empty ranges are left out."""
        columns = list({column.name: column for group in groups for column in group}.values())
        place = {column.name: f"c{i}" for i, column in enumerate(columns)}
        texts = ", ".join(f"{_text(column)} AS {place[column.name]}" for column in columns)
        hashes = ", ".join(
            f"md5(convert_to({_row_text([place[c.name] for c in group])}, 'UTF8')) AS h{i}"
            for i, group in enumerate(groups)
        )
        sums = ", ".join(
            f"sum(('x' || substr(h{i}, {start}, 15))::bit(60)::bigint)" for i in range(len(groups)) for start in (1, 16)
        )
        where = self._where(window.pieces)
        printed = f"SELECT {self._key} AS k, {texts} FROM {self._from} WHERE {where} OFFSET 0"
        hashed = f"SELECT {self._bucket(window.bounds)} AS r, {hashes} FROM ({printed}) AS printed OFFSET 0"
        rows = self._rows(f"SELECT r, count(*), {sums} FROM ({hashed}) AS hashed GROUP BY r")
        return {row[0]: tuple(int(value) for value in row[1:]) for row in rows}

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with mapped_errors():
            return self._connection.execute(query.encode()).fetchall()

    def _where(self, pieces: Sequence[Piece]) -> str:
        return f"({self._filter}) AND ({' OR '.join(self._inside(*piece) for piece in pieces)})"

    def _inside(self, lower: Key | None, upper: Key | None) -> str:
        above = "true" if lower is None else f"{self._key} >= {self._literal(lower)}"
        below = "true" if upper is None else f"{self._key} < {self._literal(upper)}"
        return f"{above} AND {below}" if lower is not None else f"({below}) IS NOT FALSE"

    def _bucket(self, bounds: Sequence[Key]) -> str:
        if not bounds:
            return "0"
        array = f"ARRAY[{', '.join(map(self._literal, bounds))}]"
        return f"coalesce(width_bucket(k, {array}), 0)"

    def _literal(self, key: Key) -> str:
        """Text goes as hexadecimal digits, so no quoting rule of any session setting can touch it."""
        return f"'{key}'::bigint" if isinstance(key, int) else f"decode('{key.encode().hex()}', 'hex')"


def _key(comparison: Comparison) -> str:
    column = comparison.key[0]
    if comparison.integer:
        return f"{quote_identifier(column.name)}::bigint"
    return f"convert_to(left({_text(column)}, {RANGE_CHARACTERS}), 'UTF8')"


def _text(column: ComparedColumn) -> str:
    name = quote_identifier(column.name)
    if column.shape is not None:
        return source_text(column.shape, name)
    name = f"({name}::{column.cast})" if column.cast else name
    if column.type.startswith("array") and (column.bits or column.finite or column.scaled):
        return _array_text(column, name)
    if column.bits:
        return bits(name, numeric=column.scaled)
    if column.scaled:
        return scaled(name, column.type, finite=column.finite)
    text = output_text(column.output_function, name)
    return f"CASE WHEN {text} !~ '{unrepresentable(column.type)}' THEN {text} END" if column.finite else text


def _array_text(column: ComparedColumn, name: str) -> str:
    """The elements one by one, put together again.

    An array of another shape than the lake's lists would be no text of the lake's, so it is printed as it is.
    """
    depth = column.type.count("array<")
    bounds = [f"array_lower({name}, {level}) = 1" for level in range(1, depth + 1)]
    shape = " AND ".join([f"array_ndims({name}) = {depth}", *bounds])
    return (
        f"CASE WHEN {shape} THEN {_elements(column, name, depth)} ELSE {output_text(column.output_function, name)} END"
    )


def _elements(column: ComparedColumn, name: str, depth: int) -> str:
    """In braces, at each level of ``depth``; subscripts are slower."""
    if depth == 1:
        source, value, levels = f"unnest({name}) WITH ORDINALITY AS u(e, i1)", "e", [1]
    else:
        levels = list(range(1, depth + 1))
        source, value = "", name + "".join(f"[i{level}]" for level in levels)
    text = f"coalesce({_element(column, value)}, 'NULL')"
    for level in reversed(levels):
        own = source or f"generate_subscripts({name}, {level}) AS i{level}"
        text = f"concat('{{', (SELECT string_agg({text}, ',' ORDER BY i{level}) FROM {own}), '}}')"
    return text


def _element(column: ComparedColumn, value: str) -> str:
    """As bits, in the lake's scale, or as array_out has it; NULL where the lake has no place for it."""
    if column.bits:
        return bits(value, numeric=column.scaled)
    if column.scaled:
        return scaled(value, element_type(column.type), finite=column.finite)
    quoted = f"CASE WHEN {value}::text ~ ' ' THEN concat('\"', {value}::text, '\"') ELSE {value}::text END"
    return f"CASE WHEN {value}::text !~ '{unrepresentable(element_type(column.type))}' THEN {quoted} END"


def _row_text(texts: Sequence[str]) -> str:
    """concat leaves NULLs out, which is just what the row text wants of a NULL's length and value."""
    parts = [part for text in texts for part in (f"char_length({text})", "':'", text)]
    calls = [f"concat({', '.join(parts[i : i + _ARGUMENTS])})" for i in range(0, len(parts), _ARGUMENTS)]
    return " || ".join(calls)


def _only(connection: Connection, relation_id: int) -> str:
    """A partitioned table holds its partitions' rows; an inheritance parent is published without its children's."""
    with mapped_errors():
        row = connection.execute("SELECT relkind = 'p' FROM pg_class WHERE oid = %s", [relation_id]).fetchone()
    return "" if row is not None and row[0] else "ONLY "
