"""What recv writes: the plugin's bytes as they are, or one JSON object per message.

JSON keeps apart what TupleData keeps apart: NULL is null, a value of text or binary format is a string (binary: \\x
and hex), an unchanged TOAST value is missing from the row and named in ``unchanged``. Outside the key, the columns of
a key-only old tuple are left out: they were not sent. docs/live.md lists the keys.

Source: PostgreSQL documentation, "pg_recvlogical"; "Logical Replication Message Formats".
"""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN
from wal2lake.names import qualified
from wal2lake.pgoutput.messages import COLUMN_IS_KEY, Delete, Insert, PgoutputMessage, Relation, Truncate, Update
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession
from wal2lake.pgoutput.tuples import OldTuple, TupleColumn, TupleData
from wal2lake.postgres.files import writing
from wal2lake.wire.replication import XLogData

STDOUT = "-"
_EPOCH = datetime(2000, 1, 1)  # in UTC, as all of the protocol's times


class RawOutput:
    """Each message's bytes and a newline, appended to ``path`` ('-': standard output), as pg_recvlogical does."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._file = _open(path)
        self._syncable = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        self._synced = True

    @property
    def hold_lsn(self) -> LSN | None:
        """Every message is written as it comes."""
        return None

    def begin_stream(self) -> None:
        """Nothing is remembered between messages."""

    def write(self, message: XLogData) -> None:
        self._append(message.payload + b"\n")

    def _append(self, line: bytes) -> None:
        with writing(self._path):
            self._file.write(line)
        self._synced = False

    def flush(self) -> None:
        with writing(self._path):
            self._file.flush()

    def sync(self) -> None:
        with writing(self._path):
            self._file.flush()
            if self._syncable and not self._synced:
                os.fsync(self._file.fileno())
        self._synced = True

    def close(self) -> None:
        """Sync and close."""
        try:
            self.sync()
        finally:
            if self._file is not sys.stdout.buffer:
                with writing(self._path):
                    self._file.close()


class JsonLinesOutput(RawOutput):
    """One JSON object per line. ``options`` None: the plugin writes text, which goes into ``data``."""

    def __init__(self, path: str | Path, options: PgoutputOptions | None) -> None:
        super().__init__(path)
        self._options = options
        self.begin_stream()

    def begin_stream(self) -> None:
        self._session = None if self._options is None else PgoutputSession(self._options)

    def write(self, message: XLogData) -> None:
        lsn = LSN(message.start_lsn)
        if self._session is None:
            line: dict[str, Any] = {"lsn": str(lsn), "data": message.payload.decode("utf-8", "backslashreplace")}
        else:
            received = self._session.receive(message.payload, lsn)
            if received.of_nothing:
                return
            line = {"lsn": str(lsn), "xid": received.xid, **to_json(received.message, self._session.relations)}
        self._append(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def to_json(message: PgoutputMessage, relations: dict[int, Relation]) -> dict[str, Any]:
    """A pgoutput message in JSON's types; rows by column name. ``relations``: those announced so far."""
    named = {"message": type(message).__name__}
    match message:
        case Insert() | Update() | Delete():
            relation = relations[message.relation_id]
            named["relation"] = _name(relation)
            return {**named, **_old(message, relation), **_new(message, relation)}
        case Truncate():
            names = [_name(relations[i]) for i in message.relation_ids]
            return {**named, "relations": names, "options": message.options}
    return {**named, **_fields(message)}


def _name(relation: Relation) -> str:
    return qualified(relation.namespace or "pg_catalog", relation.name)


def _old(message: Insert | Update | Delete, relation: Relation) -> dict[str, Any]:
    old: OldTuple | None = None if isinstance(message, Insert) else message.old
    if old is None:
        return {}
    whole = old.kind == "O"
    pairs = zip(relation.columns, old.columns, strict=True)
    return {
        "old" if whole else "key": {c.name: _value(v) for c, v in pairs if whole or c.flags & COLUMN_IS_KEY},
    }


def _new(message: Insert | Update | Delete, relation: Relation) -> dict[str, Any]:
    if isinstance(message, Delete):
        return {}
    new: TupleData = message.new
    pairs = list(zip(relation.columns, new.columns, strict=True))
    unchanged = [column.name for column, value in pairs if value.kind == "u"]
    row = {column.name: _value(value) for column, value in pairs if value.kind != "u"}
    return {"new": row, **({"unchanged": unchanged} if unchanged else {})}


def _value(value: TupleColumn) -> str | None:
    if value.data is None:
        return None
    return value.data.decode() if value.kind == "t" else "\\x" + value.data.hex()


def _plain(value: Any) -> Any:
    match value:
        case LSN():
            return str(value)
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case tuple():
            return [_plain(item) for item in value]
        case _ if hasattr(value, "__dataclass_fields__"):
            return _fields(value)
    return value


def _fields(value: Any) -> dict[str, Any]:
    """By name, as the documentation has it; what ends in _ts is a time."""
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: _time(item) if name.endswith("_ts") else _plain(item) for name, item in values.items()}


def _time(micros: int) -> str:
    """ISO 8601 in UTC, always of the same width."""
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise ProtocolError(f"A time of {micros} µs since 2000 lies beyond the year 9999.") from None
    return moment.isoformat(timespec="microseconds") + "Z"


def _open(path: str | Path) -> BinaryIO:
    if str(path) == STDOUT:
        return sys.stdout.buffer
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(descriptor, "wb")
