"""The README's lines, word for word, against a real server: init, publication, check, run, drop; Ctrl-C between."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable, write_deltalake
from psycopg.conninfo import conninfo_to_dict

from tests.documents.shown import Shown, on_page, ran
from tests.waiting import eventually
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow]


def _wal2lake(*arguments: str, folder: Path, code: int = 0, typed: str = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "wal2lake", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=400, check=False, input=typed,
    )  # fmt: skip
    assert done.returncode == code, done.stderr + done.stdout
    return done


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """What a test starts ends with it, however it ends."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.terminate()
            process.communicate()


def _start_run(folder: Path, started: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "wal2lake", "run"]
    started.append(subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True))
    return started[-1]


def _interrupt(process: subprocess.Popen[str], code: int = 0) -> str:
    """Ctrl-C, and what `run` said; it must end by itself, and as ``code`` says."""
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=200)
    assert process.returncode == code, said
    return said


def _rows(folder: Path, table: str) -> list[dict[str, object]]:
    path = folder / "wal2lake" / "lake" / table
    return DeltaTable(str(path)).to_pyarrow_table().to_pylist() if path.exists() else []


def _await_rows(folder: Path, table: str, count: int) -> None:
    log = folder / "wal2lake" / "lake" / table / "_delta_log"
    eventually(lambda: log.exists() and len(_rows(folder, table)) == count, timeout_s=180, poll_s=0.5)


SABOTAGE = {20: [], 40: [], 60: ["v"], 77: ["v"], 90: ["big"]}


def _sabotage(path: Path) -> None:
    """Behind wal2lake's back: a row dropped, one doubled, a character changed, a NULL emptied, TOAST lost."""
    table = DeltaTable(str(path))
    table.delete("id = 20")
    doubled = table.to_pyarrow_table(filters=[("id", "=", 40)])
    write_deltalake(table, doubled, mode="append")
    table.update(predicate="id = 60", updates={"v": "'v6O'"})
    table.update(predicate="id = 77", updates={"v": "''"})
    table.update(predicate="id = 90", updates={"big": "NULL"})


def _found(table: dict[str, Any]) -> dict[int, list[str]]:
    """For each sabotaged key the columns that verify names in the range that holds it."""
    return {
        key: bad["columns"]
        for key in SABOTAGE
        for bad in table["bad_ranges"]
        if bad["column"] == "id" and (bad["lower"] or 0) <= key < (bad["upper"] or 1000)
    }


def _readme_lines() -> list[Shown]:
    lines = on_page("README.md", "sh")
    (first,) = [line.line for line in lines if line.text.startswith("wal2lake init")]
    return [line for line in lines if line.line == first]


def _word_for_word(shown: Shown, server: EmbeddedPostgres, folder: Path, answer: str = "") -> None:
    """Run a line of the README in a shell; only its server is ours."""
    ours = shown.text.replace("host=db.example.com dbname=shop user=wal2lake", f"{server.dsn} dbname=shop")
    path = os.pathsep.join([str(Path(sys.executable).parent), str(server.client_dir), os.environ["PATH"]])
    known = {
        "PATH": path,
        "PGHOST": str(conninfo_to_dict(server.dsn)["host"]),
        "PGPORT": str(server.port),
        "PGUSER": "postgres",
    }
    done = subprocess.run(
        ours, shell=True, cwd=folder, env=os.environ | known, input=answer, capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    ran(shown)


@pytest.mark.documents
def test_a_users_database_by_five_lines(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    init, publish, check, run, drop = _readme_lines()
    assert run.text == "wal2lake run"
    with EmbeddedPostgres() as server:
        server.psql("CREATE DATABASE shop")
        psql = functools.partial(server.psql, database="shop")
        psql(
            "CREATE TABLE t (id int PRIMARY KEY, v text, big text); ALTER TABLE t ALTER big SET STORAGE EXTERNAL;"
            "INSERT INTO t SELECT i, nullif('v' || i, 'v77'), repeat(md5(i::text), 100) FROM generate_series(1, 100) i"
        )
        _word_for_word(init, server, tmp_path)
        assert "CREATE PUBLICATION" in _wal2lake("check", folder=tmp_path, code=1).stdout
        _word_for_word(publish, server, tmp_path)
        _word_for_word(check, server, tmp_path)

        process = _start_run(tmp_path, started)
        _await_rows(tmp_path, "public/t", 100)
        psql("INSERT INTO t SELECT i, '', 'small' FROM generate_series(101, 150) i")
        _await_rows(tmp_path, "public/t", 150)
        assert "nothing is lost" in _interrupt(process)
        ran(run)

        psql("DELETE FROM t WHERE id <= 10")
        process = _start_run(tmp_path, started)
        _await_rows(tmp_path, "public/t", 140)
        status = json.loads(_wal2lake("status", "--json", folder=tmp_path).stdout)
        assert status["ok"] and status["slot"]["active"]
        assert re.fullmatch(r"[0-9A-F]+/[0-9A-F]+", status["log"]["durable_lsn"])
        assert json.loads(_wal2lake("verify", "--json", folder=tmp_path).stdout)["ok"]
        _sabotage(tmp_path / "wal2lake" / "lake" / "public" / "t")
        report = json.loads(_wal2lake("verify", "--json", folder=tmp_path, code=18).stdout)
        assert [table["name"] for table in report["tables"] if not table["ok"]] == ["t"]
        assert _found(report["tables"][0]) == SABOTAGE
        second = _wal2lake("run", folder=tmp_path, code=10)
        assert "Another process runs the pipeline" in second.stderr or "Another capture process" in second.stderr
        _interrupt(process)

        segments = json.loads(_wal2lake("log", "list", "--json", folder=tmp_path).stdout)
        assert sum(segment["commits"] for segment in segments) >= 2
        assert "Insert" in _wal2lake("log", "dump", folder=tmp_path).stdout
        assert "0 faults" in _wal2lake("log", "verify", folder=tmp_path).stderr
        assert json.loads(_wal2lake("log", "verify", "--json", folder=tmp_path).stdout)["faults"] == []
        _word_for_word(drop, server, tmp_path, answer="y\n")
        assert server.psql("SELECT count(*) FROM pg_replication_slots") == "0"
        assert psql("SELECT count(*) FROM pg_publication") == "0"


def test_a_table_left_out_and_a_slot_dropped_are_told_of(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    with EmbeddedPostgres() as server:
        server.psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')")
        server.psql("CREATE PUBLICATION wal2lake FOR ALL TABLES")
        _wal2lake("init", "--dsn", server.dsn, folder=tmp_path)
        settings = tmp_path / "wal2lake.toml"
        settings.write_text(
            settings.read_text().replace('on_unfollowable = "resync"', 'on_unfollowable = "quarantine"')
        )
        process = _start_run(tmp_path, started)
        _await_rows(tmp_path, "public/t", 1)
        server.psql("ALTER TABLE t RENAME v TO w")
        server.psql("UPDATE t SET w = 'b'")
        status = tmp_path / "wal2lake/log/status/pipeline.json"
        eventually(
            lambda: json.loads(status.read_bytes())["tables"]["public.t"]["state"] == "quarantined", timeout_s=180
        )
        found = json.loads(_wal2lake("status", "--json", folder=tmp_path, code=1).stdout)
        (problem,) = found["problems"]
        assert problem.startswith("public.t is quarantined. ") and "wal2lake resync" in problem
        said = _interrupt(process, code=16)
        found = json.loads(_wal2lake("status", "--json", folder=tmp_path, code=1).stdout)
        assert (found["progress"]["capture_state"], found["progress"]["pipeline_state"]) == ("stopped", "stopped")
        assert [problem.split(" ago")[0].rstrip("0123456789 smin") for problem in found["problems"]] == [
            "Capture was stopped",
            "The pipeline was stopped",
            "public.t was quarantined when the pipeline was last heard of,",
        ]
        _wal2lake("drop", "--yes", folder=tmp_path)
        refused = _wal2lake("run", folder=tmp_path, code=9)
        _assert_one_sentence(refused, "slot")
        *before, run = re.findall(r"`wal2lake ([^`]*)`", refused.stderr)  # its hint, to the letter
        for command in before:
            _wal2lake(*command.split(), folder=tmp_path, typed="y\n")
        assert run == "run"
        server.psql("INSERT INTO t VALUES (2, 'begun anew')")
        process = _start_run(tmp_path, started)
        _await_rows(tmp_path, "public/t", 2)
        server.psql("INSERT INTO t VALUES (3, 'streaming')")
        _await_rows(tmp_path, "public/t", 3)
        _interrupt(process)
    assert re.search(r"^wal2lake: 1 table\(s\) are quarantined\. public\.t: .*wal2lake resync", said, re.M), said
    assert "INFO Capturing from slot" in (status.parent / "capture.log").read_text()


def _lets_in(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def _assert_one_sentence(done: subprocess.CompletedProcess[str], word: str) -> None:
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    ("prepare", "code", "word"),
    [
        ("missing publication", 8, "CREATE PUBLICATION"),
        ("wal_level", 7, "wal_level"),
        ("wrong password", 5, "password"),
    ],
)
def test_what_cannot_run_says_why_in_one_sentence(tmp_path: Path, prepare: str, code: int, word: str) -> None:
    settings = {"wal_level": "replica"} if prepare == "wal_level" else {}
    with EmbeddedPostgres(settings=settings) as server:
        server.psql("CREATE TABLE t (id int PRIMARY KEY)")
        if prepare != "missing publication":
            server.psql("CREATE PUBLICATION wal2lake FOR ALL TABLES")
        dsn = server.dsn
        if prepare == "wrong password":
            dsn = f"{dsn} password=hunter2"
            (server.data_dir / "pg_hba.conf").write_text("local all all scram-sha-256\n")
            os.kill(int((server.data_dir / "postmaster.pid").read_text().split()[0]), signal.SIGHUP)
            eventually(lambda: not _lets_in(server.dsn))
        _wal2lake("init", "--dsn", dsn, folder=tmp_path)
        _assert_one_sentence(_wal2lake("run", folder=tmp_path, code=code), word)
