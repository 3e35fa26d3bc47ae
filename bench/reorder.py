"""A backlog through the ReorderBuffer and test_decoding in Python, against `pg_recvlogical` with the C plugin.

One half of the changes is in three large transactions, the other in transactions of ten rows. Both sides start a slot
of their own, copied from one that was made before the changes, read up to the last commit and write to /dev/null. What
they write of a sample is compared byte for byte before.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

from bench import common
from wal2lake.decoding.decoder import Decoder
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.plugin_output import PluginOutput
from wal2lake.postgres.recvlogical import RecvOptions, recv
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import versioned_server

BAR = 0.5
CHANGES = 600_000
SMALL = 10
SAMPLE = 2_000
_SETTINGS = {"shared_buffers": "512MB", "logical_decoding_work_mem": "2GB", "autovacuum": "off"}
_TEN_EACH = """
CREATE PROCEDURE ten_each(first bigint, last bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR part IN first..last BY 10 LOOP
        INSERT INTO {table} SELECT {rows} FROM generate_series(part, least(part + 9, last)) AS i;
        COMMIT;
    END LOOP;
END $$
"""
_numbers = count()


def main(argv: list[str]) -> int:
    """Run the benchmark; 0 if the bar is met and both sides write the same."""
    parser = argparse.ArgumentParser(prog="python -m bench reorder", description=__doc__)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    with versioned_server(18, _SETTINGS) as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        common.create_table(postgres)
        postgres.psql(_TEN_EACH.format(table=common.TABLE, rows=common.ROWS))
        sample = _backlog(postgres, "sample", SAMPLE, 0)
        if not _same(postgres, Path(folder), sample):
            print("the two plugins do not write the same")
            return 1
        end = _backlog(postgres, "all", given.changes, SAMPLE)
        measured = {
            "wal2lake test_decoding": partial(_ours, postgres, "all", "/dev/null", end),
            "pg_recvlogical test_decoding": partial(_theirs, postgres, "all", "/dev/null", end),
        }
        rate = {name: partial(_rate, given.changes, measure) for name, measure in measured.items()}
        return common.verdict(common.alternate(rate, given.rounds), BAR)


def _rate(changes: int, measure: partial[None]) -> float:
    return changes / common.timed(measure)


def _backlog(postgres: EmbeddedPostgres, name: str, changes: int, behind: int) -> str:
    """Two slots and that many changes behind them, with ids above ``behind``; the end LSN of the last commit."""
    for plugin in ("pgoutput", "test_decoding"):
        postgres.psql(f"SELECT pg_create_logical_replication_slot('{name}_{plugin}', '{plugin}')")
    half, last = behind + changes // 2, behind + changes
    for part in range(3):
        first, end = behind + (half - behind) * part // 3 + 1, behind + (half - behind) * (part + 1) // 3
        source = f"generate_series({first}::bigint, {end}) AS i"
        postgres.psql(f"INSERT INTO {common.TABLE} SELECT {common.ROWS} FROM {source}")
    postgres.psql(f"SET synchronous_commit TO off; CALL ten_each({half + 1}, {last})")
    postgres.psql(f"SET synchronous_commit TO on; UPDATE {common.TABLE} SET note = '' WHERE id = {last}")
    query = f"SELECT max(lsn) FROM pg_logical_slot_peek_changes('{name}_test_decoding', NULL, NULL)"
    return postgres.psql(query)


def _copied(postgres: EmbeddedPostgres, slot: str) -> str:
    name = f"copy_{next(_numbers)}"
    postgres.psql(f"SELECT pg_copy_logical_replication_slot('{slot}', '{name}')")
    return name


def _ours(postgres: EmbeddedPostgres, backlog: str, file: str, end: str) -> None:
    slot = _copied(postgres, f"{backlog}_pgoutput")
    stream = PgoutputOptions((common.PUBLICATION,))
    with closing(PluginOutput(file, lambda write: Decoder("test_decoding", (), stream, write))) as output:
        recv(
            postgres.tcp_dsn, slot, output, RecvOptions(until_lsn=LSN.parse(end), plugin_options=output.decoder.stream)
        )


def _theirs(postgres: EmbeddedPostgres, backlog: str, file: str, end: str) -> None:
    command = [
        str(postgres.client_dir / "pg_recvlogical"), "-d", f"{postgres.tcp_dsn} options='-c timezone=UTC'",
        "-S", _copied(postgres, f"{backlog}_test_decoding"), "--start", "--no-loop", "--endpos", end, "-f", file,
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)


def _same(postgres: EmbeddedPostgres, folder: Path, end: str) -> bool:
    ours, theirs = folder / "ours", folder / "theirs"
    _ours(postgres, "sample", str(ours), end)
    _theirs(postgres, "sample", str(theirs), end)
    return ours.read_bytes() == theirs.read_bytes()
