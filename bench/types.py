"""types: every type and the values at its edges, each on each way into the lake, equal by verify, which prints them.

The ways: read by the snapshot; streamed as text; streamed in binary form. The server's output functions are the judge,
and what prints the lake's values shares nothing with what decoded them.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psycopg
from pyspark.sql import SparkSession

from bench import types_cases as cases
from bench.silent_site import Here
from wal2lake.capture.frames import without_headers
from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.config import Config, LakeConfig, LogConfig, PipelineConfig, SourceConfig
from wal2lake.errors import ConfigError
from wal2lake.lsn import LSN
from wal2lake.pipeline.batches import Batches
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.snapshots import Snapshots
from wal2lake.spark.session import build_session
from wal2lake.tables.table import Tables
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import versioned_server
from wal2lake.verify import VerifyReport, verify

Values = Mapping[str, Sequence[str]]
Policy = Literal["error", "null", "text"]
Site = tuple[Policy, str, bool]
WAYS = ("snapshot", "text", "binary")
_CHANGES = """
SELECT lsn::text, data FROM pg_logical_slot_get_binary_changes(
    'types', NULL, NULL, 'proto_version', '1', 'publication_names', 'pub', 'binary', %s)
"""


@dataclass(frozen=True)
class Group:
    """Types that one table has as columns, and by which ways; ``seeded``: it has rows that a snapshot reads first.
    ``contrib``: its server has contrib, and XML."""

    name: str
    values: Values
    ways: Sequence[str] = WAYS
    policy: Policy = "error"
    numeric: str = "text"
    seeded: bool = False
    contrib: bool = False

    @property
    def site(self) -> Site:
        """What a pipeline's settings say of its types, and whether its server has contrib."""
        return self.policy, self.numeric, self.contrib


GROUPS = (
    Group("both", cases.BINARY_TOO),
    Group("made", cases.MADE),
    Group("text", cases.TEXT_ALONE, WAYS[:2]),
    Group("shapes", cases.SHAPES, WAYS[:2], seeded=True),
    Group("placeless", cases.PLACELESS, policy="null"),
    Group("placeless_text", cases.PLACELESS, WAYS[:2], policy="text", seeded=True),
    Group("decimals", cases.NUMERICS, WAYS[:2], numeric="decimal(38,9)"),
    Group("decimals_placeless", cases.NUMERICS_PLACELESS, WAYS[:2], policy="null", numeric="decimal(38,9)"),
    Group("doubles", cases.DOUBLES, WAYS[:2], numeric="double"),
    Group("doubles_placeless", cases.DOUBLES_PLACELESS, WAYS[:2], policy="null", numeric="double"),
    Group("extensions", cases.EXTENSIONS, contrib=True),
    Group("extensions_text", cases.EXTENSIONS_TEXT, WAYS[:2], contrib=True),
)


def main(argv: list[str]) -> int:
    """Print what differs, then types by ways; 0 when all are equal, and there are some."""
    parser = argparse.ArgumentParser(prog="python -m bench types", description=__doc__)
    parser.add_argument("--group", default="", help=f"a part of the names of the groups: {_names()}")
    parser.add_argument("--format", default="delta", choices=("delta", "iceberg"), help="of the lake (%(default)s)")
    chosen = parser.parse_args(argv)
    groups = [group for group in GROUPS if chosen.group in group.name]
    folder = Path(tempfile.mkdtemp(prefix="wal2lake-types-"))
    spark = build_session(Config())
    reports: dict[Site, VerifyReport] = {}
    try:
        for contrib in sorted({group.contrib for group in groups}):
            with _server(contrib=contrib) as server:
                for site in dict.fromkeys(group.site for group in groups if group.contrib == contrib):
                    own = [group for group in groups if group.site == site]
                    reports[site] = _report(server, folder / str(len(reports)), spark, own, chosen.format)
    except _NoServer as error:
        print(f"extensions: NOT TESTED, for there is no server that has them: {error}")
        groups = [group for group in groups if group.site in reports]
    finally:
        spark.stop()
        shutil.rmtree(folder)
    return _judge(groups, reports)


class _NoServer(Exception):
    """npm has not brought the server with contrib."""


def _server(*, contrib: bool) -> EmbeddedPostgres:
    try:
        return versioned_server(18) if contrib else EmbeddedPostgres()
    except ConfigError as error:
        raise _NoServer(error) from error


def _names() -> str:
    return ", ".join(group.name for group in GROUPS)


def _ways(groups: Sequence[Group]) -> list[tuple[Group, str]]:
    return [(group, way) for group in groups for way in group.ways]


def _judge(groups: Sequence[Group], reports: Mapping[Site, VerifyReport]) -> int:
    found = wrong = 0
    for group, way in _ways(groups):
        (result,) = (table for table in reports[group.site].tables if table.name == f"{group.name}_{way}")
        found += len(group.values)
        for finding in result.findings():
            print(f"{group.name}, {way}: {finding}")
        named = {column for bad in result.bad_ranges for column in bad.columns}
        different = [kind for place, kind in enumerate(group.values) if f"c{place}" in named]
        wrong += len(different) if result.ok or different else len(group.values)
        if different:
            print(f"{group.name}, {way}: different: {', '.join(different)}")
        values = sum(map(len, group.values.values()))
        print(f"{group.name}, {way}: {len(group.values)} types, {values} values, {result.rows_lake} rows", flush=True)
    print(f"types by ways: {found}, equal: {found - wrong}")
    return 1 if wrong or not found else 0


def _report(
    server: EmbeddedPostgres, folder: Path, spark: SparkSession, groups: Sequence[Group], kind: str
) -> VerifyReport:
    """All groups of the same settings and server, in a database of their own, on each of their ways, compared."""
    database = f"types_{folder.name}"
    server.psql(f"CREATE DATABASE {database}")
    dsn = server.dsn.replace("dbname=postgres", f"dbname={database}")
    config = Config(
        source=SourceConfig(dsn=dsn, publication="pub", slot="types"),
        log=LogConfig(path=str(folder / "log")),
        lake=LakeConfig(path=str(folder / "lake"), format=kind),
        pipeline=PipelineConfig(unrepresentable=groups[0].policy, unbounded_numeric=groups[0].numeric),
    )
    with psycopg.connect(dsn, autocommit=True, options="-c synchronous_commit=on -c timezone=UTC") as connection:
        try:
            _land(connection, config, groups, database)
            return verify(config, spark)
        finally:
            connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def _land(connection: psycopg.Connection, config: Config, groups: Sequence[Group], database: str) -> None:
    connection.execute((cases.PREPARE_EXTENSIONS if groups[0].contrib else cases.PREPARE).encode())
    for group, way in _ways(groups):
        columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(group.values))
        connection.execute(f"CREATE TABLE {group.name}_{way} (id serial PRIMARY KEY, {columns})".encode())
        if way == "snapshot" or group.seeded:
            _insert(connection, group, way)
    connection.execute("CREATE PUBLICATION pub FOR TABLES IN SCHEMA public")
    row = connection.execute("SELECT lsn::text FROM pg_create_logical_replication_slot('types', 'pgoutput')").fetchone()
    assert row is not None
    start = LSN.parse(row[0])
    identity = LogIdentity("1", 1, database, "types", "pub", start)
    log = ChangeLog.create(config.log.path, identity)
    tables, waiting = Tables(config), Interrupts(threading.Event())
    batches = Batches(config, Here(), log, tables, Snapshots(config, Here(), tables, start, waiting))
    batches.discover(start)
    for way in WAYS[1:]:
        for group in groups:
            if way in group.ways:
                _insert(connection, group, way)
        end = _capture(connection, config, identity, binary=way == "binary")
        if end > start:
            batches.apply(start, end)
            start = end
    for name, quarantine in tables.quarantined():
        print(f"{name}: {quarantine.reason}")


def _insert(connection: psycopg.Connection, group: Group, way: str) -> None:
    """A row of NULLs, then each value of each type once at least, among others in its row; then changes of them."""
    table = f"{group.name}_{way}"
    connection.execute(f"INSERT INTO {table} DEFAULT VALUES".encode())
    names = ", ".join(f"c{place}" for place in range(len(group.values)))
    items = ", ".join(f"%s::text::{kind}" for kind in group.values)
    for row in range(max(map(len, group.values.values()))):
        values = [next(itertools.islice(itertools.cycle(some), row, None)) for some in group.values.values()]
        connection.execute(f"INSERT INTO {table} ({names}) VALUES ({items})".encode(), values)
    connection.execute(f"UPDATE {table} SET c0 = NULL WHERE id = 2".encode())


def _capture(connection: psycopg.Connection, config: Config, identity: LogIdentity, *, binary: bool) -> LSN:
    """Move all that has committed into the log; returns where it ends."""
    rows = connection.execute(_CHANGES, [str(binary).lower()]).fetchall()
    sent = [b"w" + LSN.parse(lsn).to_bytes(8) + bytes(16) + data for lsn, data in rows]
    with LogWriter(config.log.path, identity) as writer:
        if sent:
            writer.append(without_headers(sent))
    return ChangeLog.open(config.log.path).last_end_lsn
