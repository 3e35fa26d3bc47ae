"""Calling a plugin: each callback with the labels of what it may write, and every failure as one error.

Source: the callback wrappers in src/backend/replication/logical/logical.c.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wal2lake.decoding.changes import ReorderBufferChange, ReorderBufferTXN, TruncateChange
from wal2lake.decoding.context import LogicalDecodingContext
from wal2lake.decoding.plugin import OutputPlugin, OutputPluginOptions, defines, has_two_phase, streams
from wal2lake.decoding.plugin_errors import INTERRUPTS, describe_error
from wal2lake.decoding.relation import Relation
from wal2lake.errors import ConfigError, PluginError, Wal2LakeError
from wal2lake.lsn import LSN


class PluginCallbacks:
    """One plugin and its context. Raises PluginError with callback and LSN for whatever goes wrong in a callback."""

    def __init__(self, plugin: OutputPlugin, ctx: LogicalDecodingContext) -> None:
        self.ctx = ctx
        self._plugin = plugin
        self._name = type(plugin).__qualname__
        kind = type(plugin)
        self.has_truncate = defines(kind, "truncate_cb")
        self.has_message = defines(kind, "message_cb")
        self.has_stream_truncate = defines(kind, "stream_truncate_cb")
        self.has_stream_message = defines(kind, "stream_message_cb")
        self._filters_origin = defines(kind, "filter_by_origin_cb")
        self._filters_prepare = defines(kind, "filter_prepare_cb")
        self._change_cb = plugin.change_cb
        self._stream_change_cb = plugin.stream_change_cb

    def startup(self, is_init: bool) -> OutputPluginOptions:
        """Have the plugin read its options. What it refuses is raised as it says it."""
        ctx, options = self.ctx, OutputPluginOptions()
        ctx.streaming, ctx.twophase = streams(type(self._plugin)), has_two_phase(type(self._plugin))
        if defines(type(self._plugin), "startup_cb"):
            try:
                self._plugin.startup_cb(ctx, options, is_init)
            except ConfigError:
                raise
            except BaseException as error:
                raise self._failure("startup_cb", error, None) from error
        ctx.output_type = options.output_type
        return options

    def shutdown(self) -> None:
        if defines(type(self._plugin), "shutdown_cb"):
            self._call("shutdown_cb", None, None, writes=False)

    def filtered(self, origin: str | None, lsn: LSN) -> bool:
        """Whether the plugin passes over what came from ``origin``."""
        return self._filters_origin and bool(self._call("filter_by_origin_cb", None, lsn, origin, writes=False))

    def filters_prepare(self, xid: int, gid: str, lsn: LSN) -> bool:
        """Whether the prepared transaction is decoded at COMMIT PREPARED."""
        if not self.ctx.twophase:
            return True
        return self._filters_prepare and bool(self._call("filter_prepare_cb", None, lsn, xid, gid, writes=False))

    def change(self, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange) -> None:
        """change_cb; as _call, spelled out, because every row comes through here."""
        ctx = self.ctx
        ctx.accept_writes = True
        ctx.write_xid = txn.xid
        ctx.write_location = change.lsn
        try:
            self._change_cb(ctx, txn, relation, change)
        except BaseException as error:
            raise self._failure("change_cb", error, change.lsn, relation) from error
        if ctx.prepared_write:
            raise self._unwritten("change_cb", relation)
        ctx.accept_writes = False

    def stream_change(self, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange) -> None:
        self._call("stream_change_cb", txn, change.lsn, txn, relation, change, relation=relation)

    def truncate(
        self, txn: ReorderBufferTXN, relations: Sequence[Relation], change: TruncateChange, *, stream: bool = False
    ) -> None:
        """truncate_cb or stream_truncate_cb, where the plugin has it."""
        if self.has_stream_truncate if stream else self.has_truncate:
            self._call(
                "stream_truncate_cb" if stream else "truncate_cb", txn, change.lsn, txn, tuple(relations), change
            )

    def message(
        self, txn: ReorderBufferTXN | None, lsn: LSN, prefix: str, content: bytes, *, stream: bool = False
    ) -> None:
        """message_cb or stream_message_cb, where the plugin has it."""
        if self.has_stream_message if stream else self.has_message:
            callback = "stream_message_cb" if stream else "message_cb"
            self._call(callback, txn, lsn, txn, lsn, txn is not None, prefix, content)

    def transaction(self, callback: str, txn: ReorderBufferTXN, location: LSN, *arguments: Any) -> None:
        """Any callback that takes (ctx, txn, …); what it writes is labelled with ``location``."""
        self._call(callback, txn, location, txn, *arguments)

    def _call(
        self,
        callback: str,
        txn: ReorderBufferTXN | None,
        location: LSN | None,
        *arguments: Any,
        writes: bool = True,
        relation: Relation | None = None,
    ) -> Any:
        ctx = self.ctx
        ctx.accept_writes = writes
        ctx.write_location = location or LSN(0)
        ctx.write_xid = 0 if txn is None else txn.xid
        function: Callable[..., Any] = getattr(self._plugin, callback)
        try:
            result = function(ctx, *arguments)
        except BaseException as error:
            raise self._failure(callback, error, location, relation) from error
        if ctx.prepared_write:
            raise self._unwritten(callback, relation)
        ctx.accept_writes = False
        return result

    def _failure(
        self, callback: str, error: BaseException, lsn: LSN | None, relation: Relation | None = None
    ) -> Wal2LakeError:
        """What waiting mends (the catalog's server is away) is not the plugin's failure; nor are Ctrl-C and what keeps
        its output from being taken (a full disk, a reader who has enough), which are raised here as they came."""
        self.ctx.close_output()  # or the next callback, shutdown_cb, would be blamed for the write that was broken off
        if isinstance(error, INTERRUPTS) or error is self.ctx.output_failure:
            raise error
        if isinstance(error, Wal2LakeError) and error.transient:
            return error
        what = describe_error(error, type(self._plugin).__module__)
        return PluginError(
            f"The output plugin {self._name} failed in {callback}: {what}",
            hint="Nothing from here on was acknowledged: mend the plugin and start again."
            if callback != "shutdown_cb"
            else "It was to say goodbye: what it wrote before stands.",
            relation=None if relation is None else str(relation),
            lsn=lsn,
        )

    def _unwritten(self, callback: str, relation: Relation | None) -> Wal2LakeError:
        error = PluginError("It prepared a write and did not write it.")
        return self._failure(callback, error, self.ctx.write_location, relation)
