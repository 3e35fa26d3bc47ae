"""Of several servers that a DSN names, a slot, a snapshot and all who read under it are of one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from wal2lake.capture import Capture
from wal2lake.config import Config, LogConfig, SourceConfig
from wal2lake.errors import ConfigError
from wal2lake.login import Dsn
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.connection import connect
from wal2lake.postgres.one_server import instance, pinned, require_one
from wal2lake.postgres.preflight import preflight
from wal2lake.postgres.slots import SlotState, slot_states
from wal2lake.postgres.snapshot import SnapshotKeeper, SnapshotLostError, copy_binary
from wal2lake.tables.catalog_session import catalog_session
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.verify.source_snapshot import source_snapshot

pytestmark = pytest.mark.server

_ROUNDS = 12  # by chance alone, all of them would be right once in 4,000 times


@dataclass
class Two:
    """Two servers, of which one is reached by chance; ``told``: the row that each has in the table one.t."""

    servers: tuple[EmbeddedPostgres, EmbeddedPostgres]
    table: PublishedTable
    told = ("first", "second")

    @property
    def dsn(self) -> str:
        places = [conninfo_to_dict(server.dsn) for server in self.servers]
        hosts, ports = (",".join(str(place[name]) for place in places) for name in ("host", "port"))
        return make_conninfo(self.servers[0].dsn, host=hosts, port=ports, load_balance_hosts="random")


@pytest.fixture(scope="module")
def two(server: EmbeddedPostgres) -> Iterator[Two]:
    with EmbeddedPostgres() as other:
        for told, one in zip(Two.told, (server, other), strict=True):
            one.psql(
                f"CREATE SCHEMA one; CREATE TABLE one.t (v text); INSERT INTO one.t VALUES ('{told}');"
                "CREATE PUBLICATION one FOR TABLE one.t"
            )
        with connect(server.dsn) as connection:
            table = published_tables(connection, "one")[0]
        yield Two((server, other), table)
        server.psql("DROP PUBLICATION one; DROP SCHEMA one CASCADE")


def _rows(two: Two, dsn: Dsn, snapshot: str, server: str = "") -> list[bytes]:
    pieces = copy_binary(dsn, snapshot, two.table, two.table.columns, server=server)
    return [bytes(row[6:]) for piece in pieces for row in piece.payloads]


def _server_of(two: Two, port: str) -> str:
    return two.told[[str(server.port) for server in two.servers].index(port)]


def test_a_snapshot_is_read_where_it_is_kept(two: Two) -> None:
    kept = set()
    for _ in range(_ROUNDS):
        with SnapshotKeeper(two.dsn) as keeper:
            told = _server_of(two, str(conninfo_to_dict(keeper.login.dsn)["port"]))
            assert _rows(two, keeper.login, keeper.identity.name, keeper.identity.instance) == [told.encode()]
            kept.add(told)
    assert kept == set(two.told), "only one of them was ever reached"


def test_a_snapshot_of_that_name_on_another_server_is_not_taken_for_it(two: Two) -> None:
    here, there = (server.dsn for server in two.servers)
    with SnapshotKeeper(here) as mine, SnapshotKeeper(there) as other:
        assert _rows(two, there, other.identity.name, other.identity.instance) == [b"second"]
        for name in (mine.identity.name, other.identity.name):
            with pytest.raises(SnapshotLostError, match="another one than that which has the snapshot"):
                _rows(two, there, name, mine.identity.instance)


def test_verify_reads_one_server(two: Two) -> None:
    for _ in range(_ROUNDS // 2):
        with source_snapshot(two.dsn) as snapshot:
            (table,) = snapshot.published("one")
            with snapshot.reading(table) as connection:
                row = connection.execute("SELECT v FROM one.t").fetchone()
                assert row == (_server_of(two, str(connection.info.port)),)


def _slots(server: EmbeddedPostgres) -> list[SlotState]:
    with connect(server.dsn) as connection:
        return slot_states(connection)


def test_a_pipeline_needs_to_be_told_which(two: Two, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = "names several servers, and not which of them is the source"
    with connect(two.servers[0].dsn) as connection:
        require_one(two.servers[0].dsn, connection.pgconn)
    for attributes in ("any", "prefer-standby"):
        several = make_conninfo(two.dsn, target_session_attrs=attributes)
        with pytest.raises(ConfigError, match=said), catalog_session(several):
            pass
        found = {finding.name: finding for finding in preflight(several, "one", "absent")}
        assert (found["one_server"].level, said in found["one_server"].text) == ("error", True)
    config = Config(SourceConfig(two.dsn, "one", "absent"), LogConfig(str(tmp_path / "log")))
    with pytest.raises(ConfigError, match=said):
        Capture(config).run(threading.Event())
    assert not any(slot.slot_name == "absent" for server in two.servers for slot in _slots(server))
    for attributes in ("read-write", "primary"):
        with catalog_session(make_conninfo(two.dsn, target_session_attrs=attributes)):
            pass
    place = conninfo_to_dict(two.dsn)
    monkeypatch.setenv("PGHOST", str(place["host"]))
    monkeypatch.setenv("PGPORT", str(place["port"]))
    with pytest.raises(ConfigError, match=said), catalog_session("user=postgres dbname=postgres"):
        pass
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "read-write")
    with catalog_session("user=postgres dbname=postgres"):
        pass


def test_a_pinned_login_leads_back(two: Two) -> None:
    for _ in range(_ROUNDS):
        with connect(two.dsn) as connection:
            before, login = instance(connection), pinned(two.dsn, connection.pgconn)
        with connect(login) as again:
            assert instance(again) == before
    address = f"host=localhost hostaddr=127.0.0.1 {two.servers[0].tcp_dsn.partition(' ')[2]}"
    with connect(address) as connection:
        given = conninfo_to_dict(pinned(address, connection.pgconn).dsn)
    assert (given["host"], given["hostaddr"]) == ("localhost", "127.0.0.1")
