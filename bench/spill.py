"""Memory of the ReorderBuffer: a transaction of five million rows, then a thousand of them at once, streamed.

Both come from a real server in protocol version 2, each larger than logical_decoding_work_mem, and go through a plugin
that only counts. The bar is the buffer's limit: what it holds may never pass it. The process's own growth is printed
too.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg

from bench import common
from wal2lake.decoding import LogicalDecodingContext, OutputPlugin, Relation, ReorderBufferChange, ReorderBufferTXN
from wal2lake.decoding.decoder import Decoder
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.logical import LogicalStream
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.wire.replication import XLogData

LIMIT = 64 << 20
ROWS = 5_000_000
AT_ONCE = 1_000
ROUNDS = 4
STREAM = PgoutputOptions((common.PUBLICATION,), 2, streaming="on")
_SETTINGS = {
    "logical_decoding_work_mem": "64kB",
    "max_connections": "1100",
    "shared_buffers": "256MB",
    "autovacuum": "off",
}


class Counting(OutputPlugin):
    """Counts the rows of each transaction, and that none comes while another is open."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._open = 0

    def begin_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        assert not self._open
        self._open = txn.xid
        self.rows.append(0)

    def change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        assert txn.xid == self._open
        self.rows[-1] += 1

    def commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        self._open = 0


def main(argv: list[str]) -> int:
    """Run both; 0 if the buffer stayed under its limit and every row came, once."""
    parser = argparse.ArgumentParser(prog="python -m bench spill", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--limit", type=int, default=LIMIT, help="bytes")
    given = parser.parse_args(argv)
    highest = 0
    with EmbeddedPostgres(settings=_SETTINGS) as postgres:
        common.create_table(postgres)
        common.create_slot(postgres, "large")
        common.insert_rows(postgres, given.rows, 1)
        highest = max(highest, _decode(postgres, "large", given.limit, [given.rows]))
        postgres.psql("TRUNCATE bench")
        common.create_slot(postgres, "many")
        rows = _interleaved(postgres, given.at_once)
        highest = max(highest, _decode(postgres, "many", given.limit, rows))
    return common.judge("ratio", highest / given.limit, 1.0, at_most=True)


def _interleaved(postgres: EmbeddedPostgres, count: int) -> list[int]:
    """That many transactions that are all open while each inserts some rows by turns; how many rows each has."""
    values = "i, 1, repeat('n', 200), 1, 1, 1, now(), repeat('x', 300), true, gen_random_uuid()"
    with ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(postgres.dsn)) for _ in range(count)]
        for turn in range(ROUNDS):
            for number, session in enumerate(sessions):
                first = (turn * count + number) * 100
                source = f"generate_series({first}, {first + 49 + number % 50}) AS i"
                session.execute(f"INSERT INTO {common.TABLE} SELECT {values} FROM {source}".encode())
        for session in reversed(sessions):
            session.commit()
    return [ROUNDS * (50 + number % 50) for number in reversed(range(count))]


def _decode(postgres: EmbeddedPostgres, slot: str, limit: int, rows: list[int]) -> int:
    """The most that the buffer held, in bytes."""
    plugin, highest, before = Counting(), 0, _resident()
    with Decoder(plugin, (), STREAM, _nothing, fixed=True, memory_limit=limit) as decoder:
        with LogicalStream(postgres.tcp_dsn, slot, plugin_options=STREAM) as stream:
            for message in _until(stream, len(rows), plugin):
                decoder.receive(message.start_lsn, message.payload)
                highest = max(highest, decoder.buffer.memory)
        spilled = decoder.buffer.spilled_bytes
    assert plugin.rows == rows, "rows are missing, or transactions are not in the order of their commits"
    print(
        f"{sum(rows):,} rows in {len(rows):,} transactions: {highest / (1 << 20):.1f} MB held at most,"
        f" {spilled / (1 << 20):.0f} MB spilled, the process grew by {(_resident() - before) / (1 << 20):.0f} MB",
        flush=True,
    )
    return highest


def _until(stream: LogicalStream, transactions: int, plugin: Counting) -> Iterator[XLogData]:
    for message in stream:
        yield message
        if len(plugin.rows) == transactions and message.payload[:1] == b"c":
            return


def _resident() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def _nothing(*piece: object) -> None:
    """The plugin writes nothing."""
