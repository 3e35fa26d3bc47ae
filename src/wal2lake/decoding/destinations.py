"""Where the changes of an open transaction go: to the plugin, into the buffer, or nowhere."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol

from wal2lake.decoding.callbacks import PluginCallbacks
from wal2lake.decoding.changes import ReorderBufferTXN, TruncateChange
from wal2lake.decoding.relation import Relation
from wal2lake.decoding.reorderbuffer import ReorderBuffer
from wal2lake.decoding.rows import read_change
from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import TRUNCATE_CASCADE, TRUNCATE_RESTART_IDENTITY, Message, Truncate


class Destination(Protocol):
    """Takes what pgoutput sends inside a transaction. ``payload`` is without the xid of a chunk."""

    def row(self, lsn: LSN, xid: int, payload: bytes, relation: Relation) -> None: ...

    def truncate(self, lsn: LSN, xid: int, payload: bytes, relations: Sequence[Relation]) -> None: ...

    def message(self, lsn: LSN, xid: int, payload: bytes) -> None: ...


class Discard:
    """What the plugin filters by origin, or had before the connection was lost."""

    def row(self, lsn: LSN, xid: int, payload: bytes, relation: Relation) -> None:
        pass

    def truncate(self, lsn: LSN, xid: int, payload: bytes, relations: Sequence[Relation]) -> None:
        pass

    def message(self, lsn: LSN, xid: int, payload: bytes) -> None:
        pass


class ToPlugin:
    """``stream``: by the callbacks for transactions in progress."""

    def __init__(self, calls: PluginCallbacks, txn: ReorderBufferTXN, *, stream: bool = False) -> None:
        self._callbacks = calls
        self._txn = txn
        self._stream = stream
        self._change = calls.stream_change if stream else calls.change

    def row(self, lsn: LSN, xid: int, payload: bytes, relation: Relation) -> None:
        self._change(self._txn, relation, read_change(relation, lsn, xid, payload))

    def truncate(self, lsn: LSN, xid: int, payload: bytes, relations: Sequence[Relation]) -> None:
        message = read_message(payload)
        assert isinstance(message, Truncate)
        change = TruncateChange(
            lsn,
            xid,
            cascade=bool(message.options & TRUNCATE_CASCADE),
            restart_seqs=bool(message.options & TRUNCATE_RESTART_IDENTITY),
        )
        self._callbacks.truncate(self._txn, relations, change, stream=self._stream)

    def message(self, lsn: LSN, xid: int, payload: bytes) -> None:
        message = read_message(payload)
        assert isinstance(message, Message)
        self._callbacks.message(self._txn, message.lsn, message.prefix, message.content, stream=self._stream)


class ToBuffer:
    """Holds what comes under the transaction's xid; ``replay`` sends it on to another destination."""

    def __init__(self, buffer: ReorderBuffer, xid: int) -> None:
        self._buffer = buffer
        self._xid = xid

    def row(self, lsn: LSN, xid: int, payload: bytes, relation: Relation) -> None:
        self._buffer.append(self._xid, lsn, xid, relation.version, payload)

    def truncate(self, lsn: LSN, xid: int, payload: bytes, relations: Sequence[Relation]) -> None:
        versions = struct.pack(f">{len(relations)}I", *[relation.version for relation in relations])
        self._buffer.append(self._xid, lsn, xid, len(relations), payload + versions)

    def message(self, lsn: LSN, xid: int, payload: bytes) -> None:
        self._buffer.append(self._xid, lsn, xid, 0, payload)


def replay(buffer: ReorderBuffer, xid: int, versions: Sequence[Relation], destination: Destination) -> None:
    """Send what is held of ``xid`` on its ``destination``."""
    for lsn, subxid, version, payload in buffer.replay(xid):
        tag = payload[:1]
        if tag == Truncate.tag:
            end = len(payload) - 4 * version
            named = [versions[place] for place in struct.unpack_from(f">{version}I", payload, end)]
            destination.truncate(lsn, subxid, payload[:end], named)
        elif tag == Message.tag:
            destination.message(lsn, subxid, payload)
        else:
            destination.row(lsn, subxid, payload, versions[version])
