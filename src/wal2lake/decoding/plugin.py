"""The contract of an output plugin: PostgreSQL's callbacks by their own names, and which of them belong together.

A plugin is a subclass of OutputPlugin; a callback is given exactly when the subclass (or a base of its own) defines it.
A callback gets what PostgreSQL's gets, in its order. Instances live as long as one decoding session: from startup_cb to
shutdown_cb, over lost connections; state of the plugin's own may be kept on ``self`` or in
``ctx.output_plugin_private``, state of a transaction in ``txn.output_plugin_private``.

Source: PostgreSQL documentation, "Logical Decoding Output Plugins"; src/include/replication/output_plugin.h; which
callbacks are required: LoadOutputPlugin and the wrappers in src/backend/replication/logical/logical.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from inspect import getattr_static, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from typing import TYPE_CHECKING, ClassVar, Final

from wal2lake.errors import PluginError
from wal2lake.lsn import LSN

if TYPE_CHECKING:
    from wal2lake.decoding.changes import ReorderBufferChange, ReorderBufferTXN, TruncateChange
    from wal2lake.decoding.context import LogicalDecodingContext
    from wal2lake.decoding.relation import Relation


class OutputType(Enum):
    """OutputPluginOutputType: what a plugin writes is text, or any bytes."""

    TEXTUAL = "textual"
    BINARY = "binary"


@dataclass(slots=True)
class OutputPluginOptions:
    """What startup_cb may set. ``receive_rewrites`` is accepted and has no effect: pgoutput never carries rewrites.

    ``needs_end_lsn``: begin_cb must know where the transaction's commit record ends, as it does in the server. The
    stream tells only at the commit, so every transaction is then held until it is whole.
    """

    output_type: OutputType = OutputType.BINARY
    receive_rewrites: bool = False
    needs_end_lsn: bool = False


class OutputPlugin:
    """Subclass this and define begin_cb, change_cb and commit_cb at least.

    ``wants_messages``: whether pgoutput is asked for what pg_logical_emit_message wrote; None: exactly when message_cb
    or stream_message_cb is defined.
    """

    wants_messages: ClassVar[bool | None] = None

    # -- always

    def startup_cb(self, ctx: LogicalDecodingContext, opt: OutputPluginOptions, is_init: bool) -> None:
        """Once, before anything else: read ``ctx.output_plugin_options``, set ``opt``.

        ``is_init``: this very command makes the slot. An option that is wrong is refused here, by ConfigError.
        ``ctx.streaming`` and ``ctx.twophase`` may be set to False to do without.
        """
        raise NotImplementedError

    def begin_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        """A committed transaction begins. Required."""
        raise NotImplementedError

    def change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        """One row was inserted, updated or deleted. Required."""
        raise NotImplementedError

    def truncate_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN,
        relations: Sequence[Relation],
        change: TruncateChange,
    ) -> None:
        """Tables were emptied, several at once perhaps. Without it TRUNCATE is passed over."""
        raise NotImplementedError

    def commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        """The transaction is whole; its commit record begins at ``commit_lsn``. Required."""
        raise NotImplementedError

    def message_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        transactional: bool,
        prefix: str,
        message: bytes,
    ) -> None:
        """What pg_logical_emit_message wrote; ``txn`` is None unless ``transactional``."""
        raise NotImplementedError

    def filter_by_origin_cb(self, ctx: LogicalDecodingContext, origin_id: str | None) -> bool:
        """True passes over what came from this origin. PostgreSQL gives its number; pgoutput carries the name, and None
        stands for InvalidRepOriginId: what this server's own sessions did."""
        raise NotImplementedError

    def shutdown_cb(self, ctx: LogicalDecodingContext) -> None:
        """Once, at the end, after an error too; nothing may be written here."""
        raise NotImplementedError

    # -- two-phase commit: begin_prepare, prepare, commit_prepared and rollback_prepared belong together

    def filter_prepare_cb(self, ctx: LogicalDecodingContext, xid: int, gid: str) -> bool:
        """True decodes this one at COMMIT PREPARED, as if it had one phase. The answer for an xid and gid must always
        be the same. Two-phase slots only."""
        raise NotImplementedError

    def begin_prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        """A prepared transaction begins."""
        raise NotImplementedError

    def prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_lsn: LSN) -> None:
        """PREPARE TRANSACTION: whole, neither committed nor rolled back. Also called for one that was rolled back while
        it was decoded, whose changes then are not all here."""
        raise NotImplementedError

    def commit_prepared_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        """COMMIT PREPARED of ``txn.gid``, whose changes came before, perhaps in another session."""
        raise NotImplementedError

    def rollback_prepared_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_end_lsn: LSN, prepare_time: int
    ) -> None:
        """ROLLBACK PREPARED of ``txn.gid``; ``prepare_end_lsn`` and ``prepare_time`` (µs since 2000-01-01 UTC) tell
        which one of that name, if it was ever received."""
        raise NotImplementedError

    # -- streaming of transactions in progress: start, stop, abort, commit and change belong together

    def stream_start_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        """A chunk of a transaction in progress begins."""
        raise NotImplementedError

    def stream_stop_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        """The chunk ends; another transaction's may follow."""
        raise NotImplementedError

    def stream_abort_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, abort_lsn: LSN) -> None:
        """Forget what was streamed of ``txn``, which is a subtransaction when ``txn.toptxn`` is not None.
        ``abort_lsn`` is 0/0 unless the stream's option streaming is parallel."""
        raise NotImplementedError

    def stream_prepare_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, prepare_lsn: LSN) -> None:
        """PREPARE TRANSACTION of a streamed transaction. Required for streaming with two-phase commit."""
        raise NotImplementedError

    def stream_commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        """The streamed transaction is whole."""
        raise NotImplementedError

    def stream_change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        """As change_cb, of a transaction in progress; ``change.xid`` is the subtransaction that may yet be aborted."""
        raise NotImplementedError

    def stream_message_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        transactional: bool,
        prefix: str,
        message: bytes,
    ) -> None:
        """As message_cb, inside a chunk. Without it such messages are passed over."""
        raise NotImplementedError

    def stream_truncate_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN,
        relations: Sequence[Relation],
        change: TruncateChange,
    ) -> None:
        """As truncate_cb, inside a chunk. Without it TRUNCATE is passed over there."""
        raise NotImplementedError


REQUIRED: Final = ("begin_cb", "change_cb", "commit_cb")
STREAMING_REQUIRED: Final = (
    "stream_start_cb", "stream_stop_cb", "stream_abort_cb", "stream_commit_cb", "stream_change_cb",
)  # fmt: skip
TWO_PHASE_REQUIRED: Final = ("begin_prepare_cb", "prepare_cb", "commit_prepared_cb", "rollback_prepared_cb")
_STREAMING: Final = (*STREAMING_REQUIRED, "stream_message_cb", "stream_truncate_cb")
_TWO_PHASE: Final = (*TWO_PHASE_REQUIRED, "stream_prepare_cb", "filter_prepare_cb")


_CALLBACKS: Final = tuple(name for name in vars(OutputPlugin) if name.endswith("_cb"))


def defines(plugin: type[OutputPlugin], callback: str) -> bool:
    """Whether the plugin has this callback."""
    return getattr(plugin, callback) is not getattr(OutputPlugin, callback)


def streams(plugin: type[OutputPlugin]) -> bool:
    """Whether any streaming callback is there, so that all that are required must be."""
    return any(defines(plugin, name) for name in _STREAMING)


def has_two_phase(plugin: type[OutputPlugin]) -> bool:
    """Whether any callback of two-phase commit is there, so that all that are required must be."""
    return any(defines(plugin, name) for name in _TWO_PHASE)


def check_callbacks(plugin: type[OutputPlugin]) -> None:
    """Raise PluginError for the callbacks that are missing beside those that are there, and for those that cannot be
    called as PostgreSQL calls them."""
    for name in _CALLBACKS:
        if defines(plugin, name):
            _require_arguments(plugin, name)
    _require(plugin, REQUIRED, "Every output plugin")
    if streams(plugin):
        _require(plugin, STREAMING_REQUIRED, "An output plugin that streams")
    if has_two_phase(plugin):
        _require(plugin, TWO_PHASE_REQUIRED, "An output plugin with two-phase commit")
    if streams(plugin) and has_two_phase(plugin):
        _require(plugin, ("stream_prepare_cb",), "An output plugin that streams and has two-phase commit")


def _require_arguments(plugin: type[OutputPlugin], name: str) -> None:
    wanted = list(signature(getattr(OutputPlugin, name)).parameters)
    callback, bound = getattr(plugin, name), isinstance(getattr_static(plugin, name), staticmethod | classmethod)
    try:
        signature(callback).bind(*(wanted[1:] if bound else wanted))
        if any(kind(callback) for kind in (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)):
            raise TypeError("a call of it runs nothing")
    except TypeError:
        code = getattr(callback, "__code__", None)
        place = "" if code is None else f" at {code.co_filename.rpartition('/')[2]}, line {code.co_firstlineno}"
        raise PluginError(
            f"The output plugin {plugin.__qualname__} has a {name}{place} that cannot be called as it will be.",
            hint=f"It is called as {name}({', '.join(wanted)}), and does its work in the call: no async, no yield.",
        ) from None
    except ValueError:  # a callable that does not tell
        return


def _require(plugin: type[OutputPlugin], callbacks: Sequence[str], who: str) -> None:
    missing = [name for name in callbacks if not defines(plugin, name)]
    if missing:
        raise PluginError(
            f"The output plugin {plugin.__qualname__} does not define {', '.join(missing)}.",
            hint=f"{who} must register {', '.join(callbacks)}.",
        )
