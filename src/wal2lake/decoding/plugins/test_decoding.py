"""test_decoding: PostgreSQL's example plugin, its text to the letter.

What it prints of a relation's shape is made ready once per shape: a row is then one pass over its values.

Source: contrib/test_decoding/test_decoding.c; PostgreSQL documentation, "test_decoding".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wal2lake.decoding import (
    NOT_PUBLISHED,
    UNCHANGED_TOAST,
    ChangeType,
    LogicalDecodingContext,
    OutputPlugin,
    OutputPluginOptions,
    OutputPluginPrepareWrite,
    OutputPluginWrite,
    OutputType,
    Relation,
    ReorderBufferChange,
    ReorderBufferTXN,
    TruncateChange,
    Value,
    parse_bool,
    quote_identifier,
    quote_literal,
    timestamptz_to_str,
)
from wal2lake.errors import ConfigError, PluginError
from wal2lake.lsn import LSN

_BARE: Final = frozenset((20, 21, 23, 26, 700, 701, 1700))  # integers, oid, floats, numeric
_BITS: Final = frozenset((1560, 1562))
_BOOL: Final = 16
_DEFAULTS: Final = {
    "include-xids": True,
    "include-timestamp": False,
    "skip-empty-xacts": False,
    "only-local": False,
    "force-binary": False,
    "include-rewrites": False,
    "stream-changes": False,
}
_VALUE_MEANS_NOTHING: Final = ("force-binary", "include-rewrites", "stream-changes")  # unless it is given


class TestDecoding(OutputPlugin):
    """``skip-empty-xacts`` has BEGIN wait for the first change; streaming is off unless ``stream-changes`` is given."""

    __test__ = False  # for pytest, which takes the name for a test's

    # -- startup

    def startup_cb(self, ctx: LogicalDecodingContext, opt: OutputPluginOptions, is_init: bool) -> None:
        given = dict(_DEFAULTS)
        for name, value in ctx.output_plugin_options:
            given[name] = _boolean(name, value)
        self._xids = given["include-xids"]
        self._timestamp = given["include-timestamp"]
        self._skip_empty = given["skip-empty-xacts"]
        self._only_local = given["only-local"]
        opt.output_type = OutputType.BINARY if given["force-binary"] else OutputType.TEXTUAL
        opt.receive_rewrites = given["include-rewrites"]
        ctx.streaming &= given["stream-changes"]

    def filter_by_origin_cb(self, ctx: LogicalDecodingContext, origin_id: str | None) -> bool:
        return self._only_local and origin_id is not None

    # -- committed transactions

    def begin_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        txn.output_plugin_private = _Wrote()
        if not self._skip_empty:
            self._write_begin(ctx, txn, True)

    def _write_begin(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, last_write: bool) -> None:
        OutputPluginPrepareWrite(ctx, last_write)
        ctx.out.write(f"BEGIN {txn.xid}" if self._xids else "BEGIN")
        OutputPluginWrite(ctx, last_write)

    def change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        wrote = txn.output_plugin_private
        if not wrote.in_transaction:
            if self._skip_empty:
                self._write_begin(ctx, txn, False)
            wrote.in_transaction = True
        shape = relation.output_plugin_private or _shape(relation)
        OutputPluginPrepareWrite(ctx, True)
        write, action, new = ctx.out.write, change.action, change.newtuple
        if action is ChangeType.INSERT:
            write(shape.insert)
        elif action is ChangeType.DELETE:
            write(shape.delete)
            _write_old(write, shape, change.oldtuple)
        else:
            write(shape.update)
            if change.oldtuple is not None:
                write(" old-key:")
                _write_old(write, shape, change.oldtuple)
                write(" new-tuple:")
        if new is not None:
            _write_row(write, shape, new)
        OutputPluginWrite(ctx, True)

    def truncate_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relations: Sequence[Relation], change: TruncateChange
    ) -> None:
        wrote = txn.output_plugin_private
        if self._skip_empty and not wrote.in_transaction:
            self._write_begin(ctx, txn, False)
        wrote.in_transaction = True
        OutputPluginPrepareWrite(ctx, True)
        ctx.out.write(f"table {', '.join(relation.quoted_name for relation in relations)}: TRUNCATE:")
        if change.restart_seqs:
            ctx.out.write(" restart_seqs")
        if change.cascade:
            ctx.out.write(" cascade")
        if not (change.restart_seqs or change.cascade):
            ctx.out.write(" (no-flags)")
        OutputPluginWrite(ctx, True)

    def commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        if self._skip_empty and not txn.output_plugin_private.in_transaction:
            return
        self._write_line(ctx, f"COMMIT {txn.xid}" if self._xids else "COMMIT", txn.commit_time)

    def message_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        transactional: bool,
        prefix: str,
        message: bytes,
    ) -> None:
        if txn is not None and self._messages_count(ctx):
            if self._skip_empty and not txn.output_plugin_private.in_transaction:
                self._write_begin(ctx, txn, False)
            txn.output_plugin_private.in_transaction = True
        OutputPluginPrepareWrite(ctx, True)
        ctx.out.write(f"message: transactional: {transactional:d} prefix: {prefix}, sz: {len(message)} content:")
        ctx.out.write(message)
        OutputPluginWrite(ctx, True)

    def _messages_count(self, ctx: LogicalDecodingContext) -> bool:
        """A transaction with messages alone is not empty, since 17."""
        return ctx.server_version is None or ctx.server_version >= 170000

    def _write_line(self, ctx: LogicalDecodingContext, line: str, time: int) -> None:
        OutputPluginPrepareWrite(ctx, True)
        ctx.out.write(f"{line} (at {timestamptz_to_str(time)})" if self._timestamp else line)
        OutputPluginWrite(ctx, True)

    # -- prepared transactions

    def filter_prepare_cb(self, ctx: LogicalDecodingContext, xid: int, gid: str) -> bool:
        return "_nodecode" in gid

    def begin_prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        self.begin_cb(ctx, txn)

    def prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_lsn: LSN) -> None:
        if not self._skip_empty or txn.output_plugin_private.in_transaction:
            self._write_line(ctx, self._prepared("PREPARE TRANSACTION", txn), txn.prepare_time)

    def commit_prepared_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        self._write_line(ctx, self._prepared("COMMIT PREPARED", txn), txn.commit_time)

    def rollback_prepared_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_end_lsn: LSN, prepare_time: int
    ) -> None:
        self._write_line(ctx, self._prepared("ROLLBACK PREPARED", txn), txn.commit_time)

    def _prepared(self, command: str, txn: ReorderBufferTXN) -> str:
        return f"{command} {quote_literal(txn.gid or '')}" + (f", txid {txn.xid}" if self._xids else "")

    # -- transactions in progress: that something changed is said, not what, for it may yet be aborted

    def stream_start_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        txn.output_plugin_private = txn.output_plugin_private or _Wrote()
        txn.output_plugin_private.in_chunk = False
        if not self._skip_empty:
            self._write_of(ctx, "opening a streamed block for transaction", txn)

    def stream_stop_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        if not self._skip_empty or txn.output_plugin_private.in_chunk:
            self._write_of(ctx, "closing a streamed block for transaction", txn)

    def stream_abort_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, abort_lsn: LSN) -> None:
        if not self._skip_empty or (txn.toptxn or txn).output_plugin_private.in_transaction:
            self._write_of(ctx, "aborting streamed (sub)transaction", txn)

    def stream_prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_lsn: LSN) -> None:
        if self._skip_empty and not txn.output_plugin_private.in_transaction:
            return
        gid = quote_literal(txn.gid or "")
        line = f"TXN {gid}, txid {txn.xid}" if self._xids else gid
        self._write_line(ctx, f"preparing streamed transaction {line}", txn.prepare_time)

    def stream_commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        if self._skip_empty and not txn.output_plugin_private.in_transaction:
            return
        line = "committing streamed transaction" + (f" TXN {txn.xid}" if self._xids else "")
        self._write_line(ctx, line, txn.commit_time)

    def stream_change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        self._note_chunk(ctx, txn)
        self._write_of(ctx, "streaming change for", txn, "transaction")

    def stream_truncate_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relations: Sequence[Relation], change: TruncateChange
    ) -> None:
        self._note_chunk(ctx, txn)
        self._write_of(ctx, "streaming truncate for", txn, "transaction")

    def stream_message_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        transactional: bool,
        prefix: str,
        message: bytes,
    ) -> None:
        if txn is not None and self._messages_count(ctx):
            self._note_chunk(ctx, txn)
        OutputPluginPrepareWrite(ctx, True)
        ctx.out.write(f"streaming message: transactional: {transactional:d} prefix: {prefix}, sz: {len(message)}")
        if not transactional:
            ctx.out.write(" content:")
            ctx.out.write(message)
        OutputPluginWrite(ctx, True)

    def _note_chunk(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        wrote = txn.output_plugin_private
        if self._skip_empty and not wrote.in_chunk:
            self._write_of(ctx, "opening a streamed block for transaction", txn, last_write=False)
        wrote.in_transaction = wrote.in_chunk = True

    def _write_of(
        self,
        ctx: LogicalDecodingContext,
        what: str,
        txn: ReorderBufferTXN,
        unnamed: str = "",
        *,
        last_write: bool = True,
    ) -> None:
        OutputPluginPrepareWrite(ctx, last_write)
        ctx.out.write(f"{what} TXN {txn.xid}" if self._xids else f"{what} {unnamed}".rstrip())
        OutputPluginWrite(ctx, last_write)


class _Wrote:
    """Whether anything was written of a transaction, and of its present chunk."""

    __slots__ = ("in_chunk", "in_transaction")

    def __init__(self) -> None:
        self.in_transaction = self.in_chunk = False


class _Shape:
    """What is the same in every row of a relation: how lines begin, and per column what stands before the value and how
    the value is written; ``template``: all columns of a row of text, ``booleans`` in words."""

    __slots__ = ("booleans", "columns", "delete", "insert", "template", "update")

    def __init__(self, relation: Relation) -> None:
        table = f"table {relation.quoted_name}:"
        self.insert, self.update, self.delete = f"{table} INSERT:", f"{table} UPDATE:", f"{table} DELETE:"
        self.columns = [
            (f" {quote_identifier(attribute.name)}[{attribute.type_name}]:", _quoting(attribute.type_oid))
            for attribute in relation.attributes
        ]
        self.template = "".join(head.replace("%", "%%") + _FORMS[quoting] for head, quoting in self.columns)
        self.booleans = [place for place, (_, quoting) in enumerate(self.columns) if quoting == _AS_BOOLEAN]


_AS_IT_IS, _QUOTED, _AS_BITS, _AS_BOOLEAN = range(4)
_FORMS: Final = ("%s", "'%s'", "B'%s'", "%s")


def _shape(relation: Relation) -> _Shape:
    relation.output_plugin_private = shape = _Shape(relation)
    return shape


def _quoting(type_oid: int) -> int:
    if type_oid in _BARE:
        return _AS_IT_IS
    if type_oid == _BOOL:
        return _AS_BOOLEAN
    return _AS_BITS if type_oid in _BITS else _QUOTED


def _write_row(write: Callable[[str | bytes], None], shape: _Shape, row: Sequence[Value]) -> None:
    """A row of text with nothing to double, which most are, goes through one format string."""
    try:
        plain = "'" not in "".join(row)  # type: ignore[arg-type]
    except TypeError:  # there is a NULL or another nothing in it
        plain = False
    if not plain:
        _write_columns(write, shape.columns, row)
        return
    values = list(row)
    for place in shape.booleans:
        values[place] = "true" if values[place] == "t" else "false"
    write(shape.template % tuple(values))


def _write_columns(
    write: Callable[[str | bytes], None], columns: Sequence[tuple[str, int]], row: Sequence[Value]
) -> None:
    for (head, quoting), value in zip(columns, row, strict=True):
        if not isinstance(value, str):
            write(head + _nothing(value))
        elif quoting == _AS_IT_IS:
            write(head + value)
        elif quoting == _QUOTED:
            write(f"{head}'{value}'" if "'" not in value else head + _doubled(value))
        elif quoting == _AS_BITS:
            write(f"{head}B'{value}'")
        else:
            write(head + ("true" if value == "t" else "false"))


def _write_old(write: Callable[[str | bytes], None], shape: _Shape, row: Sequence[Value] | None) -> None:
    """The old row: what is NULL or was not sent is left out."""
    for column, value in zip(shape.columns, row or (), strict=True):
        if value is not None and value is not NOT_PUBLISHED:
            _write_columns(write, (column,), (value,))


def _doubled(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _nothing(value: Value) -> str:
    if value is None:
        return "null"
    if value is UNCHANGED_TOAST:
        return "unchanged-toast-datum"
    raise PluginError("test_decoding prints text, and the stream was asked for binary values.")


def _boolean(name: str, value: str | None) -> bool:
    """An option's value; without one it is true, or says nothing."""
    if name not in _DEFAULTS:
        shown = "(null)" if value is None else value
        raise ConfigError(
            f'option "{name}" = "{shown}" is unknown.', hint=f"test_decoding's options are {', '.join(_DEFAULTS)}."
        )
    if value is None:
        return name not in _VALUE_MEANS_NOTHING
    parsed = parse_bool(value)
    if parsed is None:
        raise ConfigError(f'could not parse value "{value}" for parameter "{name}".', hint="It is a boolean.")
    return parsed
