"""debezium: each changed row as the JSON envelope of Debezium's PostgreSQL connector, one per line, without schemas.

It is the value of the connector's record. Its times are the commit's, ts_ms too, which in the connector is the time of
processing: so decoding the same again gives the same. A row whose key changed is a delete and a create, as there.
Tombstones, which are records without a value, are left out.

Source: Debezium documentation, "Debezium connector for PostgreSQL", Data change events, Transaction metadata.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

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
from wal2lake.decoding.plugins.debezium.options import DebeziumOptions
from wal2lake.decoding.plugins.debezium.values import converter, unavailable
from wal2lake.decoding.relation import Relation
from wal2lake.epoch import EPOCH_US
from wal2lake.errors import PluginError
from wal2lake.lsn import LSN

_VERSION: Final = "wal2lake"


class Debezium(OutputPlugin):
    """``_events``: how many events of each table the open transaction had, for the transaction's metadata."""

    def startup_cb(self, ctx: LogicalDecodingContext, opt: OutputPluginOptions, is_init: bool) -> None:
        self._options = DebeziumOptions.read(ctx.output_plugin_options)
        opt.output_type = OutputType.TEXTUAL
        self._events: Counter[str] = Counter()
        self._last_commit = LSN(0)

    def begin_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        self._events.clear()
        self._boundary(ctx, txn, "BEGIN", None, None)

    def commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        counts = [{"data_collection": name, "event_count": count} for name, count in self._events.items()]
        self._boundary(ctx, txn, "END", self._events.total(), counts)
        self._last_commit = commit_lsn

    def change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        shape = relation.output_plugin_private or self._shape(relation)
        old = None if change.oldtuple is None else _object(shape, change.oldtuple)
        new = None if change.newtuple is None else _object(shape, change.newtuple)
        if change.action is ChangeType.INSERT:
            self._event(ctx, txn, relation, change.lsn, "c", None, new)
        elif change.action is ChangeType.DELETE:
            self._event(ctx, txn, relation, change.lsn, "d", old, None)
        elif old is not None and relation.replica_identity != "f":  # the key changed
            self._event(ctx, txn, relation, change.lsn, "d", old, None)
            self._event(ctx, txn, relation, change.lsn, "c", None, new)
        else:
            self._event(ctx, txn, relation, change.lsn, "u", old, new)

    def truncate_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relations: Sequence[Relation], change: TruncateChange
    ) -> None:
        for relation in relations:
            self._event(ctx, txn, relation, change.lsn, "t", None, None)

    def message_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        transactional: bool,
        prefix: str,
        message: bytes,
    ) -> None:
        source = self._source(txn, "", "", message_lsn)
        content = {"prefix": prefix, "content": b64encode(message).decode()}
        _write(ctx, {"op": "m", **_times(txn), "source": source, "message": content})

    def _event(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN,
        relation: Relation,
        lsn: LSN,
        op: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
    ) -> None:
        if op not in self._options.skipped_operations:
            source = self._source(txn, relation.namespace, relation.name, lsn)
            envelope = {"before": before, "after": after, "source": source}
            _write(ctx, {**envelope, "transaction": self._order(txn, relation), "op": op, **_times(txn)})

    def _source(self, txn: ReorderBufferTXN | None, schema: str, table: str, lsn: LSN) -> dict[str, Any]:
        times = _times(txn)
        return {
            "version": _VERSION,
            "connector": "postgresql",
            "name": self._options.topic_prefix,
            "ts_ms": times["ts_ms"],
            "snapshot": "false",
            "db": self._options.database_dbname,
            "sequence": json.dumps([str(int(self._last_commit)) if self._last_commit else None, str(int(lsn))]),
            "ts_us": times["ts_us"],
            "ts_ns": times["ts_ns"],
            "schema": schema,
            "table": table,
            "txId": None if txn is None else txn.xid,
            "lsn": int(lsn),
            "xmin": None,
        }

    def _order(self, txn: ReorderBufferTXN, relation: Relation) -> dict[str, Any] | None:
        if not self._options.provide_transaction_metadata:
            return None
        name = f"{relation.namespace}.{relation.name}"
        self._events[name] += 1
        places = {"total_order": self._events.total(), "data_collection_order": self._events[name]}
        return {"id": _transaction_id(txn), **places}

    def _boundary(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, status: str, count: int | None, counts: Any
    ) -> None:
        if self._options.provide_transaction_metadata:
            event = {"status": status, "id": _transaction_id(txn), "event_count": count, "data_collections": counts}
            _write(ctx, {**event, "ts_ms": _times(txn)["ts_ms"]})

    def _shape(self, relation: Relation) -> list[tuple[str, Callable[[str], Any], Any]]:
        """Per column its name, what makes JSON of its text, and what stands for an unchanged TOAST value."""
        relation.output_plugin_private = shape = [
            (attribute.name, converter(attribute, self._options), unavailable(attribute, self._options))
            for attribute in relation.attributes
        ]
        return shape


def _object(shape: list[tuple[str, Callable[[str], Any], Any]], row: Row) -> dict[str, Any]:
    """By name; of a key all the other columns are null, as the connector has it."""
    values: dict[str, Any] = {}
    for (name, convert, placeholder), value in zip(shape, row, strict=True):
        if isinstance(value, bytes):
            raise PluginError("It reads text, and the stream's values are binary.", hint="Leave out the option binary.")
        values[name] = convert(value) if isinstance(value, str) else placeholder if value is UNCHANGED_TOAST else None
    return values


def _transaction_id(txn: ReorderBufferTXN) -> str:
    return f"{txn.xid}:{int(txn.final_lsn)}"


def _times(txn: ReorderBufferTXN | None) -> dict[str, int | None]:
    """The commit's time since 1970; outside of any transaction there is none."""
    if txn is None:
        return {"ts_ms": None, "ts_us": None, "ts_ns": None}
    micros = txn.commit_time + EPOCH_US
    return {"ts_ms": micros // 1000, "ts_us": micros, "ts_ns": micros * 1000}


def _write(ctx: LogicalDecodingContext, event: dict[str, Any]) -> None:
    OutputPluginPrepareWrite(ctx, True)
    ctx.out.write(json.dumps(event, ensure_ascii=False, separators=(",", ":")))
    OutputPluginWrite(ctx, True)
