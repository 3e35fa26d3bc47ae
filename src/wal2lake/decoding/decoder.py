"""From pgoutput's messages to a plugin's callbacks: whole transactions in the order of their commits.

A committed transaction that comes in one piece goes through at once. A streamed one is held until its end is known,
unless the plugin streams: then its chunks go through as they come. A prepared one goes through at PREPARE, unless the
plugin has no two-phase callbacks or filters it: then it is held until COMMIT PREPARED, and ``hold_lsn`` says that
nothing from its PREPARE on may be acknowledged, for the server sends its changes once only.

begin_cb comes with what follows Begin, because the origin, which filter_by_origin_cb decides about, stands there. After
a lost connection the server begins again somewhere before the end: what had gone through whole is passed over.

Source: src/backend/replication/logical/reorderbuffer.c, ReorderBufferProcessTXN; decode.c; worker.c.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from wal2lake.decoding.callbacks import PluginCallbacks
from wal2lake.decoding.changes import ReorderBufferTXN
from wal2lake.decoding.context import Catalog, LogicalDecodingContext, PluginOptions, Writer
from wal2lake.decoding.destinations import Destination, Discard, ToBuffer, ToPlugin, replay
from wal2lake.decoding.loader import load_plugin
from wal2lake.decoding.plugin import OutputPlugin, check_callbacks, defines
from wal2lake.decoding.reorderbuffer import MEMORY_LIMIT, ReorderBuffer
from wal2lake.decoding.rows import ROW_TAGS, Relations
from wal2lake.decoding.types import TypeNames
from wal2lake.errors import PluginError, ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput import messages as m
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.options import OPTION_SINCE, STREAMING_PROTO_VERSION, PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession, State

_TRUNCATE, _MESSAGE = m.Truncate.tag[0], m.Message.tag[0]
_DISCARD: Final = Discard()


class Decoded(NamedTuple):
    """One piece of a plugin's output: what pg_logical_slot_get_changes gives. ``xid`` 0: outside of any transaction.
    ``data``: str when the plugin's output is textual, else bytes."""

    lsn: LSN
    xid: int
    data: str | bytes

    def json_line(self) -> bytes:
        """An object of ``lsn``, ``xid`` (null for 0) and ``data`` (bytes: ``\\x`` and hex), and a newline."""
        data = self.data if isinstance(self.data, str) else "\\x" + self.data.hex()
        line = {"lsn": str(self.lsn), "xid": self.xid or None, "data": data}
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"

    def line(self) -> bytes:
        """The data alone, and a newline: what pg_recvlogical writes."""
        return (self.data.encode() if isinstance(self.data, str) else self.data) + b"\n"


class Decoder:
    """One session of one plugin, which is started by this and shut down by ``close``. Use it as a context manager.

    ``plugin``: an instance, or a name for load_plugin. ``options``: the plugin's. ``stream``: what is wished of
    pgoutput; ``self.stream`` then is what must be asked of a server, with what the plugin needs added, unless ``fixed``
    says that the stream is there already. ``is_init``: this command makes the slot. ``server_version``: whose stream it
    is (server_version_num), where that is known. ``memory_limit`` (bytes) and ``spill_dir``: see ReorderBuffer.

    Raises what the plugin refuses its options with; PluginError.
    """

    def __init__(
        self,
        plugin: OutputPlugin | str,
        options: PluginOptions,
        stream: PgoutputOptions,
        write: Writer,
        *,
        is_init: bool = False,
        fixed: bool = False,
        catalog: Catalog | None = None,
        server_version: int | None = None,
        memory_limit: int = MEMORY_LIMIT,
        spill_dir: str | Path | None = None,
    ) -> None:
        loaded = load_plugin(plugin) if isinstance(plugin, str) else plugin
        check_callbacks(type(loaded))
        self.ctx = LogicalDecodingContext(options, stream, write, catalog)
        self.ctx.server_version = server_version
        self._callbacks = PluginCallbacks(loaded, self.ctx)
        self.plugin_options = self._callbacks.startup(is_init)
        self._requested = stream
        self.ctx.twophase &= stream.two_phase
        self.stream = stream if fixed else _with_needs_of(stream, loaded, self.ctx)
        self._set_stream_options()
        self._delivered_lsn = self._message_lsn = LSN(0)  # apart: a commit record may begin where a message ends
        self.buffer = ReorderBuffer(memory_limit, spill_dir)
        self._catalog = catalog
        self._relations = Relations()
        self._prepared: dict[int, ReorderBufferTXN] = {}
        self._filtered: set[int] = set()
        self._streams: dict[int, ReorderBufferTXN] = {}
        self._handlers: dict[type[m.PgoutputMessage], Callable[[Any, LSN], None]] = {
            m.Begin: self._begin,
            m.Commit: self._commit,
            m.Origin: self._origin,
            m.Relation: self._relation,
            m.Type: self._type,
            m.BeginPrepare: self._begin_prepare,
            m.Prepare: self._prepare,
            m.CommitPrepared: self._commit_prepared,
            m.RollbackPrepared: self._rollback_prepared,
            m.StreamStart: self._stream_start,
            m.StreamStop: self._stream_stop,
            m.StreamAbort: self._stream_abort,
            m.StreamCommit: self._stream_commit,
            m.StreamPrepare: self._stream_prepare,
        }
        self.begin_stream()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut the plugin down and forget what is held."""
        self.buffer.clear()
        self._callbacks.shutdown()

    def begin_stream(self) -> None:
        """A new connection: transactions that were cut in two come again, and relations are announced anew."""
        self._session = PgoutputSession(self.stream)
        self._types = TypeNames(self._session.types, self._catalog)
        self.ctx.types = self._types
        self._relations.current.clear()
        self.buffer.keep(self._prepared)
        self._streams.clear()
        self._late: dict[int, ReorderBufferTXN] = {}  # streamed, prepared, and filtered: they end at COMMIT PREPARED
        self._txn = ReorderBufferTXN(0)
        self.ctx.close_output()
        self._destination: Destination | None = None
        self._choose_destination: Callable[[], Destination] = lambda: _DISCARD

    def adapt_to(self, server_version: int) -> None:
        """Before streaming: leave out of ``stream`` what the plugin could use and a server of this version (as in
        server_version_num) does not know, as the server itself does for its plugins."""
        self.ctx.server_version = server_version
        if server_version < OPTION_SINCE["messages"]:
            self.stream = self._requested
            self._set_stream_options()
            self.begin_stream()

    def _set_stream_options(self) -> None:
        self.ctx.stream = self.stream
        self.ctx.streaming &= self.stream.streaming != "off"

    @property
    def whole(self) -> bool:
        """Whether all that was written belongs to transactions that are whole."""
        return self._session.state is State.IDLE and not (self.ctx.streaming and self._streams)

    @property
    def hold_lsn(self) -> LSN | None:
        """Nothing at or above it may be acknowledged: the PREPARE of a transaction that is held; None: no bound."""
        held = (*self._prepared.values(), *self._late.values())
        return min((txn.final_lsn for txn in held), default=None)

    def announce(self, payload: bytes) -> None:
        """A Relation or Type message that is in force where reading begins, amid a change log."""
        message = read_message(payload)
        if isinstance(message, m.Relation | m.Type):
            self._session.announce(message)
        if isinstance(message, m.Relation):
            self._relations.announce(message, self._types)

    def receive(self, lsn: LSN, payload: bytes) -> None:
        """Take the next message of the stream, XLogData's start LSN and payload; what the plugin writes is written now.

        Raises PluginError, after which only ``close`` may follow; ProtocolError; LogFullError.
        """
        state = self._session.state
        tag = payload[0] if payload else 0
        if tag not in ROW_TAGS or state is State.IDLE:
            self._receive_other(lsn, payload)
            return
        xid = self._session.xid or 0
        if state is State.CHUNK:
            xid, payload = _without_xid(payload)
        relation = self._relations.current.get(int.from_bytes(payload[1:5], "big"))
        if relation is None:
            raise ProtocolError("A change names a relation that no Relation announced.", lsn=lsn, offset=1)
        (self._destination or self._open_destination(lsn)).row(lsn, xid, payload, relation)

    def _receive_other(self, lsn: LSN, payload: bytes) -> None:
        received = self._session.receive(payload, lsn)
        message, xid = received.message, received.xid
        handler = self._handlers.get(type(message))
        if received.of_nothing:
            return
        if handler is not None:
            handler(message, lsn)
        elif payload[0] in (_TRUNCATE, _MESSAGE):
            if self._session.state is State.CHUNK:
                _, payload = _without_xid(payload)
            self._receive_inside(message, lsn, xid or 0, payload)

    def _receive_inside(self, message: Any, lsn: LSN, xid: int, payload: bytes) -> None:
        if isinstance(message, m.Truncate):
            relations = [self._relations.current[relation_id] for relation_id in message.relation_ids]
            (self._destination or self._open_destination(lsn)).truncate(lsn, xid, payload, relations)
        elif message.transactional:
            (self._destination or self._open_destination(lsn)).message(lsn, xid, payload)
        elif message.lsn > self._message_lsn:
            self._callbacks.message(None, message.lsn, message.prefix, message.content)
            self._message_lsn = message.lsn

    def _open_destination(self, lsn: LSN = LSN(0)) -> Destination:  # noqa: B008 - immutable
        """The destination of the open transaction, decided now that its origin is known."""
        if self._destination is None:
            self._txn.first_lsn = self._txn.first_lsn or lsn or self._txn.final_lsn
            self._destination = self._choose_destination()
        return self._destination

    def _relation(self, message: m.Relation, lsn: LSN) -> None:
        self._relations.announce(message, self._types)
        held = self._session.state is State.CHUNK and not self.ctx.streaming
        if self.ctx.announcements is not None and not held:
            self.ctx.announcements.append(message)

    def _type(self, message: m.Type, lsn: LSN) -> None:
        if self.ctx.announcements is not None:
            self.ctx.announcements.append(message)

    def _origin(self, message: m.Origin, lsn: LSN) -> None:
        self._txn.origin, self._txn.origin_lsn = message.name, message.origin_lsn
        self._txn.first_lsn = self._txn.first_lsn or lsn

    # -- committed transactions in one piece

    def _begin(self, message: m.Begin, lsn: LSN) -> None:
        self._txn = ReorderBufferTXN(message.xid, lsn)
        self._destination, self._choose_destination = None, self._open_committed
        self._txn.final_lsn, self._txn.commit_time = message.final_lsn, message.commit_ts

    def _open_committed(self) -> Destination:
        txn = self._txn
        if txn.final_lsn < self._delivered_lsn or self._callbacks.filtered(txn.origin, txn.first_lsn):
            return _DISCARD
        if self.plugin_options.needs_end_lsn:
            self.buffer.begin(txn.xid)
            return ToBuffer(self.buffer, txn.xid)
        return self._begun("begin_cb", txn)

    def _begun(self, callback: str, txn: ReorderBufferTXN) -> Destination:
        self._callbacks.transaction(callback, txn, txn.first_lsn)
        return ToPlugin(self._callbacks, txn)

    def _commit(self, message: m.Commit, lsn: LSN) -> None:
        destination = self._open_destination(lsn)
        if isinstance(destination, ToBuffer):
            self._commit_held(self._txn, message)
        elif destination is not _DISCARD:
            self._end("commit_cb", self._txn, message, message.commit_ts)

    def _end(
        self, callback: str, txn: ReorderBufferTXN, message: m.Commit | m.StreamCommit | m.CommitPrepared, time: int
    ) -> None:
        txn.final_lsn, txn.end_lsn, txn.commit_time = message.commit_lsn, message.end_lsn, time
        self._callbacks.transaction(callback, txn, txn.end_lsn, message.commit_lsn)
        self._delivered_lsn = max(self._delivered_lsn, message.end_lsn)

    # -- prepared transactions

    def _begin_prepare(self, message: m.BeginPrepare, lsn: LSN) -> None:
        self._txn = ReorderBufferTXN(message.xid, lsn)
        self._destination, self._choose_destination = None, self._open_prepared
        self._note_prepare(self._txn, message)

    def _open_prepared(self) -> Destination:
        txn = self._txn
        if txn.xid in self._prepared or txn.end_lsn <= self._delivered_lsn:
            return _DISCARD
        if self._callbacks.filtered(txn.origin, txn.first_lsn):
            self._filtered.add(txn.xid)
            return _DISCARD
        if self._callbacks.filters_prepare(txn.xid, txn.gid or "", txn.first_lsn):
            self.buffer.begin(txn.xid)
            return ToBuffer(self.buffer, txn.xid)
        return self._begun("begin_prepare_cb", txn)

    def _note_prepare(self, txn: ReorderBufferTXN, message: m.BeginPrepare | m.StreamPrepare) -> None:
        txn.gid, txn.prepare_time = message.gid, message.prepare_ts
        txn.final_lsn, txn.end_lsn = message.prepare_lsn, message.end_lsn

    def _prepare(self, message: m.Prepare, lsn: LSN) -> None:
        destination = self._open_destination(lsn)
        if isinstance(destination, ToPlugin):
            self._prepare_delivered("prepare_cb", self._txn)
        elif isinstance(destination, ToBuffer):
            self._prepared[message.xid] = self._txn

    def _prepare_delivered(self, callback: str, txn: ReorderBufferTXN) -> None:
        self._callbacks.transaction(callback, txn, txn.end_lsn, txn.final_lsn)
        self._delivered_lsn = max(self._delivered_lsn, txn.end_lsn)

    def _commit_prepared(self, message: m.CommitPrepared, lsn: LSN) -> None:
        held, late = self._prepared.pop(message.xid, None), self._late.pop(message.xid, None)
        if held is not None:
            self._commit_held(held, message)
        elif late is not None:
            self._end("stream_commit_cb", late, message, message.commit_ts)
        elif self._is_new_end(message.xid, message.end_lsn):
            self._require_two_phase(message.gid, lsn)
            txn = ReorderBufferTXN(message.xid, lsn)
            txn.gid = message.gid
            self._end("commit_prepared_cb", txn, message, message.commit_ts)

    def _rollback_prepared(self, message: m.RollbackPrepared, lsn: LSN) -> None:
        late = self._late.pop(message.xid, None)
        if self._prepared.pop(message.xid, None) is not None:
            self.buffer.forget(message.xid)
        elif late is not None:
            late.abort_time = message.rollback_ts
            self._callbacks.transaction("stream_abort_cb", late, lsn, LSN(0))
        elif self._is_new_end(message.xid, message.rollback_end_lsn) and self.ctx.twophase:
            txn = ReorderBufferTXN(message.xid, lsn)
            txn.gid, txn.prepare_time = message.gid, message.prepare_ts
            txn.commit_time = txn.abort_time = message.rollback_ts
            txn.end_lsn = message.rollback_end_lsn
            arguments = (message.prepare_end_lsn, message.prepare_ts)
            self._callbacks.transaction("rollback_prepared_cb", txn, txn.end_lsn, *arguments)
            self._delivered_lsn = max(self._delivered_lsn, txn.end_lsn)

    def _is_new_end(self, xid: int, end_lsn: LSN) -> bool:
        """Whether the end of a prepared transaction is news: neither filtered by its origin nor heard before."""
        if xid in self._filtered:
            self._filtered.discard(xid)
            return False
        return end_lsn > self._delivered_lsn

    def _require_two_phase(self, gid: str, lsn: LSN) -> None:
        if not self.ctx.twophase:
            raise PluginError(
                "COMMIT PREPARED came of a transaction whose changes another session had at its PREPARE.",
                hint="The plugin has no two-phase callbacks: use one that has, or make a slot without two-phase.",
                lsn=lsn,
            )

    # -- transactions in progress

    def _stream_start(self, message: m.StreamStart, lsn: LSN) -> None:
        xid = message.xid
        if message.first_segment:
            self._streams[xid] = ReorderBufferTXN(xid, lsn)
            if not self.ctx.streaming and xid not in self._prepared:
                self.buffer.begin(xid)
        elif xid not in self._streams:
            raise ProtocolError("A chunk goes on with a transaction that never began.", lsn=lsn, offset=1)
        self._txn, self._destination = self._streams[xid], None
        self._choose_destination = self._open_stream
        if not self.ctx.streaming:
            self._destination = _DISCARD if xid in self._prepared else ToBuffer(self.buffer, xid)

    def _open_stream(self) -> Destination:
        txn = self._txn
        if txn.xid in self._filtered or self._callbacks.filtered(txn.origin, txn.first_lsn):
            self._filtered.add(txn.xid)
            return _DISCARD
        self._callbacks.transaction("stream_start_cb", txn, txn.first_lsn)
        return ToPlugin(self._callbacks, txn, stream=True)

    def _stream_stop(self, message: m.StreamStop, lsn: LSN) -> None:
        if isinstance(self._open_destination(lsn), ToPlugin):
            self._callbacks.transaction("stream_stop_cb", self._txn, lsn)

    def _stream_abort(self, message: m.StreamAbort, lsn: LSN) -> None:
        top = self._streamed(message.xid, lsn)
        whole = message.subxid == message.xid
        if self.ctx.streaming and message.xid not in self._filtered:
            txn = top if whole else ReorderBufferTXN(message.subxid, lsn, top)
            abort_lsn = message.abort.abort_lsn if message.abort else LSN(0)
            txn.abort_time = message.abort.abort_ts if message.abort else 0
            self._callbacks.transaction("stream_abort_cb", txn, lsn, abort_lsn)
        elif message.xid in self.buffer and not whole:
            self.buffer.abort(message.xid, message.subxid)
        if whole:
            self._forget_stream(message.xid)

    def _forget_stream(self, xid: int) -> None:
        del self._streams[xid]
        self._filtered.discard(xid)
        self.buffer.forget(xid)

    def _stream_commit(self, message: m.StreamCommit, lsn: LSN) -> None:
        txn = self._streamed(message.xid, lsn)
        if not self.ctx.streaming:
            del self._streams[message.xid]
            self._commit_held(txn, message)
            return
        if message.xid not in self._filtered:
            self._end("stream_commit_cb", txn, message, message.commit_ts)
        self._forget_stream(message.xid)

    def _streamed(self, xid: int, lsn: LSN) -> ReorderBufferTXN:
        if xid not in self._streams:
            raise ProtocolError("A streamed transaction ends that never began.", lsn=lsn, offset=1)
        return self._streams[xid]

    def _commit_held(self, txn: ReorderBufferTXN, message: m.Commit | m.StreamCommit | m.CommitPrepared) -> None:
        """Give a held transaction to the plugin as if it had come in one piece, at its commit."""
        txn.final_lsn, txn.end_lsn, txn.commit_time = message.commit_lsn, message.end_lsn, message.commit_ts
        txn.first_lsn = txn.first_lsn or message.commit_lsn
        new = message.end_lsn > self._delivered_lsn
        if new and not self._callbacks.filtered(txn.origin, txn.first_lsn):
            self._replay(txn, "begin_cb")
            self._end("commit_cb", txn, message, message.commit_ts)
        self.buffer.forget(txn.xid)

    def _replay(self, txn: ReorderBufferTXN, begin: str) -> None:
        replay(self.buffer, txn.xid, self._relations.versions, self._begun(begin, txn))

    def _stream_prepare(self, message: m.StreamPrepare, lsn: LSN) -> None:
        txn = self._streamed(message.xid, lsn)
        self._note_prepare(txn, message)
        if message.xid in self._prepared or message.xid in self._filtered:
            del self._streams[message.xid]
        elif self.ctx.streaming:
            del self._streams[message.xid]
            if self._callbacks.filters_prepare(txn.xid, message.gid, txn.first_lsn):
                self._late[txn.xid] = txn
            else:
                self._prepare_delivered("stream_prepare_cb", txn)
        else:
            self._prepare_held(txn)

    def _prepare_held(self, txn: ReorderBufferTXN) -> None:
        """A streamed transaction is prepared, and the plugin does not stream."""
        del self._streams[txn.xid]
        if txn.end_lsn <= self._delivered_lsn:
            self.buffer.forget(txn.xid)
        elif self._callbacks.filtered(txn.origin, txn.first_lsn):
            self._filtered.add(txn.xid)
            self.buffer.forget(txn.xid)
        elif self._callbacks.filters_prepare(txn.xid, txn.gid or "", txn.first_lsn):
            self._prepared[txn.xid] = txn
        else:
            self._replay(txn, "begin_prepare_cb")
            self._prepare_delivered("prepare_cb", txn)
            self.buffer.forget(txn.xid)


def _without_xid(payload: bytes) -> tuple[int, bytes]:
    """The xid that stands after the tag inside a chunk, and the message without it."""
    return int.from_bytes(payload[1:5], "big"), payload[:1] + payload[5:]


def _with_needs_of(stream: PgoutputOptions, plugin: OutputPlugin, ctx: LogicalDecodingContext) -> PgoutputOptions:
    """``stream`` with what the plugin needs."""
    wants = plugin.wants_messages
    if wants is None:
        wants = defines(type(plugin), "message_cb") or defines(type(plugin), "stream_message_cb")
    streaming = "on" if ctx.streaming and stream.streaming == "off" else stream.streaming
    proto_version = max(stream.proto_version, STREAMING_PROTO_VERSION[streaming])
    return replace(stream, messages=stream.messages or wants, streaming=streaming, proto_version=proto_version)


def decode(
    changes: Iterable[tuple[LSN, bytes]],
    plugin: OutputPlugin | str,
    options: PluginOptions = (),
    *,
    stream: PgoutputOptions,
    **further: Any,
) -> Iterator[Decoded]:
    """The plugin's output over ``changes``: (XLogData's start LSN, payload) of a stream that was asked for as
    ``stream`` says. ``further``: Decoder's. Raises what Decoder does."""
    ready: list[Decoded] = []

    def write(lsn: LSN, xid: int, data: str | bytes, last_write: bool) -> None:
        ready.append(Decoded(lsn, xid, data))

    with Decoder(plugin, options, stream, write, fixed=True, **further) as decoder:
        for lsn, payload in changes:
            decoder.receive(lsn, payload)
            yield from ready
            ready.clear()
