"""`status` shows what it can, whatever stands in the way of the rest."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.timelines import Timeline, record_timeline
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.lsn import LSN
from wal2lake.monitor.places import Places, PlacesReader
from wal2lake.monitor.status import read_status
from wal2lake.postgres.catalog import identify
from wal2lake.postgres.connection import connect
from wal2lake.run.monitoring import shared_places
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server
NOTHING = Places(None, None, None, {}, False, ())


def test_a_locked_table_does_not_hold_it_up(server: EmbeddedPostgres, tmp_path: Path) -> None:
    server.psql("CREATE TABLE locked (id int PRIMARY KEY); CREATE PUBLICATION locked FOR TABLE locked")
    server.psql("SELECT pg_create_logical_replication_slot('locked', 'pgoutput')")
    source = SourceConfig(server.dsn, "locked", "locked")
    config = Config(source, LogConfig(str(tmp_path / "log")), LakeConfig(str(tmp_path / "lake")))
    with psycopg.connect(server.dsn) as locking:
        locking.execute("LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
        found = read_status(config)
    assert found.slot is not None
    assert found.server_wal_lsn is not None
    assert "cannot be listed now" in found.problems[0]
    assert read_status(config).applied == {"public.locked": None}
    server.psql("SELECT pg_drop_replication_slot('locked'); DROP TABLE locked; DROP PUBLICATION locked")


@pytest.mark.parametrize(
    ("timeline", "beyond", "said"),
    [
        (1, 0, None),
        (1, 1 << 32, "taken back to an earlier state"),
        (2, 0, "the change log has gone on to timeline 2: this is a server that was left behind by a promotion"),
        (2, 1 << 32, "left behind by a promotion"),
    ],
)
def test_a_server_of_another_history_is_told(
    server: EmbeddedPostgres, tmp_path: Path, timeline: int, beyond: int, said: str | None
) -> None:
    with connect(server.dsn) as connection:
        system = identify(connection)
    end = LSN(system.wal_lsn - (1 << 20) + beyond)
    identity = LogIdentity(system.system_id, system.timeline, "postgres", "told", "told", end)
    log = ChangeLog.create(tmp_path / "log", identity)
    if timeline > 1:
        record_timeline(log.storage, Timeline(timeline, ((1, end),)))
    source = SourceConfig(server.dsn, "told", "told")
    found = read_status(Config(source, LogConfig(str(tmp_path / "log")), LakeConfig(str(tmp_path / "lake"))))
    histories = [problem for problem in found.problems if "`wal2lake check` says what to do" in problem]
    assert [said in problem for problem in histories] == ([True] if said else []), found.problems
    assert not any("keeps WAL" in problem for problem in found.problems)  # there is no slot


def test_two_that_watch_look_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's thread and the endpoint's, of one `run`."""
    looks: list[int] = []
    monkeypatch.setattr(PlacesReader, "look", lambda self: looks.append(1) or NOTHING)
    read = shared_places(Config(log=LogConfig(str(tmp_path / "log"))))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: read(), range(16)))
    assert (len(looks), {id(places) for places in found}) == (1, {id(NOTHING)})
    reader = PlacesReader(Config(log=LogConfig(str(tmp_path / "log"))))
    assert [reader.read(), reader.read(60.0), reader.read()] == [NOTHING] * 3
    assert len(looks) == 3, "who does not want what was seen before has it anew"
