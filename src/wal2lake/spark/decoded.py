"""What an output plugin writes about the log, as rows of Spark: each task runs a plugin of its own over whole
transactions.

``lsn`` is what ``pg_logical_slot_get_changes`` would label the piece with, ``xid`` the transaction (0: none), ``data``
text or bytes, as the plugin's output is. Rows of a partition are in the order of the commits, and so are the
partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import pyarrow as pa

from wal2lake.changelog.decoding import decode_log, stream_of
from wal2lake.changelog.log import ChangeLog
from wal2lake.decoding.decoder import Decoder
from wal2lake.decoding.plugin import OutputType
from wal2lake.spark.options import SourceOptions
from wal2lake.tables.committed import open_log

PARTITION_ROWS: Final = 100_000  # log rows of a task, about; a transaction is never divided
_BATCH_ROWS: Final = 8192


def decoded_schema(options: SourceOptions) -> pa.Schema:
    """(lsn, xid, data); starts the plugin to learn what it writes. Raises ConfigError, PluginError."""
    stream = stream_of(open_log(options.log))
    with Decoder(_plugin(options), options.plugin_options, stream, _nothing, fixed=True) as decoder:
        textual = decoder.ctx.output_type is OutputType.TEXTUAL
    return _schema(textual=textual)


def plan_decoded(log: ChangeLog, start: int, end: int) -> list[tuple[int, int]]:
    """The range cut between transactions into parts of about PARTITION_ROWS."""
    spans = []
    while start < end:
        stop = min(log.end_lsn_within(start, max_rows=PARTITION_ROWS), end)
        if stop <= start:
            break
        spans.append((start, stop))
        start = stop
    return spans


def read_decoded(options: SourceOptions, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """What the plugin writes about the transactions in (start, end]. Raises what decode_log raises."""
    pieces = decode_log(open_log(options.log), _plugin(options), options.plugin_options, start=start, end=end)
    while rows := list(islice(pieces, _BATCH_ROWS)):
        lsn, xid, data = zip(*rows, strict=True)
        schema = _schema(textual=isinstance(data[0], str))
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip((lsn, xid, data), schema, strict=True)],
            schema=schema,
        )


def _schema(*, textual: bool) -> pa.Schema:
    return pa.schema([("lsn", pa.int64()), ("xid", pa.int64()), ("data", pa.string() if textual else pa.binary())])


def _plugin(options: SourceOptions) -> str:
    assert options.plugin is not None
    return options.plugin


def _nothing(*piece: object) -> None:
    """Starting a plugin writes nothing."""
