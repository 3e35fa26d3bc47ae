"""An output plugin over a range of the log: the same callbacks, for whole transactions in the order of their commits.

The log is asked for with pgoutput's protocol version 1, so each transaction stands in one piece. What its slot did not
ask for (logical messages, two-phase commit) is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from wal2lake.changelog.log import ChangeLog
from wal2lake.columnar.arrays import to_numpy
from wal2lake.columnar.headers import RELATION, TYPE, subject
from wal2lake.decoding.context import PluginOptions
from wal2lake.decoding.decoder import Decoded, Decoder
from wal2lake.decoding.plugin import OutputPlugin
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions

_ROWS: Final = 8192  # made into Python objects at a time
_ANNOUNCING: Final = (RELATION, TYPE)


def decode_log(
    log: ChangeLog,
    plugin: OutputPlugin | str,
    options: PluginOptions = (),
    *,
    start: int | None = None,
    end: int | None = None,
) -> Iterator[Decoded]:
    """What the plugin writes about the transactions with ``start`` < end LSN ≤ ``end`` (None: all that the log has).

    Raises what Decoder raises, LogMismatchError when retention removed some of them, LogCorruptError.
    """
    ready: list[Decoded] = []

    def write(lsn: LSN, xid: int, data: str | bytes, last_write: bool) -> None:
        ready.append(Decoded(lsn, xid, data))

    with Decoder(plugin, options, stream_of(log), write, fixed=True) as decoder:
        first, last = log.beginning() if start is None else start, log.last_end_lsn if end is None else end
        known: dict[bytes, bytes] = {}
        for extent in log.plan(first, last) if first < last else ():
            for payload in log.in_force(extent):
                if known.get(subject(payload)) != payload:
                    decoder.announce(payload)
                    known[subject(payload)] = payload
            for lsn, payload in _messages(log.read(extent)):
                decoder.receive(lsn, payload)
                if payload[0] in _ANNOUNCING:
                    known[subject(payload)] = payload
                if ready:
                    yield from ready
                    ready.clear()


def stream_of(log: ChangeLog) -> PgoutputOptions:
    """How pgoutput was asked for what is in the log."""
    return PgoutputOptions((log.identity.publication,))


def _messages(batch: pa.RecordBatch) -> Iterator[tuple[LSN, bytes]]:
    for first in range(0, batch.num_rows, _ROWS):
        part = batch.slice(first, _ROWS)
        lsns = map(LSN, to_numpy(part.column("lsn")).tolist())
        yield from zip(lsns, part.column("payload").to_pylist(), strict=True)
