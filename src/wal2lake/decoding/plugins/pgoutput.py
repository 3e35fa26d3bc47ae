"""pgoutput itself: decoded changes written as pgoutput's messages again, in the version and with the options asked for.

Where the options are those of the stream that is decoded, the bytes are the server's. Otherwise it is a translation: a
stream of chunks becomes whole transactions, a later protocol version an earlier one, messages are left out; a Relation
message that says nothing new may then be missing. Values stay in the format in which they came: to have binary ones,
ask the server for them.

``publication_names`` is what the stream was asked for when it is left out, ``proto_version`` the lowest that has all
that is asked. Named, the tables and columns of these publications are left of what the stream holds, as the catalog
lists them now.

Source: src/backend/replication/pgoutput/pgoutput.c; src/backend/replication/logical/proto.c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wal2lake.decoding.changes import (
    UNCHANGED_TOAST,
    ChangeType,
    ReorderBufferChange,
    ReorderBufferTXN,
    Row,
    TruncateChange,
)
from wal2lake.decoding.context import LogicalDecodingContext, OutputPluginPrepareWrite, OutputPluginWrite
from wal2lake.decoding.plugin import OutputPlugin, OutputPluginOptions, OutputType
from wal2lake.decoding.plugins.published import Published
from wal2lake.decoding.relation import Relation
from wal2lake.decoding.sql import parse_bool
from wal2lake.errors import ConfigError, PluginError, ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput import messages as m
from wal2lake.pgoutput.options import (
    STREAMING_PROTO_VERSION,
    TWO_PHASE_PROTO_VERSION,
    PgoutputOptions,
    quote_publication_names,
)
from wal2lake.pgoutput.session import PgoutputSession
from wal2lake.pgoutput.tuples import NULL, UNCHANGED, OldTuple, TupleColumn, TupleData

_PARALLEL: Final = "parallel"


class Pgoutput(OutputPlugin):
    """Writes the messages through a walsender's session, which refuses what may not stand where it would. ``options``:
    what was asked for, from startup_cb on."""

    def startup_cb(self, ctx: LogicalDecodingContext, opt: OutputPluginOptions, is_init: bool) -> None:
        opt.output_type = OutputType.BINARY
        given = dict(ctx.output_plugin_options)
        if len(given) < len(ctx.output_plugin_options):
            raise ConfigError("pgoutput takes none of its options twice.")
        named = "publication_names" in given
        given.setdefault("proto_version", str(_least_version(given)))
        given.setdefault("publication_names", quote_publication_names(ctx.stream.publication_names))
        try:
            self.options = PgoutputOptions.parse(tuple(given.items()))
        except ProtocolError as error:
            raise ConfigError(error.message, hint=error.hint) from None
        if self.options.binary and not ctx.stream.binary:
            raise ConfigError(
                "pgoutput's option binary needs the values in binary, and the stream has them as text.",
                hint="Ask the server for binary values too, or leave the option out.",
            )
        if ctx.stream.binary and not self.options.binary:
            raise ConfigError("The stream's values are binary.", hint="Set pgoutput's option binary to true.")
        ctx.streaming &= self.options.streaming != "off"
        ctx.twophase &= self.options.two_phase
        ctx.announcements = []
        self._session = PgoutputSession(self.options)
        self._published = Published(ctx, self.options.publication_names) if named else None
        self._types: dict[int, m.Type] = {}
        self._sent: dict[int, m.Relation] = {}
        self._streamed: set[int] = set()

    def filter_by_origin_cb(self, ctx: LogicalDecodingContext, origin_id: str | None) -> bool:
        return self.options.origin == "none" and origin_id is not None

    # -- transactions: Begin goes out with the first change, so that an empty transaction is none; since 15

    def begin_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        txn.output_plugin_private = False
        if ctx.server_version is not None and ctx.server_version < 150000:
            self._begin(ctx, txn)

    def _begin(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN | None) -> None:
        if txn is not None and txn.output_plugin_private is False:
            self._send(ctx, m.Begin(txn.final_lsn, txn.commit_time, txn.xid))
            self._send_origin(ctx, txn, txn.origin_lsn)
            txn.output_plugin_private = True

    def commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        if txn.output_plugin_private:
            self._send(ctx, m.Commit(0, commit_lsn, txn.end_lsn, txn.commit_time))

    def begin_prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        gid = txn.gid or ""
        self._send(ctx, m.BeginPrepare(txn.final_lsn, txn.end_lsn, txn.prepare_time, txn.xid, gid))
        self._send_origin(ctx, txn, txn.origin_lsn)

    def prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_lsn: LSN) -> None:
        self._send(ctx, m.Prepare(0, prepare_lsn, txn.end_lsn, txn.prepare_time, txn.xid, txn.gid or ""))

    def commit_prepared_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        self._send(ctx, m.CommitPrepared(0, commit_lsn, txn.end_lsn, txn.commit_time, txn.xid, txn.gid or ""))

    def rollback_prepared_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_end_lsn: LSN, prepare_time: int
    ) -> None:
        times = prepare_time, txn.abort_time
        self._send(ctx, m.RollbackPrepared(0, prepare_end_lsn, txn.end_lsn, *times, txn.xid, txn.gid or ""))

    # -- transactions in progress

    def stream_start_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        first = txn.xid not in self._streamed
        self._send(ctx, m.StreamStart(txn.xid, first))
        if first:
            self._streamed.add(txn.xid)
            self._send_origin(ctx, txn, LSN(0))

    def stream_stop_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        self._send(ctx, m.StreamStop())

    def stream_abort_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, abort_lsn: LSN) -> None:
        top = (txn.toptxn or txn).xid
        abort = m.AbortInfo(abort_lsn, txn.abort_time) if self.options.streaming == _PARALLEL else None
        self._send(ctx, m.StreamAbort(top, txn.xid, abort))
        if txn.toptxn is None:
            self._streamed.discard(top)

    def stream_prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_lsn: LSN) -> None:
        self._streamed.discard(txn.xid)
        self._send(ctx, m.StreamPrepare(0, prepare_lsn, txn.end_lsn, txn.prepare_time, txn.xid, txn.gid or ""))

    def stream_commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        self._streamed.discard(txn.xid)
        self._send(ctx, m.StreamCommit(txn.xid, 0, commit_lsn, txn.end_lsn, txn.commit_time))

    # -- changes

    def change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        if self._published is None or self._published.has(relation, change.action):
            self._begin(ctx, txn)
            self._announce(ctx, change.xid, [relation])
            self._send(ctx, self._change(relation, change), change.xid)

    def stream_change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        self.change_cb(ctx, txn, relation, change)

    def truncate_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relations: Sequence[Relation], change: TruncateChange
    ) -> None:
        published = self._published
        chosen = [r for r in relations if published is None or published.has(r, ChangeType.TRUNCATE)]
        if chosen:
            self._begin(ctx, txn)
            self._announce(ctx, change.xid, chosen)
            options = change.cascade * m.TRUNCATE_CASCADE | change.restart_seqs * m.TRUNCATE_RESTART_IDENTITY
            self._send(ctx, m.Truncate(tuple(r.relation_id for r in chosen), options), change.xid)

    def stream_truncate_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relations: Sequence[Relation], change: TruncateChange
    ) -> None:
        self.truncate_cb(ctx, txn, relations, change)

    def message_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        transactional: bool,
        prefix: str,
        message: bytes,
    ) -> None:
        if self.options.messages:
            self._begin(ctx, txn)
            self._send(ctx, m.Message(transactional, message_lsn, prefix, message))

    def stream_message_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        transactional: bool,
        prefix: str,
        message: bytes,
    ) -> None:
        self.message_cb(ctx, txn, message_lsn, transactional, prefix, message)

    # -- messages

    def _announce(self, ctx: LogicalDecodingContext, xid: int, relations: Sequence[Relation]) -> None:
        """What the stream has announced is passed on as it came; a held transaction may need a shape of before."""
        assert ctx.announcements is not None
        for announced in ctx.announcements:
            if isinstance(announced, m.Type):
                self._types[announced.type_oid] = announced
            else:
                self._send_schema(ctx, announced, xid)
        ctx.announcements.clear()
        for relation in relations:
            if self._sent.get(relation.relation_id) != relation.message:
                self._send_schema(ctx, relation.message, xid)

    def _send_schema(self, ctx: LogicalDecodingContext, message: m.Relation, xid: int) -> None:
        """A Relation, and before it the Type of each column that is not built in."""
        self._sent[message.relation_id] = message
        kept = message if self._published is None else self._published.columns(message)
        if kept is not None:
            for column in kept.columns:
                if column.type_oid in self._types:
                    self._send(ctx, self._types[column.type_oid], xid)
            self._send(ctx, kept, xid)

    def _change(self, relation: Relation, change: ReorderBufferChange) -> m.PgoutputMessage:
        places = None if self._published is None else self._published.places(relation.message)
        old = None
        if change.oldtuple is not None:
            kind = "O" if relation.replica_identity == "f" else "K"
            old = OldTuple(kind, _tuple(change.oldtuple, places))
        new = TupleData(()) if change.newtuple is None else TupleData(_tuple(change.newtuple, places))
        if change.action is ChangeType.INSERT:
            return m.Insert(relation.relation_id, new)
        if change.action is ChangeType.UPDATE:
            return m.Update(relation.relation_id, old, new)
        if old is None:
            raise PluginError("A DELETE has no old row, which pgoutput never leaves out.")
        return m.Delete(relation.relation_id, old)

    def _send_origin(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, origin_lsn: LSN) -> None:
        if txn.origin is not None:
            self._send(ctx, m.Origin(origin_lsn, txn.origin))

    def _send(self, ctx: LogicalDecodingContext, message: m.PgoutputMessage, xid: int | None = None) -> None:
        OutputPluginPrepareWrite(ctx, True)
        ctx.out.write(self._session.send(message, xid))
        OutputPluginWrite(ctx, True)


def _least_version(given: Mapping[str, str | None]) -> int:
    """The lowest protocol version that has all that is asked."""
    streaming = given.get("streaming", "off")
    if streaming is not None and streaming.lower() == _PARALLEL:
        return STREAMING_PROTO_VERSION[_PARALLEL]
    if parse_bool(given.get("two_phase", "off") or "on"):
        return TWO_PHASE_PROTO_VERSION
    return STREAMING_PROTO_VERSION["on" if parse_bool(streaming or "on") else "off"]


def _tuple(row: Row, places: Sequence[int] | None) -> tuple[TupleColumn, ...]:
    return tuple(map(_column, row if places is None else [row[place] for place in places]))


def _column(value: object) -> TupleColumn:
    """Of a key everything else is NULL, as proto.c writes it."""
    if isinstance(value, str):
        return TupleColumn("t", value.encode())
    if isinstance(value, bytes):
        return TupleColumn("b", value)
    return UNCHANGED if value is UNCHANGED_TOAST else NULL
