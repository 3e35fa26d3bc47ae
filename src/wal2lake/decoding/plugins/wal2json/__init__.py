"""wal2json: its two formats, options and filters, line for line as the C plugin of version 2.5 writes them.

Source: github.com/eulerto/wal2json, README and wal2json.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wal2lake.decoding.changes import ReorderBufferChange, ReorderBufferTXN, TruncateChange
from wal2lake.decoding.context import LogicalDecodingContext
from wal2lake.decoding.plugin import OutputPlugin, OutputPluginOptions, OutputType
from wal2lake.decoding.plugins.wal2json.options import Wal2JsonOptions
from wal2lake.decoding.plugins.wal2json.v1 import FormatV1
from wal2lake.decoding.plugins.wal2json.v2 import FormatV2
from wal2lake.decoding.plugins.wal2json.values import shape_of
from wal2lake.decoding.relation import Relation
from wal2lake.errors import ConfigError
from wal2lake.lsn import LSN

_ACTIONS: Final = {"I": "insert", "U": "update", "D": "delete"}
_FROM_CATALOG: Final = (
    "include_column_positions",
    "include_not_null",
    "include_default",
    "include_domain_data_type",
    "include_origin",
    "filter_origins",
)


class Wal2Json(OutputPlugin):
    """JSON per transaction (format-version 1) or per row (2)."""

    def startup_cb(self, ctx: LogicalDecodingContext, opt: OutputPluginOptions, is_init: bool) -> None:
        options = Wal2JsonOptions.read(ctx.output_plugin_options)
        for name in _FROM_CATALOG:
            if getattr(options, name) and not ctx.has_catalog:
                raise ConfigError(
                    f"wal2json's {name.replace('_', '-')} prints what only the server's catalog knows, and there is no"
                    " server here.",
                    hint="Leave the option out, or decode from the server's slot.",
                )
        opt.output_type = OutputType.TEXTUAL
        opt.needs_end_lsn = options.include_lsn
        self._options = options
        self._format: FormatV1 | FormatV2 = FormatV2(options) if options.format_version == 2 else FormatV1(options)
        self._origins: dict[str | None, int] = {None: 0}

    def begin_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        self._format.begin(ctx, txn, self._origin(ctx, txn))

    def commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        self._format.commit(ctx, txn, commit_lsn, self._origin(ctx, txn))

    def change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        shape = shape_of(ctx, self._options, relation)
        if shape.selected and _ACTIONS[change.action.value] in self._options.actions:
            self._format.change(ctx, txn, relation, shape, change, self._origin(ctx, txn))

    def truncate_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relations: Sequence[Relation], change: TruncateChange
    ) -> None:
        if "truncate" in self._options.actions:
            shapes = [shape_of(ctx, self._options, relation) for relation in relations]
            selected = [shape for shape in shapes if shape.selected]
            self._format.truncate(ctx, txn, selected, change.lsn, self._origin(ctx, txn))

    def message_cb(
        self,
        ctx: LogicalDecodingContext,
        txn: ReorderBufferTXN | None,
        message_lsn: LSN,
        transactional: bool,
        prefix: str,
        message: bytes,
    ) -> None:
        """wal2json prints the content as a C string: it ends at a zero byte."""
        if self._options.selects_message(prefix):
            content = message.partition(b"\0")[0].decode()
            self._format.message(ctx, txn, message_lsn, prefix, content, self._origin(ctx, txn))

    def filter_by_origin_cb(self, ctx: LogicalDecodingContext, origin_id: str | None) -> bool:
        wanted = self._options.filter_origins
        return bool(wanted) and origin_id is not None and self._origin_number(ctx, origin_id) in wanted

    def _origin(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN | None) -> int:
        if txn is None or not self._options.include_origin:
            return 0
        return self._origin_number(ctx, txn.origin)

    def _origin_number(self, ctx: LogicalDecodingContext, name: str | None) -> int:
        """pg_replication_origin.roident, which the C plugin prints and filters by; -1 for one that is gone."""
        if name not in self._origins:
            rows = ctx.catalog.scan("pg_replication_origin", {"roname": name})
            self._origins[name] = int(rows[0]["roident"]) if rows else -1
        return self._origins[name]
