"""What somebody wants of a table is done by whoever runs the pipeline: read anew, tried again, or left out."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from tests.pipeline.conftest import LocalEngine, LocalStream, Site
from wal2lake.changelog.requests import Requests
from wal2lake.cli.main import app
from wal2lake.errors import ConfigError, SchemaChangeError, UnrepresentableError
from wal2lake.pipeline.loop import Pipeline
from wal2lake.sinks.base import TargetError
from wal2lake.tables.asking import ask
from wal2lake.tables.exclusive import exclusive
from wal2lake.tables.listing import list_tables
from wal2lake.tables.target import Target

pytestmark = pytest.mark.server


@pytest.fixture
def renamed(site: Site) -> Site:
    """t is quarantined for a renamed column, other goes on."""
    site.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE other (id int PRIMARY KEY)")
    site.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    site.publish("t", "other")
    site.run()
    site.sql("ALTER TABLE t RENAME v TO w", "UPDATE t SET w = 'c' WHERE id = 1", "INSERT INTO other VALUES (1)")
    with pytest.raises(SchemaChangeError, match="wal2lake resync"):
        site.run()
    return site


def test_a_quarantined_table_is_read_anew_by_the_next_run(renamed: Site) -> None:
    site = renamed
    others_version = DeltaTable(f"{site.config.lake.path}/public/other").version()
    version = DeltaTable(f"{site.config.lake.path}/public/t").version()
    assert ask(site.config, ["public.t", "public.t"], "resync") == ["public.t"]
    site.sql("DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (3, 'd')")
    site.run()
    site.same("public.t", "public.other")
    assert site.lake_table("public.t").column_names == ["id", "w"]
    past = DeltaTable(f"{site.config.lake.path}/public/t", version=version).to_pyarrow_table()
    assert past.column_names == ["id", "v"]
    assert DeltaTable(f"{site.config.lake.path}/public/other").version() == others_version
    assert list(Requests(site.config.log.path, site.config.pipeline.name).all()) == []
    site.sql("UPDATE t SET w = NULL WHERE id = 3")
    site.run()
    site.same("public.t")


def test_also_when_what_is_known_of_it_is_damaged(renamed: Site) -> None:
    site = renamed
    (site.documents("public.t") / "state.json").write_bytes(b"torn")
    ask(site.config, ["public.t"], "resync")
    site.run()
    site.same("public.t", "public.other")


def test_all_while_the_pipeline_runs(renamed: Site) -> None:
    site = renamed
    ask(site.config, [], "resync")
    site.run()
    versions = {name: len(snapshots(site, name)) for name in ("t", "other")}
    assert versions == {"t": 2, "other": 2}
    batches = site.batches(site.log())
    batches.discover(site.position)
    ask(site.config, [], "resync")
    site.sql("INSERT INTO t VALUES (7, 'seven')")
    batches.tables.answer(site.position)
    assert [table.state.stage for table in batches.tables] == ["init", "init"]
    site.apply(batches)
    site.synchronize(batches)
    site.same("public.t", "public.other")
    assert {name: len(snapshots(site, name)) for name in ("t", "other")} == {"t": 3, "other": 3}


def test_a_pipeline_that_runs_hears_of_it(renamed: Site) -> None:
    site = renamed
    pipeline = Pipeline(site.config, AskedMeanwhile(site), threading.Event())
    with pytest.raises(SchemaChangeError):
        pipeline.run(available_now=True)
    assert list(Requests(site.config.log.path, site.config.pipeline.name).all()) == []
    assert [row.state for row in list_tables(site.config)] == ["skipped", "quarantined"]


def test_a_table_that_is_skipped_stays_out_and_comes_back(left_out: Site) -> None:
    """It is no failure, the log keeps nothing for it, and no start tries it again."""
    site = left_out
    ask(site.config, ["public.a"], "skip")
    for _ in range(2):
        site.sql("INSERT INTO b SELECT coalesce(max(id), 0) + 1 FROM b")
        site.run()
    assert list(site.log().released()) == []
    [a, b] = list_tables(site.config)
    assert (a.state, a.needs_lsn, b.state) == ("skipped", None, "ready")
    ask(site.config, ["public.a"], "retry")
    with pytest.raises(UnrepresentableError):
        site.run()
    site.sql("DELETE FROM a WHERE id = 0", "INSERT INTO a VALUES (1, '2024-01-01')")
    site.run()
    site.same("public.a", "public.b")


def test_it_is_tried_again_while_the_pipeline_runs(left_out: Site) -> None:
    site = left_out
    batches = site.batches(site.log())
    with pytest.raises(UnrepresentableError):
        batches.discover(site.position)
        site.synchronize(batches)
        batches.require_none_quarantined()
    site.configure_pipeline(unrepresentable="null")
    batches = site.batches(site.log())
    ask(site.config, ["public.a"], "retry")
    batches.discover(site.position)
    site.synchronize(batches)
    batches.require_none_quarantined()
    assert site.lake("public.a") == [(0, None)]


def test_a_history_is_not_read_anew_where_it_stands(site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    site.configure(tmp_path_factory.mktemp("append"), mode="append")
    site.sql("CREATE TABLE t (id int PRIMARY KEY)")
    site.publish("t")
    site.run()
    with pytest.raises(ConfigError, match=r"is a history in append mode.*Move .*/public/t away"):
        ask(site.config, [], "resync")


def test_the_commands(renamed: Site) -> None:
    site = renamed
    flags = ["--log", site.config.log.path, "--lake", site.config.lake.path]
    run = CliRunner().invoke
    listed = run(app, ["tables", "--json", *flags])
    rows = {row["table"]: row for row in json.loads(listed.stdout)}
    assert {name: row["state"] for name, row in rows.items()} == {"public.other": "ready", "public.t": "quarantined"}
    assert "renamed" in rows["public.t"]["reason"]
    assert rows["public.t"]["needs_lsn"]
    assert abs(time.mktime(time.strptime(rows["public.t"]["since"], "%Y-%m-%dT%H:%M:%SZ")) - time.time()) < 86_400 * 2
    with exclusive(site.config):
        asked = run(app, ["resync", "public.t", "--json", *flags])
    assert json.loads(asked.stdout) == {"resync": ["public.t"]}
    assert "by the pipeline that runs" in asked.stderr
    assert "public.t" in run(app, ["tables", *flags]).stdout
    place = f"{site.config.lake.path}/public/other"
    assert f"`public`.`other` USING DELTA LOCATION '{place}';" in run(app, ["tables", "--sql", "spark", *flags]).stdout
    wrong = [
        ["--sql", "spark", "--skip"],
        ["--catalog", "x"],
        ["--retry"],
        ["--all"],
        ["public.x"],
        ["--retry", "public.x"],
        ["--retry", "--skip", "--all"],
    ]
    for words in wrong:
        assert isinstance(run(app, ["tables", *words, *flags]).exception, ConfigError), words
    with pytest.raises(ConfigError, match=r"knows no table public\.x.*public\.other, public\.t"):
        ask(site.config, ["public.t", "public.x"], "resync")


class AskedMeanwhile(LocalEngine):
    def stream(self, *arguments: Any, **named: Any) -> LocalStream:
        ask(self.site.config, ["public.other"], "skip")
        return super().stream(*arguments, **named)


def snapshots(site: Site, name: str) -> list[str]:
    """The commits that began with the rows of a snapshot."""
    return [
        file.name
        for file in (site.folder_of_lake(name) / "_delta_log").glob("*.json")
        if "wal2lake-snapshot" in file.read_text()
    ]


def test_a_lake_of_a_server_whose_wal_was_longer_is_taken_over_by_resync(site: Site) -> None:
    """The new server's LSNs are lower than the lake's: what it writes until they are reached is not passed over."""
    site.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    site.publish("t")
    site.run()
    sink = Target.of(site.config, "public", "t").sink()
    state = sink.state()
    assert state is not None
    beyond = state.applied_lsn + (1 << 40)
    sink.commit_files([], beyond, state.schema, state.applied_lsn)
    site.begin_new_log()
    with pytest.raises(TargetError, match="`wal2lake resync` it"):
        site.run()
    assert ask(site.config, [], "resync") == ["public.t"]
    site.sql("INSERT INTO t VALUES (2)")
    site.run()
    site.sql("INSERT INTO t VALUES (3)")
    site.run()
    site.same("public.t")
    found = sink.state()
    assert found is not None and found.applied_lsn < beyond
