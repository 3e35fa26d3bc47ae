"""One relation's rows to dicts of Python values: loaders are found once per Relation message, not per row.

The loaders are psycopg's, or the user's own where some are registered in the adapters that the stream was given. No
connection stands behind them, so a loader sees what the session has: UTF-8, ISO dates, UTC.

Source: psycopg documentation, "Data adaptation configuration".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, Final

import psycopg
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq import Format
from psycopg.types.string import TextLoader

from wal2lake.client.events import UNCHANGED, Column, Relation
from wal2lake.decoding.types import TypeNames
from wal2lake.errors import UnrepresentableError
from wal2lake.lsn import LSN
from wal2lake.pgoutput import messages as pg
from wal2lake.pgoutput.columns import Columns

_REFUSALS: Final = (psycopg.Error, ValueError, ArithmeticError)  # of loaders


class Adapters:
    """psycopg's AdaptContext around an AdaptersMap."""

    connection = None

    def __init__(self, adapters: AdaptersMap) -> None:
        self.adapters = adapters


def text_adapters() -> AdaptersMap:
    """Adapters by which every value stays PostgreSQL's text of it."""
    adapters = AdaptersMap(types=psycopg.adapters.types)
    adapters.register_loader(0, TextLoader)
    return adapters


class RowLoader:
    """Reads the rows of ``relation``."""

    def __init__(self, relation: Relation, adapters: AdaptersMap) -> None:
        self.relation = relation
        self.count = len(relation.columns)
        self._names = [column.name for column in relation.columns]
        self._keys = [column.key for column in relation.columns]
        self._oids = [column.type_oid for column in relation.columns]
        self._transformer = Transformer(Adapters(adapters))
        self._transformer.set_loader_types(self._oids, Format.TEXT)
        self._load: Callable[[Sequence[bytes | None]], tuple[Any, ...]] = self._transformer.load_sequence

    def row(self, columns: Columns, lsn: int, old: dict[str, Any] | None = None) -> dict[str, Any]:
        """A whole row; what did not change comes from ``old``, the whole row before, where there is one."""
        values, _, unchanged, binary = columns
        try:
            row = dict(zip(self._names, self._load(values) if not binary else self._mixed(columns), strict=False))
        except _REFUSALS:
            raise self._refused(columns, lsn) from None  # whose cause would quote the value
        for index in unchanged:
            name = self._names[index]
            row[name] = UNCHANGED if old is None else old[name]
        return row

    def key(self, columns: Columns, lsn: int) -> dict[str, Any]:
        """The replica identity's part of a row; the rest was not sent."""
        return dict(compress(self.row(columns, lsn).items(), self._keys))

    def _mixed(self, columns: Columns) -> list[Any]:
        """Values in binary form and in text, each by its own loader."""
        binary = set(columns.binary)
        return [self._value(columns, index, index in binary) for index in range(self.count)]

    def _value(self, columns: Columns, index: int, binary: bool) -> Any:
        value = columns.values[index]
        if value is None:
            return None
        return self._transformer.get_loader(self._oids[index], Format.BINARY if binary else Format.TEXT).load(value)

    def _refused(self, columns: Columns, lsn: int) -> UnrepresentableError:
        """Which column it was; its value stays where it is."""
        refused = (column for index, column in enumerate(self.relation.columns) if self._is_refused(columns, index))
        column = next(refused, None)
        return UnrepresentableError(
            f"A value cannot be read as Python's type for {'its column' if column is None else column.type_name}.",
            hint="Give the stream adapters with a loader of your own for that type, or read values='text'.",
            relation=str(self.relation),
            column=None if column is None else column.name,
            lsn=lsn,
        )

    def _is_refused(self, columns: Columns, index: int) -> bool:
        try:
            self._value(columns, index, index in columns.binary)
        except _REFUSALS:
            return True
        return False


def describe(message: pg.Relation, types: Mapping[int, pg.Type]) -> Relation:
    """A Relation message with its types by name: built-in ones need no catalog, others were announced before it."""
    names = TypeNames(types, search_path=())
    columns = tuple(
        Column(c.name, c.type_oid, c.typmod, names.format_type(c.type_oid), bool(c.flags & pg.COLUMN_IS_KEY))
        for c in message.columns
    )
    schema = message.namespace or "pg_catalog"
    key = tuple(column.name for column in columns if column.key)
    return Relation(message.relation_id, schema, message.name, message.replica_identity, columns, key)


def lsn_of(value: int) -> LSN:
    """64 unsigned bits are an LSN: its check is left out."""
    return int.__new__(LSN, value)
