"""Format version 1: one JSON object per transaction, arrays beside each other for names, types and values.

The object is one piece of output, written at the commit, or with write-in-chunks a piece per change. Unchanged TOAST
values are left out; old keys leave out NULLs too.

Source: github.com/eulerto/wal2json, the functions whose names end in _v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring as escape_json

from wal2lake.decoding.changes import ChangeType, ReorderBufferChange, ReorderBufferTXN, Row
from wal2lake.decoding.context import LogicalDecodingContext
from wal2lake.decoding.plugins.wal2json.options import Wal2JsonOptions
from wal2lake.decoding.plugins.wal2json.values import Shape, facts_of, text, write_piece
from wal2lake.decoding.relation import Relation
from wal2lake.lsn import LSN

_KINDS = {ChangeType.INSERT: "insert", ChangeType.UPDATE: "update", ChangeType.DELETE: "delete"}


class FormatV1:
    """Writes the objects; ``origin`` is the transaction's number in pg_replication_origin, 0: this server's own."""

    def __init__(self, options: Wal2JsonOptions) -> None:
        self._options = options
        self._tab, self._line, self._space = ("\t", "\n", " ") if options.pretty_print else ("", "", "")
        self._comma = "," + self._space
        self._changes = 0
        self._pending: list[str] = []

    def begin(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, origin: int) -> None:
        """Open the object."""
        self._changes = 0
        self._pending = []
        facts = facts_of(self._options, txn, origin, txn.end_lsn)
        head = [f"{{{self._line}", *(self._field(1, name, value) for name, value in facts)]
        head.append(f'{self._tab}"change":{self._space}[')
        self._put(ctx, "".join(head))

    def commit(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN, origin: int) -> None:
        """Close it and, unless it is out already, write it."""
        end = f"{self._tab}]{self._line}}}"
        if self._options.write_in_chunks:
            self._put(ctx, end)
            return
        self._pending.append(self._line + end)
        write_piece(ctx, self._pending)
        self._pending = []

    def change(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN,
        relation: Relation,
        shape: Shape,
        change: ReorderBufferChange,
        origin: int,
    ) -> None:
        """One element of the array ``change``. What names no row is left out, as wal2json does with a warning."""
        action = change.action
        if action is not ChangeType.INSERT and not shape.is_identified:
            return
        self._changes += 1
        parts = [self._element(), self._field(3, "kind", f'"{_KINDS[action]}"')]
        if self._options.include_schemas:
            parts.append(self._field(3, "schema", shape.schema))
        parts.append(self._field(3, "table", shape.table))
        # Version 2.5 prints the primary key exactly where it is the replica identity by default.
        primary_key = shape.primary_key if relation.replica_identity == "d" else None
        if change.newtuple is not None:
            last = action is ChangeType.INSERT and primary_key is None
            parts.append(self._columns(shape, change.newtuple, last=last))
        if primary_key is not None:
            parts.append(self._primary_key(shape, primary_key, last=action is ChangeType.INSERT))
        if action is not ChangeType.INSERT:
            old = change.newtuple if change.oldtuple is None else change.oldtuple
            assert old is not None
            parts.append(self._old_keys(shape, old))
        parts.append(f"{self._tab * 2}}}")
        self._put(ctx, "".join(parts))

    def message(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        prefix: str,
        content: str,
        origin: int,
    ) -> None:
        """An element of the transaction's array; outside of any transaction an object of its own."""
        line, tab = self._line, self._tab
        self._changes += txn is not None
        parts = [
            self._field(3, "kind", '"message"'),
            self._field(3, "transactional", "true" if txn is not None else "false"),
            self._field(3, "prefix", escape_json(prefix)),
            f'{tab * 3}"content":{self._space}{escape_json(content)}{line}{tab * 2}}}',
        ]
        if txn is not None:
            self._put(ctx, self._element() + "".join(parts))
            return
        head = f'{{{line}{tab}"change":{self._space}[{line}{tab * 2}{{{line}'
        write_piece(ctx, [head, *parts, f"{line}{tab}]{line}}}"])

    def truncate(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, shapes: Sequence[Shape], lsn: LSN, origin: int
    ) -> None:
        """This version says nothing of it."""

    def _put(self, ctx: LogicalDecodingContext, text: str) -> None:
        if self._options.write_in_chunks:
            write_piece(ctx, [text])
        else:
            self._pending.append(text)

    def _field(self, depth: int, name: str, value: str) -> str:
        return f'{self._tab * depth}"{name}":{self._space}{value},{self._line}'

    def _element(self) -> str:
        """What stands before an element: in chunks a piece is a line of its own."""
        first = "" if self._options.write_in_chunks else self._line
        return f"{first}{self._tab * 2}{',' if self._changes > 1 else ''}{{{self._line}"

    def _array(self, depth: int, name: str, items: Iterable[str], end: str = ",") -> str:
        return f'{self._tab * depth}"{name}":{self._space}[{self._comma.join(items)}]{end}{self._line}'

    def _columns(self, shape: Shape, row: Row, *, last: bool) -> str:
        options = self._options
        pairs = [(c, v) for c, v in zip(shape.columns, row, strict=True) if v is None or isinstance(v, (str, bytes))]
        columns = [column for column, _ in pairs]
        parts = [self._array(3, "columnnames", [c.name for c in columns])]
        if options.include_types:
            parts.append(self._array(3, "columntypes", [c.type_name for c in columns]))
        if options.include_type_oids:
            parts.append(self._array(3, "columntypeoids", [str(c.type_oid_v1) for c in columns]))
        if options.include_column_positions:
            parts.append(self._array(3, "columnpositions", [c.position for c in columns]))
        if options.include_not_null:  # an empty list without the types, with which wal2json collects it
            parts.append(self._array(3, "columnoptionals", [c.optional for c in columns if options.include_types]))
        if options.include_default:
            parts.append(self._array(3, "columndefaults", [c.default for c in columns]))
        values = ["null" if v is None else c.format_v1(text(v)) for c, v in pairs]
        return "".join(parts) + self._array(3, "columnvalues", values, "" if last else ",")

    def _old_keys(self, shape: Shape, row: Row) -> str:
        """With replica identity FULL all that is not NULL."""
        options = self._options
        places = range(len(row)) if shape.full else shape.key
        pairs = [(shape.columns[p], v) for p in places if isinstance(v := row[p], (str, bytes))]
        parts = [f'{self._tab * 3}"oldkeys":{self._space}{{{self._line}']
        parts.append(self._array(4, "keynames", [c.name for c, _ in pairs]))
        if options.include_types:
            parts.append(self._array(4, "keytypes", [c.type_name for c, _ in pairs]))
        if options.include_type_oids:
            parts.append(self._array(4, "keytypeoids", [str(c.type_oid_v1) for c, _ in pairs]))
        parts.append(self._array(4, "keyvalues", [c.format_v1(text(v)) for c, v in pairs], ""))
        return "".join(parts) + f"{self._tab * 3}}}{self._line}"

    def _primary_key(self, shape: Shape, places: Sequence[int], *, last: bool) -> str:
        columns = [shape.columns[place] for place in places]
        names = self._array(4, "pknames", [c.name for c in columns])
        types = self._array(4, "pktypes", [c.type_name for c in columns if self._options.include_types], "")
        head = f'{self._tab * 3}"pk":{self._space}{{{self._line}'
        return f"{head}{names}{types}{self._tab * 3}}}{'' if last else ','}{self._line}"
