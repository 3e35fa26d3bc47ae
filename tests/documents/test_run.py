"""The pages, followed word for word from their first command to their last; only the server is ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from deltalake import DeltaTable

from tests.documents.shell import Shell, follow, libpq, streaming, to_run
from tests.documents.shown import ROOT, Shown, acknowledged, ran, run, run_until
from tests.pipeline.conftest import Site, opened
from tests.waiting import eventually
from wal2lake.changelog.log import ChangeLog
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import versioned_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.documents, pytest.mark.server, pytest.mark.slow]

SETTINGS = {"max_replication_slots": "50", "max_wal_senders": "50"}
RUN = "wal2lake run"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """One with contrib, for test_decoding."""
    with versioned_server(18, SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of this tree, where pip finds it."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [Path(sys.executable).parent / "uv", "build", "--quiet", "--wheel", "--out-dir", folder, ROOT]
    subprocess.run([*map(str, command)], check=True)
    return folder


def _pip(wheels: Path) -> dict[str, str]:
    """Where pip finds us, and what keeps it from work that is not needed for once."""
    return {"PIP_FIND_LINKS": str(wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1"}


def rows(folder: Path, table: str) -> int:
    path = folder / "wal2lake/lake/public" / table
    return DeltaTable(str(path)).to_pyarrow_table().num_rows if (path / "_delta_log").exists() else -1


def test_the_tutorial(server: EmbeddedPostgres, wheels: Path, tmp_path: Path) -> None:
    variables = libpq(server) | _pip(wheels)
    log = tmp_path / "wal2lake/log"
    with Shell(tmp_path, server, **variables) as shell:

        def run(_: Shown, text: str) -> None:
            shell.begin(text)
            eventually(
                lambda: streaming(log), timeout_s=300, poll_s=0.5, alive=lambda: "wal2lake: " not in shell.said()
            )

        def sql(text: str) -> None:
            server.psql(text, database="shop")
            if "UPDATE orders SET status" in text:
                eventually(lambda: (rows(tmp_path, "orders"), rows(tmp_path, "customers")) == (990, 101), timeout_s=120)
            elif "ADD COLUMN" in text:
                orders = str(tmp_path / "wal2lake/lake/public/orders")
                eventually(lambda: "note" in DeltaTable(orders).schema().to_json(), timeout_s=120, poll_s=0.2)

        def python(text: str) -> None:
            (tmp_path / "look.py").write_text(text)
            said = shell.type("python look.py")
            assert "paid" in said and "980" in said, said

        def verify(_: Shown, text: str) -> None:
            shell.type(text)
            follow(to_run("docs/verify.md"), shell, ours={"shop.orders": "public.orders"})
            follow(to_run("docs/reading.md", "sh"), shell)
            assert "USING DELTA LOCATION" in (tmp_path / "tables.sql").read_text()

        def drop(_: Shown, text: str) -> None:
            shell.end(RUN)
            shell.type(text)

        follow(
            to_run("docs/tutorial.md"), shell,
            ours={"PGHOST=127.0.0.1 PGUSER=postgres PGPASSWORD=secret": f"PGHOST={variables['PGHOST']}"},
            special={
                RUN: run, "wal2lake verify": verify, "wal2lake drop": drop,
                "wal2lake check --sql": lambda _, text: shell.type(text, code=1),
            },
            otherwise={"sql": sql, "python": python},
        )  # fmt: skip
    assert server.psql("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'wal2lake'") == "0"


SUDO = """#!/bin/sh
[ "$1" = -H ] && export HOME=/var/lib/wal2lake && shift
if [ "$1" = -u ]; then user=$2; shift 2; exec setpriv --reuid="$user" --regid="$user" --init-groups "$@"; fi
exec "$@"
"""
# What the page installs is seen by its own processes alone.
NAMESPACE = """
cp -a /etc etc && mount --bind etc /etc
mkdir opt lib && chmod 755 opt lib && mount --bind opt /opt && mount --bind lib /var/lib
"""


@pytest.fixture
def service(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """The server, which keeps no slot of the service however the test ends: `check` would find it for others."""
    server.psql("CREATE DATABASE service")
    yield server
    slots = "FROM pg_replication_slots WHERE database = 'service'"
    eventually(lambda: server.psql(f"SELECT count(*) {slots} AND active") == "0")  # a walsender outlives its client
    server.psql(f"SELECT pg_drop_replication_slot(slot_name) {slots}")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_the_service_is_installed(service: EmbeddedPostgres, wheels: Path, tmp_path: Path) -> None:
    server = service
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sudo").write_text(SUDO)
    (tmp_path / "bin/sudo").chmod(0o755)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    server.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION wal2lake FOR ALL TABLES", database="service")
    password = server.tcp_dsn.partition("password=")[2].split()[0]
    ours = {
        "host=db.example.com dbname=shop user=wal2lake sslmode=verify-full":
            f"host=127.0.0.1 port={server.port} dbname=service user=postgres",
        "db.example.com:5432:*:wal2lake:the password": f"127.0.0.1:{server.port}:*:postgres:{password}",
    }  # fmt: skip
    variables = _pip(wheels)
    with Shell(tmp_path, server, within=["unshare", "-m"], **variables) as shell:
        shell.type(f'export PATH="{tmp_path}/bin:/usr/bin:$PATH" && umask 022 {NAMESPACE}')

        def status(item: Shown, text: str) -> None:
            if " status " not in item.text:
                shell.type(text)
                return
            (unit,) = [
                line for line in (ROOT / "deploy/wal2lake.service").read_text().splitlines() if "ExecStart=" in line
            ]
            start = f"sudo -H -u wal2lake {unit.partition('=')[2]}"
            shell.begin(start)
            log = tmp_path / "lib/wal2lake/wal2lake/log"
            eventually(
                lambda: streaming(log), timeout_s=300, poll_s=0.5, alive=lambda: "wal2lake: " not in shell.said()
            )
            shell.type(text)
            shell.end(start)

        follow(to_run("docs/service.md"), shell, ours=ours, special={"sudo -H": status})
    assert (tmp_path / "etc/systemd/system/wal2lake.service").exists()


@pytest.fixture
def shop(server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A mirror of orders and customers, as `wal2lake init` lays it out; the pages' publication is there as well."""
    with opened(Site(server, tmp_path / "wal2lake"), server) as site:
        monkeypatch.chdir(tmp_path)
        site.sql(
            "CREATE SCHEMA shop",
            "CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric(10, 2))",
            "CREATE TABLE customers (id int PRIMARY KEY, name text)",
            "CREATE TABLE shop.orders (id int PRIMARY KEY, status text)",
            "INSERT INTO orders SELECT i, 'new', i FROM generate_series(1, 20) i",
            "INSERT INTO customers SELECT i, 'customer ' || i FROM generate_series(1, 5) i",
            "CREATE PUBLICATION shop FOR ALL TABLES",
        )
        site.publish("orders", "customers", "shop.orders")
        site.run()
        site.sql("UPDATE orders SET status = 'paid' WHERE id < 4", "INSERT INTO shop.orders VALUES (1, 'new')")
        site.run()
        site.sql("UPDATE customers SET name = 'another' WHERE id = 1")
        site.run()
        (tmp_path / "wal2lake.toml").write_text(
            f'[source]\ndsn = "{site.dsn}"\npublication = "pub"\nslot = "{site.name}"\n'
        )
        yield site


def variables(site: Site, server: EmbeddedPostgres) -> dict[str, str]:
    return libpq(server, site.name)


def test_the_log_its_consumers_and_single_tables(shop: Site, server: EmbeddedPostgres, tmp_path: Path) -> None:
    log = ChangeLog.open(shop.config.log.path)
    log.release("old_name", log.start_lsn)
    end = {"0/1A2B3C4": str(log.last_end_lsn)}
    with Shell(tmp_path, server, **variables(shop, server)) as shell:
        for page in ("docs/changelog.md", "docs/schema-changes.md", "docs/reading.md"):
            follow(to_run(page, "sh"), shell)
        items = [item for item in to_run("docs/plugins.md", "sh") if "log decode" in item.text]
        follow(items, shell, ours=end)
        follow(to_run("docs/sizing.md"), shell)
        follow(to_run("docs/status.md"), shell)
    assert [entry["consumer"] for entry in json.loads(_wal2lake(tmp_path, "log", "consumers", "--json"))] != [
        "old_name"
    ]


def _wal2lake(folder: Path, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "wal2lake", *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def test_the_protocol_s_commands(shop: Site, server: EmbeddedPostgres, tmp_path: Path) -> None:
    plugin = next(item for item in to_run("docs/plugins.md", "python") if "class Counting" in item.text)
    (tmp_path / "counting.py").write_text(plugin.text)
    items = [*to_run("docs/live.md", "sh"), *(i for i in to_run("docs/plugins.md", "sh") if "recv" in i.text)]
    shop.sql("SELECT pg_create_logical_replication_slot('other', 'test_decoding')")
    with Shell(tmp_path, server, **variables(shop, server)) as shell:

        def stream(item: Shown, text: str) -> None:
            shop.sql("INSERT INTO shop.orders SELECT max(id) + 1, 'streamed' FROM shop.orders")
            if "--until-lsn" in text:  # the slot is made before there is anything behind it
                shell.type(text.replace("0/1A2B3C4", _wal_end(server)))
                return
            shell.begin(text)
            file = tmp_path / ("changes.txt" if "--file" in text else "said")
            word = "shop.orders I" if "Counting" in text else "streamed"

            def changed() -> bool:
                shop.sql("INSERT INTO shop.orders SELECT max(id) + 1, 'streamed' FROM shop.orders")
                return file.exists() and word in file.read_text()

            eventually(changed, timeout_s=60, poll_s=0.5)
            shell.end(text)

        def receive(_: Shown, text: str) -> None:
            if "--create-slot" in text:
                shell.type(text)
                return
            (tmp_path / "archive").mkdir(exist_ok=True)
            shell.begin(text)
            eventually(lambda: list((tmp_path / "archive").glob("*.partial")), timeout_s=60)
            server.psql("SELECT pg_switch_wal()")
            eventually(lambda: [f for f in (tmp_path / "archive").iterdir() if f.suffix == ""], timeout_s=60)
            shell.end(text)

        follow(items, shell, special={"wal2lake recv ": stream, "wal2lake receivewal": receive})
        shell.type("wal2lake slots drop walled")


def _wal_end(server: EmbeddedPostgres) -> str:
    return server.psql("SELECT pg_current_wal_flush_lsn()")


def test_a_plugin_in_a_program(shop: Site, server: EmbeddedPostgres) -> None:
    (item,) = [item for item in to_run("docs/plugins.md", "python") if "with ThreadedLogicalStream" in item.text]
    shop.sql("SELECT pg_create_logical_replication_slot('mine', 'pgoutput')", "INSERT INTO shop.orders VALUES (7, 'x')")
    run_until(acknowledged(server, "mine"), item, {"dsn": shop.dsn})


def test_the_readers(shop: Site, tmp_path: Path) -> None:
    names: dict[str, object] = {}
    for item in to_run("docs/reading.md", "python"):
        run(item, names)
    assert names["frame"].shape == (20, 3)  # type: ignore[attr-defined]
    assert names["rows_then"] == 20
    versions = [names[name].to_pyarrow_table().num_rows for name in ("orders", "customers")]  # type: ignore[attr-defined]
    assert versions == [20, 5]


def completed(block: Callable[[], object]) -> None:
    """A starved machine does not start Spark's Python within the ten seconds that it has; then once more."""
    from pyspark.errors import StreamingQueryException

    for _ in range(20):
        try:
            block()
            return
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    raise AssertionError("The machine starts no Python within ten seconds, twenty times over.")


def test_the_data_source(shop: Site, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A JVM that runs already has a folder of its own, so the pages' relative paths become whole ones."""
    names: dict[str, Any] = {"spark": spark}
    for page, word in (("README.md", "readStream"), ("docs/plugins.md", "readStream"), ("docs/spark.md", "")):
        for item in to_run(page, "python"):
            if word in item.text:
                whole = item.text
                for path in ('"wal2lake/log"', '"orders"', '"orders_checkpoint"'):
                    whole = whole.replace(path, f'"{tmp_path}/{path.strip(chr(34))}"')
                completed(lambda whole=whole, page=page: exec(compile(whole, page, "exec"), names))
                ran(item)
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 1
    assert names["rows"].isStreaming and "data" in names["rows"].columns


def test_sql_for_the_server(server: EmbeddedPostgres, tmp_path: Path) -> None:
    server.psql("CREATE DATABASE sqlpages")
    server.psql(
        "CREATE TABLE customers (id int PRIMARY KEY, name text, email text);"
        "CREATE TABLE orders (id int, total numeric, PRIMARY KEY (id, total));"
        "CREATE TABLE invoices (id int PRIMARY KEY);"
        "CREATE TABLE events (number int NOT NULL UNIQUE); CREATE TABLE notes (t text)",
        database="sqlpages",
    )
    for page in ("docs/publications.md", "docs/managed.md"):
        for item in to_run(page, "sql"):
            server.psql(
                "DROP PUBLICATION IF EXISTS wal2lake" if "CREATE ROLE" in item.text else "", database="sqlpages"
            )
            server.psql(item.text, database="sqlpages")
            ran(item)
    dsn = f"host=127.0.0.1 port={server.port} dbname=sqlpages user=wal2lake password=secret"
    theirs = "host=db.example.com dbname=shop user=wal2lake sslmode=verify-full"
    theirs += " sslrootcert=/etc/ssl/certs/ca-certificates.crt"
    with Shell(tmp_path, server) as shell:
        follow(to_run("docs/managed.md", "sh"), shell, ours={theirs: dsn})
        server.psql("DROP DATABASE sqlpages WITH (FORCE)")


def test_a_history(server: EmbeddedPostgres, tmp_path: Path) -> None:
    query, moment = to_run("docs/history.md", "sql")
    with Shell(tmp_path, server) as shell:
        follow(to_run("docs/history.md", "sh"), shell)
    assert 'mode = "append"' in (tmp_path / "wal2lake.toml").read_text()
    with opened(Site(server, tmp_path), server) as site:
        site.configure(tmp_path, mode="append")
        site.sql(
            "CREATE TABLE orders (id int PRIMARY KEY, status text, note text)",
            "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL",
            "INSERT INTO orders SELECT g, 'new', repeat('x', 5000) FROM generate_series(1, 3) g",
        )
        site.publish("orders")
        site.run()
        site.sql("UPDATE orders SET status = 'paid' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
        site.sql(
            "INSERT INTO orders VALUES (2, 'again', 'n')", "TRUNCATE orders", "INSERT INTO orders VALUES (9, 'new', '')"
        )
        site.run()
        with duckdb.connect() as connection:
            connection.register("orders", site.lake_table("public.orders"))
            found = connection.execute(query.text).fetchall()
            ran(query)
            connection.execute(f"CREATE VIEW history AS {query.text}")
            assert connection.execute(moment.text).fetchall() == [(1, "new"), (2, "new"), (3, "new")]
            ran(moment)
    long = "x" * 5000
    assert [(row[:3], row[3] is None, row[4] is None) for row in found] == [
        ((1, "new", long), True, False), ((1, "paid", long), False, False), ((2, "new", long), True, False),
        ((2, "again", "n"), False, False), ((3, "new", long), True, False), ((9, "new", ""), False, True),
    ]  # fmt: skip
    times = [row[3:] for row in found]
    assert times[0][1] == times[1][0] and times[1][1] == times[4][1] == times[3][1]


def test_what_is_left_of_the_container_s_page(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        follow(to_run("docs/container.md"), shell)
        assert shell.type('echo "$PGPASSWORD"').strip() == "secret"


def test_what_stands_on_two_pages_is_the_same() -> None:
    """Those commands are run for one of them, word for word."""
    again = {item.text for item in to_run("docs/moving.md", "sh")}
    for item in to_run("docs/recovery.md", "sh"):
        assert item.text in again or item.text.startswith("wal2lake demo "), item
