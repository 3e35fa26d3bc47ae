"""Logical decoding: output plugins written in Python, with PostgreSQL's callbacks, over pgoutput's stream.

What a plugin needs is importable from here; docs/plugins.md shows how one is written, loaded and tested.
"""

from wal2lake.decoding.changes import (
    NOT_PUBLISHED,
    UNCHANGED_TOAST,
    Absent,
    ChangeType,
    ReorderBufferChange,
    ReorderBufferTXN,
    TruncateChange,
    Value,
)
from wal2lake.decoding.context import (
    Catalog,
    LogicalDecodingContext,
    OutputPluginPrepareWrite,
    OutputPluginUpdateProgress,
    OutputPluginWrite,
    StringInfo,
)
from wal2lake.decoding.decoder import Decoded, Decoder, decode
from wal2lake.decoding.loader import load_plugin, plugin_names
from wal2lake.decoding.plugin import OutputPlugin, OutputPluginOptions, OutputType
from wal2lake.decoding.relation import Attribute, Relation
from wal2lake.decoding.sql import parse_bool, quote_identifier, quote_literal, timestamptz_to_str

__all__ = [
    "NOT_PUBLISHED",
    "UNCHANGED_TOAST",
    "Absent",
    "Attribute",
    "Catalog",
    "ChangeType",
    "Decoded",
    "Decoder",
    "LogicalDecodingContext",
    "OutputPlugin",
    "OutputPluginOptions",
    "OutputPluginPrepareWrite",
    "OutputPluginUpdateProgress",
    "OutputPluginWrite",
    "OutputType",
    "Relation",
    "ReorderBufferChange",
    "ReorderBufferTXN",
    "StringInfo",
    "TruncateChange",
    "Value",
    "decode",
    "load_plugin",
    "parse_bool",
    "plugin_names",
    "quote_identifier",
    "quote_literal",
    "timestamptz_to_str",
]
