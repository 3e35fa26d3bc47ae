"""Whatever goes wrong, a command ends with one sentence and its exit code, and asks before it removes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tests.changelog.conftest import IDENTITY
from tests.cli.commands import CONFIGURED, words
from tests.waiting import eventually
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.cli.main import app, main
from wal2lake.cli.options import resolve, source_login
from wal2lake.config import Config
from wal2lake.errors import ConfigError, LogMismatchError
from wal2lake.lsn import LSN
from wal2lake.postgres.catalog import identify
from wal2lake.postgres.connection import connect, replication_connection
from wal2lake.postgres.logical import LogicalStream
from wal2lake.postgres.slots import create_slot, drop_slot, slot_state
from wal2lake.testing.embedded import EmbeddedPostgres


def _wal2lake(*arguments: str, folder: Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wal2lake", *arguments]
    done = subprocess.run(command, cwd=folder, input=typed, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("init", "no/such/folder/w.toml"), "no/such/folder/w.toml cannot be used: No such file or directory."),
        (("check", "--config", "."), ". cannot be used: Is a directory."),
        (("basebackup", "b", "-T", "/old"), "-T /old names no new folder. Write OLDDIR=NEWDIR."),
        (
            ("recv", "s", "--binary", "--plugin", "x"),
            "--binary is an option of pgoutput, not of x. Give the plugin's own by",
        ),
        (("recv", "s", "--publication", "p", "-o", "include-xids=0"), "pgoutput has no option include-xids. `wal2lake"),
        (
            ("recv", "s", "--publication", "p", "--streaming", "on", "--proto-version", "1"),
            "streaming = on needs protocol version 2, not 1. Leave --proto-version out",
        ),
        (("recv", "s", "--publication", "p", "-o", "publication_names=q"), "publication_names is given twice."),
        (("recv", "s", "--create-slot", "--drop-slot"), "--create-slot and --drop-slot exclude each other."),
        (("recv", "s", "--drop-slot", "-f", "x"), "--file has no effect with --drop-slot."),
        (("recv", "s", "--failover", "--publication", "p"), "--failover has no effect without --create-slot."),
        (("receivewal", "--create-slot"), "--create-slot needs the slot's name. Name it with --slot."),
        (("receivewal", "--drop-slot", "-S", "s", "here"), "FOLDER has no effect with --drop-slot"),
        (("receivewal",), "receivewal needs a folder for the segments."),
        (("slots", "create", "s", "--reserve-wal"), "--reserve-wal is for physical slots. Give --physical as well."),
        (("slots", "create", "s", "--physical", "--failover"), "--failover is for logical slots"),
        (
            ("basebackup", "b", "-R", "--format", "tar"),
            "--write-recovery-conf is for plain format. Leave out --format tar.",
        ),
        (("slots", "alter", "s"), "There is nothing to alter."),
        (("identify", "-c", "/absent.toml"), "There is no /absent.toml. `wal2lake init /absent.toml` writes one."),
        (("recv", "s", "--create-slot"), "pgoutput needs at least one publication. Name it with --publication."),
    ],
)
def test_an_argument_that_cannot_be_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["wal2lake", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err[: len(sentence) + 10]) == (2, f"wal2lake: {sentence}")


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a configuration, in an environment without one."""
    for name in [name for name in os.environ if name.startswith(("PG", "WAL2LAKE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_folder_without_a_configuration_is_named(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["wal2lake", *words(name)])
    with pytest.raises(SystemExit) as ended:
        main()
    said = f"wal2lake: There is no wal2lake.toml in {nowhere}. `wal2lake init` writes one, -c names another;"
    assert (ended.value.code, capsys.readouterr().err[: len(said)]) == (2, said)
    assert list(nowhere.iterdir()) == []


def test_a_configuration_further_up_is_found_for_the_user(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nowhere / "wal2lake.toml").touch()
    (nowhere / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(nowhere / "a" / "b")
    with pytest.raises(ConfigError, match=rf"name it with -c {nowhere}/wal2lake\.toml"):
        resolve()


def test_what_is_said_elsewhere_needs_no_file(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags in ({"dsn": ""}, {"log": "x"}, {"settings": ["source.dsn="]}):
        resolve(**flags)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    resolve()
    assert f"There is no wal2lake.toml in {nowhere}: the server is that of the PG*" in capsys.readouterr().err
    monkeypatch.setenv("WAL2LAKE_SOURCE_SLOT", "mine")
    assert resolve().source.slot == "mine"
    assert capsys.readouterr().err == ""


def test_a_consumer_is_seen_and_forgotten(tmp_path: Path) -> None:
    log = ChangeLog.create(tmp_path / "log", IDENTITY)
    log.release("old", 0x2000)
    place = ("--log", str(tmp_path / "log"))
    assert "old" in _wal2lake("log", "consumers", *place, folder=tmp_path).stdout
    found = json.loads(_wal2lake("log", "consumers", "--json", *place, folder=tmp_path).stdout)
    assert found == [{"consumer": "old", "released_lsn": "0/2000", "behind_bytes": 0}]
    assert _wal2lake("log", "forget", "new", *place, folder=tmp_path).returncode == 2
    assert _wal2lake("log", "forget", "old", *place, folder=tmp_path).stderr.strip() == "Forgot old."
    assert log.released() == {}


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed_lead_nowhere(tmp_path: Path, closed: str) -> None:
    ChangeLog.create(tmp_path / "log", IDENTITY)
    for arguments in (["log", "consumers", "--json", "--log", "log"], ["--version"], ["init", "made.toml"]):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "wal2lake", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done
    assert "Wrote" not in (tmp_path / "made.toml").read_text()


def test_a_full_disk_under_the_output_is_told_as_that(tmp_path: Path) -> None:
    ChangeLog.create(tmp_path / "log", IDENTITY).release("old", 0x2000)
    for format_ in ([], ["--json"]):
        command = [sys.executable, "-m", "wal2lake", "log", "consumers", "--log", "log", *format_]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, "The output cannot be written" in done.stderr) == (13, True), done.stderr
        assert "Traceback" not in done.stderr and "Exception" not in done.stderr, done.stderr


def test_init_keeps_the_file_to_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.touch(mode=0o644)
    said = _wal2lake("init", "other.toml", "--force", folder=tmp_path).stderr
    assert "Next: wal2lake check --config other.toml" in said
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as started:
        yield started


@pytest.mark.server
def test_drop_asks_and_says_what_hinders_it(server: EmbeddedPostgres, tmp_path: Path) -> None:
    def drop(*arguments: str, typed: str = "") -> tuple[int, str]:
        done = _wal2lake("drop", "--dsn", server.dsn, *arguments, folder=tmp_path, typed=typed)
        return done.returncode, done.stdout + done.stderr

    with replication_connection(server.dsn) as pgconn:
        create_slot(pgconn, "wal2lake")
        busy = [sys.executable, "-m", "wal2lake", "recv", "wal2lake", "--publication", "p", "--dsn", server.dsn]
    code, said = drop()
    assert (code, "--yes drops without asking" in said) == (2, True), said
    assert drop("--with-publication", typed="n\n")[0] == 1
    server.psql("CREATE PUBLICATION p")
    with subprocess.Popen(busy, stdout=subprocess.DEVNULL) as reader:
        _await_active(server, "wal2lake", reader)
        code, said = drop("--yes")
        reader.terminate()
    assert reader.returncode == 0
    assert (code, "is active for PID" in said) == (10, True), said
    assert drop(typed="y\n")[0] == 0
    assert "There is no slot wal2lake." in drop("--yes")[1]
    server.psql("DROP PUBLICATION p")


def _give(server: EmbeddedPostgres) -> None:
    server.psql("ALTER PUBLICATION dropped OWNER TO owning")


def _lock_publication(server: EmbeddedPostgres, stack: ExitStack) -> None:
    locking = stack.enter_context(connect(server.dsn, writable=True))
    locking.execute("BEGIN")
    locking.execute("ALTER PUBLICATION dropped SET (publish = 'insert')")


def _read_slot(server: EmbeddedPostgres, stack: ExitStack) -> None:
    stream = LogicalStream(server.dsn, "dropped", LSN(0), (("proto_version", "1"), ("publication_names", "dropped")))
    stack.enter_context(stream)


def _run_capture(server: EmbeddedPostgres, stack: ExitStack) -> None:
    with psycopg.connect(server.dsn) as connection:
        identity = replace(IDENTITY, system_id=identify(connection).system_id)
    stack.enter_context(LogWriter(Path(Config().log.path), identity))


def _refuse_drops(server: EmbeddedPostgres, stack: ExitStack) -> None:
    server.psql("CREATE FUNCTION no() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$")
    server.psql("CREATE EVENT TRIGGER no ON sql_drop EXECUTE FUNCTION no()")
    stack.callback(server.psql, "DROP EVENT TRIGGER no; DROP FUNCTION no()")


# What keeps one of the two from being dropped, as whom, with the code and what the sentence has.
HINDRANCES: dict[str, tuple[Callable[[EmbeddedPostgres, ExitStack], None], str, int, str]] = {
    "the publication is another's": (
        lambda server, stack: None, "dropper", 6,
        'dropped belongs to postgres, so nothing was dropped. Leave out --with-publication, and have its owner run'
        ' DROP PUBLICATION "dropped"; afterwards.',
    ),
    "the role may not drop slots": (
        lambda server, stack: _give(server), "owning", 6, "REPLICATION",
    ),
    "the slot is read": (_read_slot, "postgres", 10, "is active for PID"),
    "capture runs": (_run_capture, "postgres", 10, "Capture runs on the change log"),
    "the publication is locked": (_lock_publication, "postgres", 21, "lock"),
    "the server refuses": (_refuse_drops, "postgres", 20, ""),
}  # fmt: skip


@pytest.fixture
def dropped(server: EmbeddedPostgres) -> Iterator[str]:
    """A slot and a publication of this name, and roles that may drop some of it; the query that finds what is left."""
    left = "slot_name FROM pg_replication_slots WHERE slot_name = 'dropped'"
    server.psql("CREATE ROLE dropper LOGIN REPLICATION; CREATE ROLE owning LOGIN; CREATE PUBLICATION dropped")
    server.psql("GRANT CREATE ON DATABASE postgres TO owning, dropper")
    with replication_connection(server.dsn) as pgconn:
        create_slot(pgconn, "dropped")
    yield f"SELECT {left} UNION ALL SELECT pubname FROM pg_publication WHERE pubname = 'dropped'"
    server.psql(f"SELECT pg_drop_replication_slot(slot_name) FROM (SELECT {left}) found")
    server.psql("DROP PUBLICATION IF EXISTS dropped; REVOKE CREATE ON DATABASE postgres FROM owning, dropper")
    server.psql("DROP ROLE dropper; DROP ROLE owning")


@pytest.mark.server
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        ("pg_create_physical_replication_slot('foreign')", "a physical slot"),
        ("pg_create_logical_replication_slot('foreign', 'pgoutput')", "of database template1 and plugin pgoutput"),
    ],
)
def test_drop_drops_no_slot_that_no_pipeline_made(
    server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str, kind: str
) -> None:
    database = "template1" if "template1" in kind else "postgres"
    with psycopg.connect(server.dsn, dbname=database, autocommit=True) as connection:
        connection.execute(f"SELECT {make}".encode())
        monkeypatch.chdir(tmp_path)
        done = CliRunner().invoke(app, ["drop", "--yes", "--dsn", server.dsn, "--slot", "foreign"])
        assert isinstance(done.exception, ConfigError), done.exception
        assert kind in str(done.exception) and "wal2lake slots drop" in str(done.exception)
        connection.execute("SELECT pg_drop_replication_slot('foreign')")


@pytest.mark.server
def test_drop_drops_no_slot_of_another_server_than_the_log_that_stays(
    server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = Path(Config().log.path)
    drop = ["drop", "--yes", "--dsn", server.dsn, "--slot", "namesake"]
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('namesake', 'pgoutput')")
        ChangeLog.create(log, replace(IDENTITY, system_id="7"))
        refused = CliRunner().invoke(app, drop).exception
        assert isinstance(refused, LogMismatchError) and "drop --with-log" in str(refused)
        assert slot_state(connection, "namesake") is not None and log.exists()
        assert CliRunner().invoke(app, [*drop, "--with-log"]).exit_code == 0
        assert slot_state(connection, "namesake") is None and not log.exists()


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (["status"], "ConfigError", 2),
        (["verify", "-c", "absent.toml"], "ConfigError", 2),
        (["check", "--dsn", "host=127.0.0.1 port=1"], "ConnectError", 4),
        (["slots", "list", "-d", "host=127.0.0.1 port=1"], "ConnectError", 4),
        (["log", "consumers", "--log", "log"], "LogCorruptError", 14),
    ],
)
def test_an_error_is_json_where_the_result_would_have_been(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    kind: str,
    code: int,
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "log.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["wal2lake", *arguments, "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    assert (ended.value.code, error["class"]) == (code, kind), said
    assert error["message"] in said.err.replace("\n", " ") and error["hint"] in said.err.replace("\n", " ")


@pytest.mark.server
@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_drop_drops_all_or_nothing(
    server: EmbeddedPostgres,
    dropped: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hindrance: str,
) -> None:
    hinder, role, code, sentence = HINDRANCES[hindrance]
    dsn = server.dsn.replace("user=postgres", f"user={role}")
    drop = ["wal2lake", "drop", "--dsn", dsn, "--slot", "dropped", "--publication", "dropped", "--with-publication"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("wal2lake.cli.setup.LOCK_TIMEOUT", "100ms")
    monkeypatch.setattr("wal2lake.cli.setup.PATIENCE_S", 0)
    monkeypatch.setattr(sys, "argv", [*drop, "--with-log", "--yes"])
    with ExitStack() as stack:
        hinder(server, stack)
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err
        assert (ended.value.code, sentence in said, "Dropped" in said) == (code, True, False), said
        assert server.psql(dropped) == "dropped\ndropped"
    server.psql("ALTER PUBLICATION dropped OWNER TO dropper")
    monkeypatch.setattr(sys, "argv", [*drop, "--yes", "--dsn", server.dsn.replace("user=postgres", "user=dropper")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, server.psql(dropped)) == (0, "")


@pytest.mark.server
def test_the_protocol_reads_only_the_source(server: EmbeddedPostgres, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(f"[source]\ndsn = '{server.dsn}'\n[lake]\nmode = 'nonsense'\n")
    done = _wal2lake("identify", "-c", "other.toml", "--json", folder=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["dbname"]) == (0, "postgres"), done.stderr
    done = _wal2lake("status", "-c", "other.toml", folder=tmp_path)
    assert (done.returncode, "lake.mode" in done.stderr) == (2, True)


def test_a_database_is_a_dsn_as_in_postgresqls_programs() -> None:
    assert source_login(None, "shop", None).dsn == "dbname=shop"
    assert source_login(None, "", None).dsn == ""
    for dsn in ("host=a", "postgresql://a/b", "postgre://user:secret@a"):
        assert source_login(None, dsn, None).dsn == dsn


def test_a_terminal_gets_no_binary(tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "wal2lake", "recv", "s", "--publication", "p", "--dsn", "host=127.0.0.1 port=1"]
    done = subprocess.run(command, cwd=tmp_path, stdout=end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(terminal)
    os.close(end)
    assert (done.returncode, "--format json" in done.stderr) == (2, True), done.stderr


@pytest.mark.server
def test_a_backup_says_that_it_waits_for_the_checkpoint(server: EmbeddedPostgres, tmp_path: Path) -> None:
    server.psql("CREATE TABLE dirty AS SELECT g FROM generate_series(1, 200000) g")
    command = [sys.executable, "-m", "wal2lake", "basebackup", "copy", "--dsn", server.dsn]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as backup:
        assert backup.stderr is not None
        assert "Waiting for the server's checkpoint (--checkpoint fast has it at once)" in backup.stderr.readline()
        backup.send_signal(signal.SIGTERM)
        assert "Interrupted." in backup.stderr.read()
    assert backup.returncode == 130


@pytest.mark.server
def test_status_says_what_is_there_beside_what_is_missing(server: EmbeddedPostgres, tmp_path: Path) -> None:
    server.psql("CREATE TABLE odd (id int PRIMARY KEY); CREATE PUBLICATION there FOR TABLE odd")
    done = _wal2lake("status", "--json", "--dsn", server.dsn, "--publication", "absent", folder=tmp_path)
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"]) == (1, False)
    assert "/" in found["server_wal_lsn"]
    assert [problem.split(" ")[3] for problem in found["problems"]] == ["replication", "publication", "change"]


@pytest.mark.server
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_backup_leaves_nothing_behind(
    server: EmbeddedPostgres, tmp_path: Path, number: signal.Signals
) -> None:
    arguments = ["basebackup", "copy", "--dsn", server.dsn, "--checkpoint", "fast", "--max-rate", "32", "--progress"]
    command = [sys.executable, "-m", "wal2lake", *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as backup:
        assert backup.stderr is not None
        assert backup.stderr.readline().endswith("%)\n")
        backup.send_signal(number)
        said = backup.stderr.read()
    assert (backup.returncode, "Interrupted." in said) == (130, True), said
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("command", "spark"),
    [(["check"], False), (["drop"], False), (["log", "list"], False), (["run"], True), (["verify"], True)],
)
def test_spark_has_options_where_it_runs(command: list[str], spark: bool) -> None:
    found = get_command(app)
    for word in command:
        found = found.commands[word]  # type: ignore[attr-defined]
    names = {name for parameter in found.params for name in parameter.opts}
    assert ({"--config", "--set"} <= names, {"--master", "--conf", "--mode"} & names != set()) == (True, spark)


@pytest.mark.server
@pytest.mark.parametrize(("until", "code"), [((), 0), (("--until-lsn", "FFFFFFF/0"), 130)])
def test_a_stream_that_is_stopped_too_early_fails(
    server: EmbeddedPostgres, tmp_path: Path, until: tuple[str, ...], code: int
) -> None:
    """`timeout 60 wal2lake recv … && load` must not load a torn file."""
    server.psql("CREATE PUBLICATION torn")
    with replication_connection(server.dsn) as pgconn:
        create_slot(pgconn, "torn")
    with subprocess.Popen(
        [sys.executable, "-m", "wal2lake", "recv", "torn", "--publication", "torn", "--dsn", server.dsn, *until],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as reader:  # fmt: skip
        _await_active(server, "torn", reader)
        reader.terminate()
        said = reader.communicate(timeout=60)[1]
    assert (reader.returncode, "Stopped before FFFFFFF/0 was reached." in said) == (code, bool(until)), said
    with replication_connection(server.dsn) as pgconn:
        drop_slot(pgconn, "torn", wait=True)
    server.psql("DROP PUBLICATION torn")


@pytest.mark.server
def test_a_reader_that_has_enough_ends_it_without_a_word(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """`wal2lake recv … | head -1`."""
    server.psql("CREATE TABLE read (id int); CREATE PUBLICATION read FOR TABLE read")
    with replication_connection(server.dsn) as pgconn:
        create_slot(pgconn, "read")
    server.psql("INSERT INTO read SELECT generate_series(1, 20000)")
    command = [
        sys.executable,
        "-m",
        "wal2lake",
        "recv",
        "read",
        "--publication",
        "read",
        "--format",
        "json",
        "--dsn",
        server.dsn,
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as recv:
        assert recv.stdout is not None
        assert recv.stderr is not None
        assert b"Begin" in recv.stdout.readline()
        recv.stdout.close()
        assert (recv.wait(60), recv.stderr.read()) == (1, b"")
    with replication_connection(server.dsn) as pgconn:
        drop_slot(pgconn, "read", wait=True)
    server.psql("DROP PUBLICATION read; DROP TABLE read")


def test_a_wrong_host_is_told_instead_of_a_position(tmp_path: Path) -> None:
    done = _wal2lake("receivewal", ".", "--dsn", "host=127.0.0.1 port=1", folder=tmp_path)
    assert (done.returncode, done.stdout, "timeline" in done.stderr) == (4, "", False), done.stderr


def _await_active(server: EmbeddedPostgres, slot: str, reader: subprocess.Popen[Any]) -> None:
    query = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'"
    eventually(lambda: server.psql(query) == "t", alive=lambda: reader.poll() is None)
