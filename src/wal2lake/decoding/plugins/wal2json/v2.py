"""Format version 2: one JSON object per row, and one each where a transaction begins and commits.

Source: github.com/eulerto/wal2json, the functions whose names end in _v2, and pg_decode_write_tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring as escape_json

from wal2lake.decoding.changes import ReorderBufferChange, ReorderBufferTXN, Row
from wal2lake.decoding.context import LogicalDecodingContext
from wal2lake.decoding.plugins.wal2json.options import Wal2JsonOptions
from wal2lake.decoding.plugins.wal2json.values import ColumnShape, Shape, facts_of, text, write_piece
from wal2lake.decoding.relation import Relation
from wal2lake.lsn import LSN


class FormatV2:
    """Writes the objects; ``origin`` is the transaction's number in pg_replication_origin, 0: this server's own."""

    def __init__(self, options: Wal2JsonOptions) -> None:
        self._options = options

    def begin(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, origin: int) -> None:
        if self._options.include_transaction:
            self._boundary(ctx, "B", txn, txn.final_lsn, origin)

    def commit(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN, origin: int) -> None:
        if self._options.include_transaction:
            self._boundary(ctx, "C", txn, commit_lsn, origin)

    def change(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN,
        relation: Relation,
        shape: Shape,
        change: ReorderBufferChange,
        origin: int,
    ) -> None:
        """What names no row is left out, as wal2json does with a warning."""
        new, old = change.newtuple, change.oldtuple
        if old is None and not shape.is_identified and change.action.value != "I":
            return
        parts = [self._head(change.action.value, txn, origin), self._lsn(change.lsn), self._table(shape)]
        if new is not None:
            columns = [self._value(c, v) + c.tail for c, v in zip(shape.columns, new, strict=True) if not _absent(v)]
            parts.append(f',"columns":[{",".join(columns)}]')
        if change.action.value != "I":
            parts.append(f',"identity":[{",".join(self._identity(shape, new if old is None else old))}]')
        if self._options.include_pk:
            places = shape.primary_key or ()
            parts.append(f',"pk":[{",".join(shape.columns[place].head + "}" for place in places)}]')
        write_piece(ctx, [*parts, "}"])

    def message(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        prefix: str,
        content: str,
        origin: int,
    ) -> None:
        """Outside of any transaction there is no xid, time or origin: null."""
        transactional = "false" if txn is None else "true"
        body = f',"transactional":{transactional},"prefix":{escape_json(prefix)},"content":{escape_json(content)}}}'
        write_piece(ctx, [self._head("M", txn, origin), self._lsn(message_lsn), body])

    def truncate(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, shapes: Sequence[Shape], lsn: LSN, origin: int
    ) -> None:
        """One object for each table."""
        for shape in shapes:
            write_piece(ctx, [self._head("T", txn, origin), self._lsn(lsn), self._table(shape), "}"])

    def _boundary(self, ctx: LogicalDecodingContext, action: str, txn: ReorderBufferTXN, lsn: LSN, origin: int) -> None:
        following = f',"nextlsn":"{txn.end_lsn}"' if self._options.include_lsn else ""
        write_piece(ctx, [self._head(action, txn, origin), self._lsn(lsn), following, "}"])

    def _head(self, action: str, txn: ReorderBufferTXN | None, origin: int) -> str:
        facts = "".join([f',"{name}":{value}' for name, value in facts_of(self._options, txn, origin)])
        return f'{{"action":"{action}"{facts}'

    def _lsn(self, lsn: LSN) -> str:
        return f',"lsn":"{lsn}"' if self._options.include_lsn else ""

    def _table(self, shape: Shape) -> str:
        schema = f',"schema":{shape.schema}' if self._options.include_schemas else ""
        return f'{schema},"table":{shape.table}'

    def _value(self, column: ColumnShape, value: object) -> str:
        return f'{column.head},"value":{"null" if value is None else column.format_v2(text(value))}'

    def _identity(self, shape: Shape, row: Row | None) -> Iterable[str]:
        """With replica identity FULL all columns, NULLs too."""
        assert row is not None
        places = range(len(row)) if shape.full else shape.key
        return (self._value(shape.columns[place], row[place]) + "}" for place in places if not _absent(row[place]))


def _absent(value: object) -> bool:
    return value is not None and not isinstance(value, (str, bytes))
