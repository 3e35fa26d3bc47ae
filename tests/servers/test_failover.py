"""A promotion is followed, by real standbys that keep the slot in step: no row is lost, none is there twice, and what
the old server did alone is refused.

Source: PostgreSQL documentation, "Logical Replication Failover", "Timelines".
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from psycopg.conninfo import conninfo_to_dict

from tests.documents.shown import on_page, ran
from tests.pipeline.conftest import LocalEngine
from tests.servers.conftest import give_to_server
from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.capture.startup import change_log_findings
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.timelines import Timeline, record_timeline
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.errors import ConfigError, LogMismatchError, ServerConfigError, SlotMissingError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Insert
from wal2lake.pipeline.loop import Pipeline
from wal2lake.postgres.physical.backup import BackupOptions, base_backup
from wal2lake.tables.forked import cut_back
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import versioned_server

pytestmark = pytest.mark.servers

_SETTINGS = {"synchronous_commit": "on", "hot_standby_feedback": "on", "wal_receiver_status_interval": "1"}
SINCE_17 = pytest.mark.parametrize("cluster", [17, 18], indirect=True)


class Cluster:
    """A primary, and standbys made of it by our own base backup; ``primary`` is the one that was promoted last."""

    def __init__(self, major: int, stack: ExitStack, folder: Path) -> None:
        self.major, self._stack, self._folder = major, stack, folder
        self.primary = stack.enter_context(versioned_server(major, _SETTINGS))
        self.primary.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
        self.servers = [self.primary]
        self.log = folder / "log"
        self.errors: list[Wal2LakeError] = []

    def config(self, dsn: str | None = None, **source: Any) -> Config:
        found = SourceConfig(dsn or self.primary.dsn, "p", "s", **{"failover": True, **source})
        return Config(found, LogConfig(str(self.log), segment_seconds=0.05))

    @property
    def any_dsn(self) -> str:
        """Whichever of the servers takes writes."""
        parts = [conninfo_to_dict(server.dsn) for server in self.servers]
        hosts, ports = (",".join(str(part[name]) for part in parts) for name in ("host", "port"))
        return f"host={hosts} port={ports} user=postgres dbname=postgres target_session_attrs=read-write"

    def add_standby(self) -> EmbeddedPostgres:
        """One that follows the primary, and keeps its slots in step when asked to."""
        number = len(self.servers)
        data = Path(tempfile.mkdtemp(dir=self._folder)) / "data"
        base_backup(self.primary.dsn, data, BackupOptions(checkpoint="fast", manifest=False))
        (data / "standby.signal").touch()
        give_to_server(data.parent)
        data.chmod(0o700)
        settings = {**_SETTINGS, "primary_conninfo": self.primary.dsn, "primary_slot_name": f"standby{number}"}
        standby = versioned_server(self.major, settings, data_dir=data.parent)
        self._reserve(standby)
        self._stack.enter_context(standby)
        self.servers.append(standby)
        return standby

    def follow(self, standby: EmbeddedPostgres) -> None:
        """Start a standby of the last primary as one of the present primary, and wait until it has all."""
        self._reserve(standby)
        standby.start({"primary_conninfo": self.primary.dsn})
        self.await_replay(standby)

    def _reserve(self, standby: EmbeddedPostgres) -> None:
        slot = standby.settings["primary_slot_name"]
        self.primary.psql(f"SELECT pg_create_physical_replication_slot('{slot}', true)")

    def await_replay(self, standby: EmbeddedPostgres) -> None:
        end = self.primary.psql("SELECT pg_current_wal_flush_lsn()")
        eventually(lambda: standby.psql(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == "t", self.errors)

    def sync(self, *standbys: EmbeddedPostgres) -> None:
        """Until the standbys have the slot, which needs what acknowledges to it, and all of the primary's WAL."""

        def in_step(standby: EmbeddedPostgres) -> bool:
            self.primary.psql("SELECT pg_log_standby_snapshot()")
            self.await_replay(standby)
            standby.psql("SELECT pg_sync_replication_slots()")
            return (
                standby.psql("SELECT NOT temporary AND synced FROM pg_replication_slots WHERE slot_name = 's'") == "t"
            )

        for standby in standbys:
            eventually(lambda standby=standby: in_step(standby), self.errors)

    def promote(self, standby: EmbeddedPostgres, *, kill: bool = True) -> None:
        if kill:
            self.primary.kill()
        standby.psql("SELECT pg_promote()")
        self.primary = standby

    def insert(self, first: int, last: int, table: str = "t") -> LSN:
        """One transaction; returns an LSN behind which its commit is not."""
        self.primary.psql(f"INSERT INTO {table} SELECT generate_series({first}, {last})")
        return LSN.parse(self.primary.psql("SELECT pg_current_wal_insert_lsn()"))

    def durable(self) -> LSN:
        return ChangeLog.open(self.log).durable_lsn() if ChangeLog.exists(self.log) else LSN(0)

    @contextmanager
    def capturing(self, config: Config | None = None) -> Iterator[None]:
        stop = threading.Event()

        def run() -> None:
            try:
                Capture(config or self.config()).run(stop)
            except Wal2LakeError as error:
                self.errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            eventually(lambda: ChangeLog.exists(self.log), self.errors)  # and the slot, before
            yield
        finally:
            stop.set()
            thread.join(30)
            assert not thread.is_alive()

    def capture(self, upto: LSN) -> None:
        """From a start to a stop."""
        with self.capturing():
            eventually(lambda: self.durable() >= upto, self.errors)

    def refused(self, kind: type[Wal2LakeError] = LogMismatchError, config: Config | None = None) -> str:
        """What a capture that starts now says; the log has not changed by it."""
        before = sorted(path.name for path in self.log.rglob("*") if path.parent.name in ("segments", "timelines"))
        with pytest.raises(kind) as caught:
            Capture(config or self.config()).run(threading.Event())
        assert before == sorted(p.name for p in self.log.rglob("*") if p.parent.name in ("segments", "timelines"))
        return str(caught.value)

    def captured(self) -> list[int]:
        """The rows of t that the log has, in its order."""
        log = ChangeLog.open(self.log)
        payloads = (p for e in log.plan(0, log.last_end_lsn) for p in log.read(e).column("payload").to_pylist())
        inserts = (read_message(payload) for payload in payloads if payload[:1] == Insert.tag)
        return [int(bytes(insert.new.columns[0].data)) for insert in inserts if isinstance(insert, Insert)]

    def same(self, *ranges: range) -> None:
        assert self.errors == []
        assert self.captured() == [number for numbers in ranges for number in numbers]
        assert list(verify_log(ChangeLog.open(self.log).storage)) == []


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="wal2lake-"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        yield Cluster(request.param, stack, folder)


@SINCE_17
def test_promotions_are_followed(cluster: Cluster) -> None:
    """Two while nobody captures, one while capture runs; and the servers that were left behind are refused."""
    first, second = cluster.add_standby(), cluster.add_standby()
    with cluster.capturing():
        upto = cluster.insert(1, 100)
        cluster.sync(first, second)
        eventually(lambda: cluster.durable() >= upto, cluster.errors)
    second.stop()  # it is to have no more than the one that is promoted
    cluster.insert(101, 200)
    cluster.await_replay(first)
    cluster.promote(first)
    cluster.insert(201, 300)
    cluster.follow(second)
    cluster.promote(second)
    cluster.insert(301, 400)
    assert all(finding.ok for finding in change_log_findings(cluster.config()))
    third = cluster.add_standby()
    with cluster.capturing(cluster.config(cluster.any_dsn)):
        cluster.sync(third)
        cluster.promote(third)
        upto = cluster.insert(401, 500)
        eventually(lambda: cluster.durable() >= upto, cluster.errors)
    cluster.same(range(1, 501))
    assert ChangeLog.open(cluster.log).identity.timeline == 4
    first.start()
    assert "left behind by a promotion" in cluster.refused(config=cluster.config(first.dsn))


@SINCE_17
def test_what_the_old_server_did_alone_is_refused_and_named(cluster: Cluster) -> None:
    """A position alone is no transaction; one behind the fork is, and the tables that it changed are named."""
    standby = cluster.add_standby()
    with cluster.capturing():
        upto = cluster.insert(1, 100)
        cluster.sync(standby)
        eventually(lambda: cluster.durable() >= upto, cluster.errors)
        standby.stop()
        cluster.primary.psql("CREATE TABLE elsewhere AS SELECT generate_series(1, 10)")
        upto = LSN.parse(cluster.primary.psql("SELECT pg_current_wal_flush_lsn()"))
        eventually(lambda: cluster.durable() >= upto, cluster.errors)
    copy = shutil.copytree(cluster.log, cluster.log.with_name("idle"))
    cluster.capture(cluster.insert(101, 110))
    cluster.primary.kill()
    standby.start()
    cluster.promote(standby, kill=False)
    cluster.insert(901, 1000)
    said = cluster.refused()
    assert "comes from timeline 1" in said and "public.t (10 changes)" in said and "wal2lake resync --forked" in said
    assert said == change_log_findings(cluster.config())[0].text
    shutil.rmtree(cluster.log)
    copy.rename(cluster.log)
    with cluster.capturing():
        eventually(lambda: ChangeLog.open(cluster.log).identity.timeline == 2, cluster.errors)
        eventually(lambda: len(cluster.captured()) == 200, cluster.errors)
    cluster.same(range(1, 101), range(901, 1001))


@SINCE_17
def test_a_capture_that_lives_through_the_promotion_refuses_it_too(cluster: Cluster) -> None:
    """What it has appended itself since it began counts as well; and nothing is recorded that bars the way back."""
    standby = cluster.add_standby()
    config = replace(cluster.config(cluster.any_dsn), lake=LakeConfig(str(cluster.log.with_name("lake"))))
    with cluster.capturing(config):
        upto = cluster.insert(1, 100)
        cluster.sync(standby)
        eventually(lambda: cluster.durable() >= upto, cluster.errors)
        standby.stop()
        upto = cluster.insert(101, 110)
        eventually(lambda: cluster.durable() >= upto, cluster.errors)
        cluster.primary.kill()
        standby.start()
        cluster.promote(standby, kill=False)
        cluster.insert(901, 1000)
        eventually(lambda: bool(cluster.errors))
    said = str(cluster.errors.pop())
    assert "comes from timeline 1" in said and "public.t (10 changes)" in said and "wal2lake resync --forked" in said
    assert said == cluster.refused(config=config)
    assert cut_back(config).lsn < upto
    with cluster.capturing(config):
        eventually(lambda: len(cluster.captured()) == 200, cluster.errors)
    cluster.same(range(1, 101), range(901, 1001))


@dataclass
class Place:
    """What a pipeline without Spark keeps of its stream."""

    config: Config
    position: int = 0

    def run(self) -> None:
        """Bring into the lake what the log has."""
        Pipeline(self.config, LocalEngine(self), threading.Event()).run(available_now=True)  # type: ignore[arg-type]

    def rows(self, table: str) -> list[int]:
        lake = DeltaTable(f"{self.config.lake.path}/public/{table}").to_pyarrow_table()
        return sorted(lake["id"].to_pylist())


def type_forked(config: Config) -> str:
    """The command of docs/moving.md, and what it says."""
    (item,) = [item for item in on_page("docs/moving.md", "sh") if item.text.endswith("--forked")]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    given = {field.name: getattr(config.source, field.name) for field in fields(SourceConfig)}
    texts = {name: shlex.join(value) if isinstance(value, tuple) else str(value) for name, value in given.items()}
    source = {f"WAL2LAKE_SOURCE_{name.upper()}": text for name, text in texts.items()}
    folders = {"WAL2LAKE_LOG_PATH": config.log.path, "WAL2LAKE_LAKE_PATH": config.lake.path}
    done = subprocess.run(
        item.text, shell=True, env=os.environ | source | folders | {"PATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ran(item)
    return done.stderr


@SINCE_17
@pytest.mark.documents
def test_resync_after_a_promotion_that_left_rows_behind(cluster: Cluster) -> None:
    """What the old server did alone is in the lake, the new one's WAL is shorter, and has other rows at these LSNs."""
    cluster.primary.psql("CREATE TABLE u (id int PRIMARY KEY); ALTER PUBLICATION p ADD TABLE u")
    standby = cluster.add_standby()
    place = Place(replace(cluster.config(), lake=LakeConfig(str(cluster.log.with_name("lake")))))
    with cluster.capturing():
        upto = cluster.insert(1, 100, "u")
        cluster.sync(standby)
        eventually(lambda: cluster.durable() >= upto, cluster.errors)
    place.run()
    cluster.capture(cluster.insert(101, 200, "u"))
    cluster.capture(cluster.insert(1, 100))
    place.run()
    cluster.await_replay(standby)
    standby.stop()
    cluster.capture(cluster.insert(101, 5000))
    place.run()
    cluster.primary.kill()
    standby.start()
    cluster.promote(standby, kill=False)
    cluster.insert(1001, 1010)
    cluster.insert(1001, 1010, "u")
    place.config = replace(place.config, source=cluster.config().source)
    assert "public.t (4900 changes)" in cluster.refused()
    said = type_forked(place.config)
    assert "public.t is read anew" in said and "public.u" not in said and "reader" not in said
    with pytest.raises(ConfigError, match="no promotion has left it behind"):
        cut_back(place.config)
    place.position = 0  # what is forgotten with Spark's checkpoint
    with cluster.capturing():
        eventually(lambda: {1001, 1010} <= set(cluster.captured()), cluster.errors)
        place.run()
        cluster.insert(1011, 1020)
        eventually(lambda: 1020 in cluster.captured(), cluster.errors)
        place.run()
    assert place.rows("u") == [*range(1, 201), *range(1001, 1011)]
    assert place.rows("t") == [*range(1, 101), *range(1001, 1021)]


@SINCE_17
def test_a_table_read_from_the_old_server_too_late_is_read_anew(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The log is of both servers' history, and goes on; what was copied past it is not. Nor is the standby's copy of
    the slot used before."""
    standby = cluster.add_standby()
    with cluster.capturing():
        upto = cluster.insert(1, 10)
        cluster.sync(standby)
        eventually(lambda: cluster.durable() >= upto, cluster.errors)
    cluster.await_replay(standby)
    with cluster.capturing(cluster.config(standby.dsn)):
        eventually(lambda: "its slot s follows the primary's until it is promoted" in caplog.text, cluster.errors)
    standby.stop()
    cluster.insert(101, 110)
    place = Place(replace(cluster.config(), lake=LakeConfig(str(cluster.log.with_name("lake")))))
    place.run()
    assert place.rows("t") == [*range(1, 11), *range(101, 111)]
    cluster.primary.kill()
    standby.start()
    cluster.promote(standby, kill=False)
    cluster.capture(cluster.insert(201, 210))
    place.config = replace(place.config, source=cluster.config().source)
    place.run()
    assert place.rows("t") == [*range(1, 11), *range(201, 211)]


@SINCE_17
def test_a_server_without_the_slot_and_one_of_another_history_are_refused(cluster: Cluster) -> None:
    standby = cluster.add_standby()
    unkept = cluster.config(failover=False)
    with cluster.capturing(unkept):
        eventually(lambda: cluster.durable() > 0, cluster.errors)
    cluster.await_replay(standby)
    identity = ChangeLog.open(cluster.log).identity
    cluster.promote(standby)
    unkept = cluster.config(failover=False)
    assert "was made without failover" in cluster.refused(SlotMissingError, unkept)
    assert ChangeLog.open(cluster.log).identity == identity
    record_timeline(storage_at(cluster.log), Timeline(2, ((1, LSN(0x1000)),)))
    assert "does not continue the change log's timeline 2 (1 until 0/1000)" in cluster.refused(config=unkept)


@pytest.mark.parametrize("versioned", [16], indirect=True)
def test_failover_needs_17(versioned: EmbeddedPostgres, tmp_path: Path) -> None:
    config = Config(SourceConfig(versioned.dsn, "p", "s", failover=True), LogConfig(str(tmp_path / "log")))
    with pytest.raises(ServerConfigError, match=r"source\.failover needs PostgreSQL 17: the server is 16"):
        Capture(config).run(threading.Event())


@SINCE_17
def test_a_slot_that_is_there_is_kept_in_step_when_asked_for(cluster: Cluster) -> None:
    kept = "SELECT active AND failover FROM pg_replication_slots"
    with cluster.capturing(cluster.config(failover=False)):
        assert cluster.primary.psql(kept) == "f"
    with cluster.capturing():
        eventually(lambda: cluster.primary.psql(kept) == "t", cluster.errors)
