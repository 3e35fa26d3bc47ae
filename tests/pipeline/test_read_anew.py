"""What cannot be followed is read anew beside the stream, and one commit puts it in the place of what was there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.pipeline.conftest import Site
from wal2lake.errors import SchemaChangeError
from wal2lake.sinks.base import TargetError
from wal2lake.sinks.delta import DeltaSink
from wal2lake.tables.evolve import Follower
from wal2lake.tables.table import Table

pytestmark = pytest.mark.server

CHANGES = {
    "a column renamed": ("ALTER TABLE t RENAME v TO w",),
    "rewritten": ("ALTER TABLE t ALTER v TYPE int USING length(v)",),
    "a column added, and then another rewritten": (
        "ALTER TABLE t ADD m int",
        "INSERT INTO t VALUES (8, 8, 'h', 8)",
        "ALTER TABLE t ALTER n TYPE bigint",
        "UPDATE t SET m = 1",
    ),
    "a column added, and then itself rewritten": (
        "ALTER TABLE t ADD m int DEFAULT 5",
        "INSERT INTO t VALUES (8, 8, 'h', 8)",
        "ALTER TABLE t ALTER m TYPE text",
        "INSERT INTO t VALUES (7, 7, 'g', 'x')",
    ),
    "another key": ("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (n)"),
    "another table": (
        "DROP TABLE t",
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "ALTER PUBLICATION pub ADD TABLE t",
    ),
    "without columns and with others": ("ALTER TABLE t DROP v", "ALTER TABLE t ADD v int DEFAULT random() * 9"),
}


def lake(site: Site, version: int | None = None) -> DeltaTable:
    return DeltaTable(f"{site.config.lake.path}/public/t", version=version)


def snapshots(site: Site) -> list[int]:
    """The versions that began with the rows of a snapshot: the first, and those that put another one in its place."""
    log = Path(site.config.lake.path) / "public/t/_delta_log"
    return [int(file.stem) for file in sorted(log.glob("*.json")) if "wal2lake-snapshot" in file.read_text()]


@pytest.fixture
def filled(site: Site) -> Site:
    return fill(site)


def fill(site: Site) -> Site:
    """t and other are in the lake; t's first two versions hold two rows and three."""
    site.configure_pipeline(on_unfollowable="resync")
    site.sql("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, v text)", "CREATE TABLE other (id int PRIMARY KEY)")
    site.sql("INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b')")
    site.publish("t", "other")
    site.run()
    site.sql("INSERT INTO t VALUES (3, 30, 'c')", "INSERT INTO other VALUES (1)")
    site.run()
    return site


def write(site: Site) -> None:
    """Another row of t, however it is now."""
    site.sql("INSERT INTO t (id, n) VALUES (9, 90)", "INSERT INTO other VALUES (2)")


@pytest.mark.parametrize("what", CHANGES)
def test_it_is_swapped_in_by_one_commit(filled: Site, what: str) -> None:
    site, before = filled, lake(filled)
    site.sql(*CHANGES[what])
    write(site)
    site.run()
    site.same("public.t", "public.other")
    versions, (_, swapped) = lake(site).history(), snapshots(site)
    past = [int(entry["wal2lake.lsn"].partition("/")[2], 16) for entry in versions if "wal2lake.lsn" in entry]
    assert past == sorted(past, reverse=True), "no LSN goes back"
    assert lake(site, before.version()).to_pyarrow_table().num_rows == 3
    assert lake(site, swapped - 1).to_pyarrow_table().column_names == ["id", "n", "v"]
    state = site.state("public.t")
    assert state.stage == "ready"
    assert state.anew is not None
    assert state.anew.error == "SchemaChangeError"
    site.sql("UPDATE t SET n = n + 1 WHERE id = 9")
    site.run()
    site.same("public.t")


def test_with_spark(spark_site: Site) -> None:
    site = fill(spark_site)
    site.sql("ALTER TABLE t RENAME v TO w")
    write(site)
    site.run()
    site.same("public.t", "public.other")
    assert site.status()["tables"]["public.t"]["state"] == "streaming"


def test_until_then_the_lake_has_what_it_had(filled: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site, seen = filled, []

    def looking(sink: DeltaSink, *arguments: Any, **named: Any) -> Any:
        if sink.uri.endswith("/t"):
            seen.append(site.lake("public.t"))
            assert site.state("public.t").anew is not None
        return real(sink, *arguments, **named)

    real = DeltaSink.replace_files
    write(site)
    site.run()
    before = site.lake("public.t")
    site.sql("ALTER TABLE t RENAME v TO w", "UPDATE t SET w = 'new'")
    monkeypatch.setattr(DeltaSink, "replace_files", looking)
    site.run()
    assert seen[0] == before
    site.same("public.t")


@pytest.mark.parametrize("where", [(DeltaSink, "replace_files"), (Table, "land")], ids=["before", "after"])
@pytest.mark.parametrize("commits_meanwhile", [False, True])
def test_whoever_dies_around_the_commit_is_continued(
    filled: Site, monkeypatch: pytest.MonkeyPatch, where: tuple[Any, str], commits_meanwhile: bool
) -> None:
    site = filled
    site.sql("ALTER TABLE t RENAME v TO w")
    write(site)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*where, _die)
        site.run()
    assert site.state("public.t").landed is None
    if commits_meanwhile:
        site.sql("UPDATE t SET w = 'later', id = id + 100 WHERE id < 3", "DELETE FROM t WHERE id = 3")
    site.run()
    site.same("public.t", "public.other")
    assert len(snapshots(site)) == 2


def test_one_that_is_too_large_is_left_out(filled: Site) -> None:
    site = filled
    site.configure_pipeline(on_unfollowable="resync", resync_max_bytes=1)
    site.sql("ALTER TABLE t RENAME v TO w")
    write(site)
    for _ in range(2):
        with pytest.raises(SchemaChangeError, match=r"v was renamed.*resync_max_bytes \(1\) lets"):
            site.run()
        assert site.lake_table("public.t").column_names == ["id", "n", "v"]
    site.configure_pipeline(resync_max_bytes=1 << 20)
    site.run()
    site.same("public.t", "public.other")


def test_what_reading_does_not_mend_is_not_read_for_ever(filled: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site = filled
    with monkeypatch.context() as patch:
        patch.setattr(Follower, "follow", _doubt)
        for _ in range(2):
            site.sql("UPDATE t SET n = n + 1")
            with pytest.raises(SchemaChangeError, match="Who knows\\? It was read anew 3 times, and never caught up"):
                site.run()
            assert len(snapshots(site)) == 4
    site.run()
    site.same("public.t")
    anew = site.state("public.t").anew
    assert anew is not None
    assert anew.times == 0


def test_a_history_is_never_replaced(site: Site) -> None:
    site.configure(Path(site.config.lake.path).parent, mode="append", on_unfollowable="resync")
    fill(site)
    rows = site.lake_table("public.t").num_rows
    site.sql("ALTER TABLE t RENAME v TO w")
    write(site)
    with pytest.raises(SchemaChangeError, match="renamed"):
        site.run()
    assert site.lake_table("public.t").num_rows == rows
    site.folder("public.t").write(type(site.state("public.t"))())
    with pytest.raises(TargetError, match="is a history, of which nothing is replaced"):
        site.run()
    assert site.lake_table("public.t").num_rows == rows


def test_where_it_is_forbidden_it_is_left_out(filled: Site) -> None:
    site = filled
    site.configure_pipeline(on_unfollowable="quarantine")
    site.sql("ALTER TABLE t RENAME v TO w")
    write(site)
    with pytest.raises(SchemaChangeError, match="renamed"):
        site.run()
    assert site.state("public.t").anew is None
    assert site.lake_table("public.t").num_rows == 3


def _doubt(follower: Follower, *arguments: object, **named: object) -> dict[str, Any]:
    if str(follower.table) == "public.t":
        raise SchemaChangeError("Who knows?")
    return {}


def _die(*arguments: object, **named: object) -> None:
    raise KeyboardInterrupt
