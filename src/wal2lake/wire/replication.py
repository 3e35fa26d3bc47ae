"""What travels in CopyData while a walsender streams: four messages, two from each side.

Every function takes or gives the whole payload of one CopyData, tag byte included.

Source: PostgreSQL documentation, "Streaming Replication Protocol", START_REPLICATION.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, TypeVar

from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN
from wal2lake.wire.fields import (
    Epoch,
    Flag,
    Layout,
    Reader,
    RestOfMessage,
    TimestampTz,
    TransactionId,
    XLogRecPtr,
)


@dataclass(frozen=True, slots=True)
class XLogData:
    """A piece of WAL, or one message of the output plugin; server to client.

    ``start_lsn``: where the WAL data starts; ``end_lsn``: the server's current end of WAL; ``send_time``: µs since
    2000-01-01 UTC. In a logical stream both LSNs are the change's own, or 0/0 for all but the last write of a callback:
    a Relation, a Type, a Begin that an Origin follows. 0/0 is no position.
    """

    tag: ClassVar[bytes] = b"w"
    start_lsn: XLogRecPtr
    end_lsn: XLogRecPtr
    send_time: TimestampTz
    payload: RestOfMessage


@dataclass(frozen=True, slots=True)
class PrimaryKeepalive:
    """The server is alive and its WAL ends at ``wal_end``; answer at once if ``reply_requested``."""

    tag: ClassVar[bytes] = b"k"
    wal_end: XLogRecPtr
    send_time: TimestampTz
    reply_requested: Flag


@dataclass(frozen=True, slots=True)
class StandbyStatusUpdate:
    """What the client has written, flushed and applied; only ``flushed`` moves a slot's confirmed_flush_lsn.

    Each is the position of the last byte + 1; 0/0 means unknown and moves nothing.
    """

    tag: ClassVar[bytes] = b"r"
    written: XLogRecPtr
    flushed: XLogRecPtr
    applied: XLogRecPtr
    send_time: TimestampTz
    reply_requested: Flag


@dataclass(frozen=True, slots=True)
class HotStandbyFeedback:
    """The oldest transactions that a standby still needs, each with its epoch; xmin 0 ends the feedback."""

    tag: ClassVar[bytes] = b"h"
    send_time: TimestampTz
    xmin: TransactionId
    xmin_epoch: Epoch
    catalog_xmin: TransactionId
    catalog_xmin_epoch: Epoch


ServerMessage = XLogData | PrimaryKeepalive
ClientMessage = StandbyStatusUpdate | HotStandbyFeedback
LAYOUTS: dict[type[Any], Layout[Any]] = {
    cls: Layout(cls) for cls in (XLogData, PrimaryKeepalive, StandbyStatusUpdate, HotStandbyFeedback)
}
_XLOG_DATA = struct.Struct(">cQQq")
XLOG_DATA_HEADER: Final = _XLOG_DATA.size  # bytes before the payload: tag, start, end, send time
_XLOG_DATA_TAG = XLogData.tag[0]
_set_start_lsn, _set_end_lsn, _set_send_time, _set_payload = (
    getattr(XLogData, field.name).__set__ for field in fields(XLogData)
)
M = TypeVar("M", XLogData, PrimaryKeepalive, StandbyStatusUpdate, HotStandbyFeedback)


def _read(cls: type[M], payload: bytes | memoryview) -> M:
    if bytes(payload[:1]) != cls.tag:
        raise ProtocolError(f"{cls.__name__} begins with {cls.tag!r}, not {bytes(payload[:1])!r}.", offset=0)
    reader = Reader(payload, 1)
    message: M = LAYOUTS[cls].read(reader)
    reader.end()
    return message


def _write(message: ServerMessage | ClientMessage) -> bytes:
    out = bytearray(message.tag)
    LAYOUTS[type(message)].write(out, message)
    return bytes(out)


def read_xlog_data(payload: bytes | memoryview) -> XLogData:
    """One message in a million of them: the fixed header at once, and the fields as a frozen class's own constructor
    sets them, without its detours: seven times as fast as field by field."""
    if len(payload) < _XLOG_DATA.size or payload[0] != _XLOG_DATA_TAG:
        return _read(XLogData, payload)  # which says what is wrong
    _, start_lsn, end_lsn, send_time = _XLOG_DATA.unpack_from(payload)
    message = object.__new__(XLogData)
    # 64 unsigned bits are an LSN: the check of LSN() is left out
    _set_start_lsn(message, int.__new__(LSN, start_lsn))
    _set_end_lsn(message, int.__new__(LSN, end_lsn))
    _set_send_time(message, send_time)
    _set_payload(message, bytes(payload[_XLOG_DATA.size :]))
    return message


def write_xlog_data(message: XLogData) -> bytes:
    return _write(message)


def read_primary_keepalive(payload: bytes | memoryview) -> PrimaryKeepalive:
    return _read(PrimaryKeepalive, payload)


def write_primary_keepalive(message: PrimaryKeepalive) -> bytes:
    return _write(message)


def read_standby_status_update(payload: bytes | memoryview) -> StandbyStatusUpdate:
    return _read(StandbyStatusUpdate, payload)


def write_standby_status_update(message: StandbyStatusUpdate) -> bytes:
    return _write(message)


def read_hot_standby_feedback(payload: bytes | memoryview) -> HotStandbyFeedback:
    return _read(HotStandbyFeedback, payload)


def write_hot_standby_feedback(message: HotStandbyFeedback) -> bytes:
    return _write(message)


def read_from_server(payload: bytes | memoryview) -> ServerMessage:
    """The client's side of the stream; raise ProtocolError for what no walsender sends."""
    return _read(PrimaryKeepalive, payload) if payload[:1] == b"k" else read_xlog_data(payload)


def read_from_client(payload: bytes | memoryview) -> ClientMessage:
    """The walsender's side of the stream; raise ProtocolError for what no client sends."""
    return _read(HotStandbyFeedback, payload) if payload[:1] == b"h" else _read(StandbyStatusUpdate, payload)
