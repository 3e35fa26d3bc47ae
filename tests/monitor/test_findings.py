"""`wal2lake status` names whatever is missing or stands still; only when there is nothing of that is all well."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from tests.waiting import eventually
from wal2lake.changelog.documents import write_document
from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.cli.main import app
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.lsn import LSN
from wal2lake.monitor.status import read_status
from wal2lake.monitor.verified import Difference, Verified
from wal2lake.postgres.framed_stream import ReplicationStream
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

NAME = "monitored"


def _await_idle(dsn: str) -> None:
    """A walsender outlives its client's end by a moment."""
    active = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
    with psycopg.connect(dsn, autocommit=True) as connection:
        eventually(lambda: connection.execute(active, [NAME]).fetchone() is None)


@pytest.fixture(scope="module")
def slot(server: EmbeddedPostgres) -> Iterator[LSN]:
    """A publication and a slot that nobody streams from."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {NAME} (id int PRIMARY KEY)".encode())
        connection.execute(f"CREATE PUBLICATION {NAME} FOR TABLE {NAME}".encode())
        made = "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
        row = connection.execute(made, [NAME]).fetchone()
        assert row is not None
        yield LSN.parse(row[0])
        connection.execute("SELECT pg_drop_replication_slot(%s)", [NAME])
        connection.execute(f"DROP PUBLICATION {NAME}; DROP TABLE {NAME}".encode())


class Place:
    """A log whose status files say what a test wants; both children are well at first."""

    def __init__(self, server: EmbeddedPostgres, folder: Path, start: LSN) -> None:
        self.config = Config(
            source=SourceConfig(dsn=server.dsn, publication=NAME, slot=NAME),
            log=LogConfig(path=str(folder / "log")),
            lake=LakeConfig(path=str(folder / "lake")),
        )
        self.start = start
        ChangeLog.create(folder / "log", LogIdentity("1", 1, "postgres", NAME, NAME, start))
        self.capture(state="streaming")
        self.pipeline(state="streaming")

    def capture(self, *, ago: float = 0, **values: Any) -> None:
        self._write("capture", ago, values)

    def pipeline(self, *, ago: float = 0, **values: Any) -> None:
        self._write("pipeline", ago, values)

    def _write(self, role: str, ago: float, values: dict[str, Any]) -> None:
        path = Path(self.config.log.path) / "status" / f"{role}.json"
        path.write_bytes(write_document({"pid": 1, "ts": time.time() - ago, **values}))

    def problems(self) -> list[str]:
        """While the slot is streamed from."""
        with ReplicationStream(self.config.source.dsn, NAME, self.start, NAME, {"proto_version": "1"}):
            found = read_status(self.config).problems
        _await_idle(self.config.source.dsn)
        return found


@pytest.fixture
def place(server: EmbeddedPostgres, tmp_path: Path, slot: LSN) -> Place:
    return Place(server, tmp_path, slot)


def test_all_is_well(place: Place) -> None:
    assert place.problems() == []


def test_an_idle_slot(place: Place) -> None:
    (problem,) = read_status(place.config).problems
    assert problem == f"The replication slot {NAME} is idle, although capture should stream from it."


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"state": "stopped", "ago": 300}, "Capture was stopped 5 min ago; the slot keeps WAL on the server until"),
        ({"state": "streaming", "ago": 90}, r"Capture has said nothing for \d+ s: it is not"),
        ({"state": "streaming", "lock": ".lock", "ago": 3}, r"Capture died: .* [34] s ago; the slot keeps WAL"),
        (
            {"state": "failed", "reason": "The disk is full.", "ago": 60},
            r"Capture failed .*until it runs again\. The disk",
        ),
        (
            {"state": "waiting", "ago": -20, "reason": "The server cannot be reached."},
            r"Capture cannot stream and tries again and again\. The server cannot be reached\.$",
        ),
    ],
)
def test_a_capture_that_stands_still(place: Place, values: dict[str, Any], problem: str) -> None:
    place.capture(**values)
    (found,) = place.problems()
    assert re.match(problem, found)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"state": "stopped", "ago": 7300}, "The pipeline was stopped 2 h ago."),
        (
            {"state": "failed", "reason": "The disk is full.", "ago": 3},
            r"The pipeline failed \d+ s ago: The disk is full\.",
        ),
        ({"state": "streaming", "lock": ".lock"}, r"The pipeline died: its process is gone, .* \d s ago\."),
        ({"state": "starting", "reason": "The disk is full."}, r"The pipeline starts again after: The disk is full\."),
        ({"state": "waiting", "waiting_for": "Somebody holds a lock."}, "The pipeline waits. Somebody holds a lock."),
        ({"state": "streaming", "ago": 90}, r"The pipeline has said nothing for \d+ s: it is not running, or hangs\."),
        (
            {"state": "streaming", "lag_s": 720.0, "tables": {"public.t": {"changes_per_s": 9.0}}},
            "The lake is 12 min behind the change log; it took in 9 changes/s lately.",
        ),
    ],
)
def test_a_pipeline_that_stands_still(place: Place, values: dict[str, Any], problem: str) -> None:
    place.pipeline(**values)
    (found,) = place.problems()
    assert re.fullmatch(problem, found)


def test_a_long_snapshot_is_well(place: Place) -> None:
    """The log runs ahead of it; nothing of that could be applied yet."""
    place.pipeline(state="snapshot", lag_s=7200.0)
    assert place.problems() == []


@pytest.mark.parametrize(
    ("pipeline", "code", "said"),
    [
        (
            {"state": "starting", "doing": "starting Spark"},
            75,
            "not kept up yet: the pipeline is starting Spark, and 1 of",
        ),
        (
            {"state": "snapshot"},
            75,
            "not kept up yet: the first snapshot is read, and 1 of 1 tables are not in the lake",
        ),
        ({"state": "starting", "reason": "The disk is full."}, 1, "starts again after: The disk is full."),
        ({"state": "streaming"}, 0, ""),
    ],
)
def test_not_yet_is_neither_well_nor_wrong(place: Place, pipeline: dict[str, Any], code: int, said: str) -> None:
    """The first start, as a script that waits for it sees it."""
    place.pipeline(**pipeline)
    with ReplicationStream(place.config.source.dsn, NAME, place.start, NAME, {"proto_version": "1"}):
        config = ["--config", str(configured(place))]
        told, as_json = (CliRunner().invoke(app, ["status", *config, *more]) for more in ([], ["--json"]))
    _await_idle(place.config.source.dsn)
    assert (told.exit_code, as_json.exit_code) == (code, code), told.output
    assert said in " ".join(told.output.split()) and ("Nothing is wrong" in told.output) == (code == 75)
    found = json.loads(as_json.stdout)
    assert (found["ok"], found["ready"]) == (code != 1, code == 0)


def test_neither_was_ever_heard_of(place: Place) -> None:
    for role in ("capture", "pipeline"):
        (Path(place.config.log.path) / "status" / f"{role}.json").unlink()
    capture, pipeline = place.problems()
    assert capture.startswith("Capture is not running; the slot keeps WAL")
    assert pipeline == "The pipeline is not running."


def test_how_old_a_quarantine_is(place: Place) -> None:
    """`resync` may have lifted it since: the pipeline that would say so does not run."""
    tables = {"public.t": {"state": "quarantined", "reason": "Renamed."}}
    place.pipeline(state="streaming", tables=tables)
    assert place.problems() == ["public.t is quarantined. Renamed."]
    place.pipeline(state="stopped", ago=180, tables=tables)
    stopped, quarantined = place.problems()
    assert stopped == "The pipeline was stopped 3 min ago."
    assert quarantined.startswith("public.t was quarantined when the pipeline was last heard of, 3 min ago; the next")
    assert quarantined.endswith(" Renamed.")
    place.pipeline(state="streaming", tables={"public.t": {"state": "catching_up", "tried": "Renamed."}})
    assert place.problems() == [
        "public.t was quarantined, and is tried again: it is not where the stream is yet. Renamed."
    ]


def test_a_difference_that_verify_found_is_a_finding(place: Place) -> None:
    found = Difference("public", NAME, time.time() - 200, "0/10", 7, 6)
    verified = Path(place.config.log.path) / "status" / "verify.json"
    verified.write_bytes(write_document(asdict(Verified("done", differences={f"public.{NAME}": found}))))
    (problem,) = place.problems()
    assert problem.startswith(f"public.{NAME} differs from its source: verify found so at 0/10, 3 min ago (7 rows in")
    done = CliRunner().invoke(app, ["status", "--config", str(configured(place))])
    assert (done.exit_code, "differs from its source" in done.output) == (1, True)


@pytest.mark.parametrize("name", ["segments/0000000000000000.arrow", "log.json"])
def test_a_torn_log_hides_nothing_else(place: Place, name: str) -> None:
    torn = Path(place.config.log.path) / name
    torn.write_bytes(b"torn")
    place.capture(state="stopped", ago=300)
    place.pipeline(state="waiting", waiting_for="Somebody holds a lock.")
    found = read_status(place.config)
    assert (found.log, found.slot is not None, found.server_wal_lsn is not None) == (None, True, True)
    assert f"The change log file {name} cannot be read" in found.problems[0]
    assert [problem[:20] for problem in found.problems[1:]] == ["Capture was stopped ", "The pipeline waits. "]
    done = CliRunner().invoke(app, ["status", "--config", str(configured(place))])
    assert (done.exit_code, "waiting" in done.stdout, "slot monitored" in done.stdout) == (1, True, True)


def configured(place: Place) -> Path:
    file = Path(place.config.log.path).parent / "wal2lake.toml"
    source = f"dsn = '{place.config.source.dsn}'\npublication = '{NAME}'\nslot = '{NAME}'"
    places = f"[log]\npath = '{place.config.log.path}'\n[lake]\npath = '{place.config.lake.path}'\n"
    file.write_text(f"[source]\n{source}\n{places}")
    return file


def test_a_table_that_the_lake_has_lost_does_not_stream(place: Place) -> None:
    tables = {f"public.{NAME}": {"state": "streaming", "rows": 200, "applied_lsn": "0/20"}}
    place.pipeline(state="streaming", tables=tables)
    (problem,) = place.problems()
    assert problem.startswith(f"The lake has lost public.{NAME}: ") and "wal2lake resync" in problem
    assert [table.state for table in read_status(place.config).progress.tables] == ["missing"]
