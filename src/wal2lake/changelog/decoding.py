"""An output plugin over a range of the log: the same callbacks, for whole transactions in the order of their commits.

The plugin sees what pgoutput's protocol version 1 says: a transaction that was streamed in chunks is given to it from a
Begin to a Commit as well, and so is one that was prepared, behind its Commit Prepared. Logical messages, which the slot
did not ask for, are not in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from wal2lake.changelog.log import ChangeLog
from wal2lake.columnar import headers
from wal2lake.columnar.arrays import to_numpy
from wal2lake.columnar.headers import RELATION, TYPE, subject
from wal2lake.decoding.context import PluginOptions
from wal2lake.decoding.decoder import Decoded, Decoder
from wal2lake.decoding.plugin import OutputPlugin
from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import read_message, write_message
from wal2lake.pgoutput.messages import Begin, BeginPrepare, Commit, CommitPrepared, StreamCommit, StreamStart
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
        streamed = _Streamed(log, first, last)
        for extent in log.plan(first, last) if first < last else ():
            for payload in log.in_force(extent):
                if known.get(subject(payload)) != payload:
                    decoder.announce(payload)
                    known[subject(payload)] = payload
            for lsn, payload in streamed.as_whole(_messages(log.read(extent))):
                decoder.receive(lsn, payload)
                if payload[0] in _ANNOUNCING:
                    known[subject(payload)] = payload
                if ready:
                    yield from ready
                    ready.clear()


class _Streamed:
    """Makes of the chunks of a transaction what it would have been in one piece. The range is (first, last]."""

    def __init__(self, log: ChangeLog, first: int, last: int) -> None:
        self._log, self._range = log, (first, last)
        self._open = False
        self._known: dict[int, tuple[LSN, int]] | None = None

    def as_whole(self, messages: Iterable[tuple[LSN, bytes]]) -> Iterator[tuple[LSN, bytes]]:
        for lsn, payload in messages:
            match payload[0]:
                case headers.STREAM_START | headers.BEGIN_PREPARE:
                    if not self._open:
                        self._open = True
                        began = read_message(payload)
                        assert isinstance(began, StreamStart | BeginPrepare)
                        yield lsn, self._begin(began.xid)
                case headers.STREAM_COMMIT | headers.COMMIT_PREPARED:
                    commit = read_message(payload)
                    assert isinstance(commit, StreamCommit | CommitPrepared)
                    self._open = False
                    yield lsn, write_message(Commit(0, commit.commit_lsn, commit.end_lsn, commit.commit_ts))
                case headers.STREAM_STOP | headers.PREPARE:
                    pass
                case _:
                    yield lsn, payload

    def _begin(self, xid: int) -> bytes:
        """Of the transaction of a Stream Start, which no abort of a subtransaction takes away, or a Begin Prepare."""
        if self._known is None:
            found = self._log.transactions(*self._range).select(["xid", "final_lsn", "commit_ts"]).to_pydict()
            self._known = {x: (LSN(f), t) for x, f, t in zip(*found.values(), strict=True)}
        return write_message(Begin(*self._known[xid], xid))


def stream_of(log: ChangeLog) -> PgoutputOptions:
    """How pgoutput was asked for what is in the log."""
    return PgoutputOptions((log.identity.publication,))


def _messages(batch: pa.RecordBatch) -> Iterator[tuple[LSN, bytes]]:
    for first in range(0, batch.num_rows, _ROWS):
        part = batch.slice(first, _ROWS)
        lsns = map(LSN, to_numpy(part.column("lsn")).tolist())
        yield from zip(lsns, part.column("payload").to_pylist(), strict=True)
