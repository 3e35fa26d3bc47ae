"""client: the ten-line program's typed rows, against psycopg2's cursor with pypgoutput, which gives strings.

Each reads a copy of the same slot over TCP loopback, begins with a connection and ends at the last Commit. Both look at
every row: ours at the sum of a column, theirs at the same column's text.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from functools import partial
from itertools import count
from typing import Any

import psycopg2
from psycopg2.extras import LogicalReplicationConnection, StopReplication
from pypgoutput import decoders

from bench import common
from wal2lake import Commit, Insert, connect
from wal2lake.testing.embedded import EmbeddedPostgres

BAR = 1.5
CHANGES = 150_000
ORIGIN = "origin"
_COLUMN = 3  # quantity
_numbers = count()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench client", description=__doc__)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--transactions", type=int, default=common.TRANSACTIONS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", action="store_true", help="values travel in binary form to ours")
    parser.add_argument("--profile", action="store_true", help="show where our time goes, and nothing else")
    given = parser.parse_args(argv)
    with common.server() as postgres:
        common.create_table(postgres)
        common.create_slot(postgres, ORIGIN)
        common.insert_rows(postgres, given.changes, given.transactions)
        read = partial(ours, postgres, given.changes, binary=given.binary)
        if given.profile:
            return profiled(read)
        rate = {
            "wal2lake connect": lambda: given.changes / common.timed(read),
            "psycopg2 + pypgoutput": lambda: given.changes / common.timed(lambda: theirs(postgres, given.changes)),
        }
        return common.verdict(common.alternate(rate, given.rounds), BAR)


def ours(postgres: EmbeddedPostgres, changes: int, *, binary: bool = False) -> None:
    """The ten lines."""
    rows = total = 0
    with connect(postgres.tcp_dsn, slot=copied_slot(postgres), publication=common.PUBLICATION, binary=binary) as stream:
        for event in stream:
            match event:
                case Insert(new=row):
                    rows += 1
                    total += row["quantity"]
                case Commit(end_lsn=end_lsn):
                    stream.acknowledge(end_lsn)
                    if rows == changes:
                        break
    assert total == sum(i % 1000 for i in range(1, changes + 1))


def theirs(postgres: EmbeddedPostgres, changes: int) -> None:
    """The usual loop of psycopg2: its C code reads, pypgoutput decodes each message, the Commit is acknowledged."""
    seen = total = 0

    def take(message: Any) -> None:
        nonlocal seen, total
        payload = message.payload
        match payload[:1]:
            case b"I":
                seen += 1
                total += int(decoders.Insert(payload).new_tuple.column_data[_COLUMN].col_data)
            case b"B":
                decoders.Begin(payload)
            case b"R":
                decoders.Relation(payload)
            case b"C":
                decoders.Commit(payload)
                message.cursor.send_feedback(flush_lsn=message.data_start)
                if seen == changes:
                    raise StopReplication

    connection = psycopg2.connect(postgres.tcp_dsn, connection_factory=LogicalReplicationConnection)
    try:
        cursor = connection.cursor()
        options = {"proto_version": "1", "publication_names": common.PUBLICATION}
        cursor.start_replication(slot_name=copied_slot(postgres), decode=False, options=options)
        try:
            cursor.consume_stream(take)
        except StopReplication:
            pass
        finally:
            cursor.close()
    finally:
        connection.close()
    assert total == sum(i % 1000 for i in range(1, changes + 1))


def profiled(read: Any) -> int:
    """The consumer's thread under cProfile."""
    profile = cProfile.Profile()
    began = time.perf_counter()
    profile.runcall(read)
    print(f"{time.perf_counter() - began:.2f} s")
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    return 0


def copied_slot(postgres: EmbeddedPostgres) -> str:
    name = f"copy_{next(_numbers)}"
    postgres.psql(f"SELECT pg_copy_logical_replication_slot('{ORIGIN}', '{name}')")
    return name
