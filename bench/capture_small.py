"""capture-small: 300,000 transactions of 1–2 rows → durable log, against `pg_recvlogical -f /dev/null` over loopback.

A transaction is three or four messages, so most of what travels is frames and not rows; both count the same changes.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

from bench import common
from bench.capture import Backlog

BAR = 1.6
TRANSACTIONS = 300_000


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench capture-small", description=__doc__)
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(argv)
    logging.getLogger("wal2lake.capture").setLevel(logging.ERROR)
    insert, rows = small_transactions(given.transactions)
    with common.server() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        backlog = Backlog(postgres, Path(folder), rows, insert)
        return common.verdict(backlog.alternate(postgres.tcp_dsn, given.rounds), BAR)


def small_transactions(count: int) -> tuple[str, int]:
    """SQL that inserts a row and two rows by turns, each time in a transaction; and how many rows that makes."""
    inserts = f"INSERT INTO {common.TABLE} SELECT {common.ROWS} FROM generate_series(2 * n::bigint, 2 * n + n % 2) AS i"
    loop = f"FOR n IN 1 .. {count} LOOP {inserts}; COMMIT; END LOOP"
    flushed = f"SET synchronous_commit TO on; INSERT INTO {common.TABLE} SELECT {common.ROWS} FROM"  # is seen
    return f"DO $$ BEGIN {loop}; END $$; {flushed} generate_series(0::bigint, 0) AS i", count + (count + 1) // 2 + 1
