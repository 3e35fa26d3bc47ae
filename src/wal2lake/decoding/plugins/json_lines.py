"""json: an object per message, whose keys are the documentation's names of the message's fields (docs/live.md has
them).

JSON keeps apart what a row keeps apart: NULL is null, a value is its text (of binary format: \\x and hex), an unchanged
TOAST value is missing from the row and named in ``unchanged``. Of an old row that is a key, only the key is there.

Source: PostgreSQL documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

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
)
from wal2lake.decoding.changes import Row
from wal2lake.epoch import moment
from wal2lake.errors import ConfigError, ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import TRUNCATE_CASCADE, TRUNCATE_RESTART_IDENTITY, Type

_ROWS: Final = {ChangeType.INSERT: "Insert", ChangeType.UPDATE: "Update", ChangeType.DELETE: "Delete"}


class JsonLines(OutputPlugin):
    """Whatever the stream was asked for comes as it comes: chunks of transactions in progress too, where it streams."""

    wants_messages = False  # only where --messages asks for them

    def startup_cb(self, ctx: LogicalDecodingContext, opt: OutputPluginOptions, is_init: bool) -> None:
        for name, _ in ctx.output_plugin_options:
            raise ConfigError(f"The output plugin json has no options, and so no {name}.")
        opt.output_type = OutputType.TEXTUAL
        ctx.streaming &= ctx.stream.streaming != "off"
        ctx.announcements = []

    # -- whole transactions

    def begin_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        _write(ctx, txn.xid, "Begin", final_lsn=str(txn.final_lsn), commit_ts=_time(txn.commit_time))
        _write_origin(ctx, txn)

    def change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        _write_announcements(ctx, change.xid)
        values: dict[str, Any] = {"relation": str(relation)}
        if change.oldtuple is not None:
            values["old" if relation.replica_identity == "f" else "key"] = _row(relation, change.oldtuple)
        if change.newtuple is not None:
            values["new"] = _row(relation, change.newtuple)
            if UNCHANGED_TOAST in change.newtuple:
                pairs = zip(relation.attributes, change.newtuple, strict=True)
                values["unchanged"] = [attribute.name for attribute, value in pairs if value is UNCHANGED_TOAST]
        _write(ctx, change.xid, _ROWS[change.action], **values)

    def truncate_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relations: Sequence[Relation], change: TruncateChange
    ) -> None:
        _write_announcements(ctx, change.xid)
        options = TRUNCATE_CASCADE * change.cascade + TRUNCATE_RESTART_IDENTITY * change.restart_seqs
        _write(ctx, change.xid, "Truncate", relations=[str(relation) for relation in relations], options=options)

    def message_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        transactional: bool,
        prefix: str,
        message: bytes,
    ) -> None:
        values = {"transactional": transactional, "lsn": str(message_lsn), "prefix": prefix}
        content = message.decode("utf-8", "backslashreplace")
        _write(ctx, None if txn is None else txn.xid, "Message", **values, content=content)

    def commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        _write(ctx, txn.xid, "Commit", **_committed(txn, commit_lsn))

    # -- prepared transactions

    def begin_prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        _write(ctx, txn.xid, "BeginPrepare", **_prepared(txn, txn.final_lsn))
        _write_origin(ctx, txn)

    def prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_lsn: LSN) -> None:
        _write(ctx, txn.xid, "Prepare", flags=0, **_prepared(txn, prepare_lsn))

    def stream_prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_lsn: LSN) -> None:
        _write(ctx, txn.xid, "StreamPrepare", flags=0, **_prepared(txn, prepare_lsn))

    def commit_prepared_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        _write(ctx, txn.xid, "CommitPrepared", **_committed(txn, commit_lsn), gid=txn.gid)

    def rollback_prepared_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_end_lsn: LSN, prepare_time: int
    ) -> None:
        positions = {"prepare_end_lsn": str(prepare_end_lsn), "rollback_end_lsn": str(txn.end_lsn)}
        times = {"prepare_ts": _time(prepare_time), "rollback_ts": _time(txn.abort_time)}
        _write(ctx, txn.xid, "RollbackPrepared", flags=0, **positions, **times, gid=txn.gid)

    # -- transactions in progress

    def stream_start_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        first = txn.output_plugin_private is None
        txn.output_plugin_private = "begun"
        _write(ctx, txn.xid, "StreamStart", first_segment=first)
        if first:
            _write_origin(ctx, txn)

    def stream_stop_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        _write(ctx, txn.xid, "StreamStop")

    def stream_abort_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, abort_lsn: LSN) -> None:
        abort = {"abort_lsn": str(abort_lsn), "abort_ts": _time(txn.abort_time)} if abort_lsn else None
        _write(ctx, txn.xid, "StreamAbort", subxid=txn.xid, abort=abort)

    def stream_commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        _write(ctx, txn.xid, "StreamCommit", **_committed(txn, commit_lsn))

    stream_change_cb = change_cb
    stream_truncate_cb = truncate_cb
    stream_message_cb = message_cb


def _write(ctx: LogicalDecodingContext, xid: int | None, kind: str, **values: Any) -> None:
    line = {"lsn": str(ctx.write_location), "xid": xid, "message": kind, **values}
    OutputPluginPrepareWrite(ctx, True)
    ctx.out.write(json.dumps(line, ensure_ascii=False))
    OutputPluginWrite(ctx, True)


def _write_origin(ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
    if txn.origin is not None:
        _write(ctx, txn.xid, "Origin", origin_lsn=str(txn.origin_lsn), name=txn.origin)


def _write_announcements(ctx: LogicalDecodingContext, xid: int) -> None:
    """The Relation and Type messages that came before this change."""
    for message in ctx.announcements or ():
        names = {"namespace": message.namespace, "name": message.name}
        if isinstance(message, Type):
            _write(ctx, xid, "Type", type_oid=message.type_oid, **names)
        else:
            columns = [
                {"flags": c.flags, "name": c.name, "type_oid": c.type_oid, "typmod": c.typmod} for c in message.columns
            ]
            shape = {"replica_identity": message.replica_identity, "columns": columns}
            _write(ctx, xid, "Relation", relation_id=message.relation_id, **names, **shape)
    ctx.announcements = []


def _committed(txn: ReorderBufferTXN, commit_lsn: LSN) -> dict[str, Any]:
    positions = {"commit_lsn": str(commit_lsn), "end_lsn": str(txn.end_lsn)}
    return {"flags": 0, **positions, "commit_ts": _time(txn.commit_time)}


def _prepared(txn: ReorderBufferTXN, prepare_lsn: LSN) -> dict[str, Any]:
    positions = {"prepare_lsn": str(prepare_lsn), "end_lsn": str(txn.end_lsn)}
    return {**positions, "prepare_ts": _time(txn.prepare_time), "gid": txn.gid}


def _row(relation: Relation, row: Row) -> dict[str, str | None]:
    pairs: Iterable[tuple[str, Value]] = zip((a.name for a in relation.attributes), row, strict=True)
    sent = ((name, value) for name, value in pairs if value is not UNCHANGED_TOAST and value is not NOT_PUBLISHED)
    return {name: "\\x" + value.hex() if isinstance(value, bytes) else _text(value) for name, value in sent}


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _time(micros: int) -> str:
    """ISO 8601 in UTC, always of the same width."""
    try:
        at = moment(micros)
    except OverflowError:
        raise ProtocolError(f"A time of {micros} µs since 2000 lies beyond the year 9999.") from None
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
