"""The context every callback is given: options, the output, and what may be asked of the server.

What goes out goes out by three steps, as in C: OutputPluginPrepareWrite, one or more ``ctx.out.write``,
OutputPluginWrite. Each is refused where it has no place, so a piece is either written whole or not at all.

Source: src/include/replication/logical.h; src/backend/replication/logical/logical.c.
"""

# ruff: noqa: SLF001 - the functions below are the context's own, under the names that PostgreSQL gives them
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from wal2lake.arguments import as_options
from wal2lake.decoding.plugin import OutputType
from wal2lake.decoding.types import TypeNames, TypeRow
from wal2lake.errors import ConfigError, PluginError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Relation, Type
from wal2lake.pgoutput.options import PgoutputOptions

PluginOptions = Mapping[str, str | None] | Sequence[tuple[str, str | None]]
Writer = Callable[[LSN, int, "str | bytes", bool], None]  # write_location, xid, data, last_write


class Catalog(Protocol):
    """Read access to the server's catalog as it is now, which may not be as it was when a change was made."""

    def scan(self, relation: str, keys: Mapping[str, object]) -> list[dict[str, Any]]:
        """The rows of a system catalog or a user catalog table (``schema.table``; user_catalog_table = true) whose
        columns equal ``keys``. Any other relation is refused with PluginError; nothing is ever written."""

    def type_names(self, type_oid: int) -> TypeRow | None:
        """A type's names; None when there is none any more."""

    def column_defaults(self, relation_id: int) -> dict[int, str]:
        """The DEFAULT expressions of a relation's columns by attnum, as pg_get_expr prints them; generated columns have
        none."""


class StringInfo:
    """``ctx.out``: what is written between prepare and write becomes one piece of output."""

    __slots__ = ("parts", "write")

    def __init__(self) -> None:
        self.parts: list[str | bytes] = []
        self.write: Callable[[str | bytes], None] = self.parts.append


class _Closed(StringInfo):
    """Stands in for the output wherever nothing may be written."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.write = self._refuse

    def _refuse(self, data: str | bytes) -> None:
        raise PluginError("It writes to ctx.out outside of OutputPluginPrepareWrite and OutputPluginWrite.")


_CLOSED: Final = _Closed()


class LogicalDecodingContext:
    """One decoding session.

    ``output_plugin_options``: name and value in the order given; a name without a value has None. ``streaming``
    and ``twophase``: whether the callbacks of that family are called. ``stream``: how pgoutput was asked.
    ``encoding``: of all text. ``types``: their names, as far as they are known here.
    ``announcements``: a plugin that passes Relation and Type messages on sets this to an empty list in
    startup_cb, and they gather there as they come, but for Relation messages of chunks that are held.
    ``server_version``: server_version_num of the server whose stream it is, None: unknown. ``write_location`` and
    ``write_xid``: what the next piece of output is labelled with. ``output_plugin_private`` is the plugin's.
    """

    __slots__ = (
        "_catalog",
        "_open",
        "_write",
        "accept_writes",
        "announcements",
        "encoding",
        "out",
        "output_failure",
        "output_plugin_options",
        "output_plugin_private",
        "output_type",
        "prepared_write",
        "progress_lsn",
        "server_version",
        "stream",
        "streaming",
        "twophase",
        "types",
        "write_location",
        "write_xid",
    )

    def __init__(
        self, options: PluginOptions, stream: PgoutputOptions, write: Writer, catalog: Catalog | None = None
    ) -> None:
        self.output_plugin_options = list(as_options(options, "options"))
        self.stream = stream
        self.output_plugin_private: Any = None
        self.output_type = OutputType.BINARY
        self.encoding = "UTF8"
        self.server_version: int | None = None
        self.streaming = self.twophase = False
        self.announcements: list[Relation | Type] | None = None
        self.types = TypeNames({}, catalog)
        self.out: StringInfo = _CLOSED
        self.accept_writes = self.prepared_write = False
        self.write_location = self.progress_lsn = LSN(0)
        self.write_xid = 0
        self.output_failure: Exception | None = None
        self._catalog = catalog
        self._open = StringInfo()
        self._write = write

    def close_output(self) -> None:
        """Forget a write that was begun: the callback that began it is over."""
        self._open.parts.clear()
        self.out = _CLOSED
        self.accept_writes = self.prepared_write = False

    @property
    def has_catalog(self) -> bool:
        """Whether there is a server to ask: not where a change log is decoded."""
        return self._catalog is not None

    @property
    def catalog(self) -> Catalog:
        """Read access to the server's catalog; raises ConfigError where there is no server to ask."""
        if self._catalog is None:
            raise ConfigError(
                "The output plugin asks for the catalog, and there is no server here to ask.",
                hint="Decode from the server's slot, or have the plugin look at ctx.has_catalog.",
            )
        return self._catalog


def OutputPluginPrepareWrite(ctx: LogicalDecodingContext, last_write: bool) -> None:
    """Open ``ctx.out``, empty. ``last_write``: no further piece follows in this callback."""
    if not ctx.accept_writes:
        raise PluginError("It writes from a callback in which nothing may be written.")
    if ctx.prepared_write or ctx._open.parts:
        raise PluginError("It prepares a write before it has written the last one.")
    ctx.out = ctx._open
    ctx.prepared_write = True


def OutputPluginWrite(ctx: LogicalDecodingContext, last_write: bool) -> None:
    """Write what is in ``ctx.out`` as one piece. Text must be valid in the encoding and hold no zero byte."""
    if not ctx.prepared_write:
        raise PluginError("OutputPluginWrite came without OutputPluginPrepareWrite.")
    parts = ctx._open.parts
    if ctx.output_type is OutputType.TEXTUAL:
        data: str | bytes = _text(parts)
    else:
        data = b"".join([part.encode() if isinstance(part, str) else part for part in parts])
    parts.clear()
    ctx.out = _CLOSED
    ctx.prepared_write = False
    try:
        ctx._write(ctx.write_location, ctx.write_xid, data, last_write)
    except Exception as error:
        ctx.output_failure = error
        raise


def OutputPluginUpdateProgress(ctx: LogicalDecodingContext, skipped_xact: bool) -> None:
    """Tell that decoding goes on although nothing is written; ``skipped_xact``: a whole transaction was passed over."""
    ctx.progress_lsn = max(ctx.progress_lsn, ctx.write_location)


def _text(parts: list[str | bytes]) -> str:
    try:
        try:
            data = "".join(parts)  # type: ignore[arg-type]
        except TypeError:
            data = "".join([part if isinstance(part, str) else part.decode() for part in parts])
        if not data.isascii():
            data.encode()
    except UnicodeError:
        raise PluginError("Its output is textual, and what it wrote is not valid UTF-8.") from None
    if "\0" in data:
        raise PluginError("Its output is textual, and what it wrote has a zero byte in it.")
    return data
