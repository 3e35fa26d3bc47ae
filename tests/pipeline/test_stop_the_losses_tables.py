"""Whatever one table's data brings out is that table's failure, with its reason; what the input lacks is no table's."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.pipeline.conftest import Site
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import LogCorruptError, LogFullError, SchemaChangeError, Wal2LakeError
from wal2lake.tables.failures import DefectError, SparkLostError

pytestmark = pytest.mark.server

_VALUE = "hunter2"


class Panic(BaseException):
    """As delta-rs panics."""


def two_tables(site: Site) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY, t text)", "INSERT INTO a VALUES (1, 'x')")
    site.sql("CREATE TABLE public.b (id int PRIMARY KEY)", "INSERT INTO b VALUES (1)")
    site.publish("a", "b")


def more(site: Site) -> None:
    site.sql("INSERT INTO a SELECT count(*) + 1, 'y' FROM a", "INSERT INTO b SELECT count(*) + 1 FROM b")


@pytest.mark.spark
def test_a_table_that_loses_its_last_column_is_left_out_by_name(spark_site: Site) -> None:
    site = spark_site
    site.sql("CREATE TABLE public.z (a int)", "CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("z", "b")
    site.run()
    site.sql("ALTER TABLE z DROP a", "INSERT INTO z DEFAULT VALUES", "INSERT INTO b VALUES (1)")
    with pytest.raises(SchemaChangeError, match=r"public\.z.*no column.*resync"):
        site.run()
    site.same("public.b")
    status = site.status()["tables"]["public.z"]
    assert status["state"] == "quarantined" and "no column" in status["reason"]


def test_a_table_without_columns_is_left_out_until_it_has_one(site: Site) -> None:
    site.sql("CREATE TABLE public.z ()", "INSERT INTO z DEFAULT VALUES", "CREATE TABLE public.b (id int)")
    site.publish("z", "b")
    with pytest.raises(SchemaChangeError, match=r"public\.z.*no column"):
        site.run()
    site.same("public.b")
    site.sql("ALTER TABLE z ADD a int DEFAULT 3")
    site.run()
    site.same("public.z", "public.b")


def _of_a(place: str, raised: BaseException, patch: pytest.MonkeyPatch) -> None:
    """Have the function at ``place`` fail whenever it works for public.a."""
    module, _, name = place.rpartition(".")
    target = __import__(module, fromlist=[name])
    whole = getattr(target, name)

    def failing(*arguments: Any, **named: Any) -> Any:
        said = repr(arguments) + " ".join(map(str, arguments))
        if "public/a" in said or "name='a'" in said or "public.a" in said:
            raise raised
        return whole(*arguments, **named)

    patch.setattr(target, name, failing)


_WORK = {
    "decode": ("wal2lake.tables.committed.decode_changes", pa.ArrowInvalid(_VALUE)),
    "fold": ("wal2lake.pipeline.apply.fold", KeyError(_VALUE)),
    "follow": ("wal2lake.tables.evolve.follow", IndexError(_VALUE)),
    "panic": ("wal2lake.pipeline.apply.fold", Panic(_VALUE)),
    "assertion": ("wal2lake.pipeline.apply.standing", AssertionError(_VALUE)),
}


@pytest.mark.parametrize(("kind", "mode"), [*((kind, "mirror") for kind in _WORK), ("decode", "append")])
def test_what_fails_in_one_tables_changes(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: str
) -> None:
    place, raised = _WORK[kind]
    if mode == "append":
        site.configure(tmp_path, mode=mode)
    two_tables(site)
    site.run()
    more(site)
    if kind == "follow":
        site.sql("ALTER TABLE a ADD extra int", "INSERT INTO a VALUES (9)")
    with monkeypatch.context() as patch:
        _of_a(place, raised, patch)
        with pytest.raises(DefectError, match=rf"1 table.*public\.a.*{type(raised).__name__} at ") as told:
            site.run()
    state = site.state("public.a")
    quarantine = state.quarantine
    assert quarantine is not None and state.needs_lsn
    for said in (quarantine.reason, str(told.value)):
        assert _VALUE not in said and "lost or damaged" not in said
    rows = site.lake_table("public.b").num_rows
    assert rows == 2, "the other table goes on"
    site.run()  # once it is mended, the table takes up where it was
    assert site.lake_table("public.a").num_rows == len(site.source("public.a"))


_SNAPSHOT = {
    "plan": ("wal2lake.pipeline.snapshots.plan_snapshot", IndexError(_VALUE)),
    "decode": ("wal2lake.tables.chunk_copy.iter_copy_rows", UnicodeDecodeError("utf-8", b"x", 0, 1, _VALUE)),
    "write": ("wal2lake.sinks.delta.write_data_files", pa.ArrowInvalid(_VALUE)),
    "land": ("wal2lake.pipeline.snapshots.land_snapshot", TypeError(_VALUE)),
}


@pytest.mark.parametrize("kind", _SNAPSHOT)
def test_what_fails_in_one_tables_snapshot(site: Site, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    two_tables(site)
    with monkeypatch.context() as patch:
        _of_a(*_SNAPSHOT[kind], patch)
        if kind == "write":
            patch.setattr("wal2lake.sinks.folder.Folder.__repr__", lambda folder: folder.uri, raising=False)
        with pytest.raises(DefectError, match=r"1 table.*public\.a") as told:
            site.run()
    assert _VALUE not in str(told.value)
    site.same("public.b")
    site.run()
    site.same("public.a", "public.b")


def _segment_of_garbage(site: Site, patch: pytest.MonkeyPatch) -> None:
    last = sorted((Path(site.config.log.path) / "segments").iterdir())[-1]
    last.write_bytes(b"\xff" * last.stat().st_size)


def _reads(error: BaseException) -> Callable[[Site, pytest.MonkeyPatch], None]:
    def spoil(site: Site, patch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any) -> Any:
            raise error

        patch.setattr(ChangeLog, "read", fail)

    return spoil


def _folds(error: BaseException) -> Callable[[Site, pytest.MonkeyPatch], None]:
    def spoil(site: Site, patch: pytest.MonkeyPatch) -> None:
        for name in ("fold", "envelope"):
            _of_a(f"wal2lake.pipeline.apply.{name}", error, patch)

    return spoil


_INPUT: dict[str, tuple[Callable[[Site, pytest.MonkeyPatch], None], type[Wal2LakeError], str]] = {
    "device": (_reads(OSError(errno.EIO, "Input/output error")), SparkLostError, "change log .* cannot be read now"),
    "damage": (_reads(IndexError(_VALUE)), LogCorruptError, "change log .* cannot be read: IndexError"),
    "arrow": (_reads(pa.ArrowInvalid(_VALUE)), LogCorruptError, "change log"),
    "garbage": (_segment_of_garbage, LogCorruptError, "change log"),
    "memory": (_folds(MemoryError()), SparkLostError, "Memory ran out.*public.a"),
    "arrow memory": (_folds(pa.ArrowMemoryError()), SparkLostError, "Memory ran out"),
    "disk": (_folds(OSError(errno.ENOSPC, "No space left")), LogFullError, "disk is full"),
}


_BOTH_MODES = [*((kind, "mirror") for kind in _INPUT), ("device", "append"), ("memory", "append")]


@pytest.mark.parametrize(("kind", "mode"), _BOTH_MODES)
def test_what_fails_in_the_input_is_no_tables_fault(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: str
) -> None:
    spoil, expected, said = _INPUT[kind]
    site.configure(tmp_path, mode=mode)
    two_tables(site)
    site.run()
    log = ChangeLog.open(site.config.log.path)
    batches = site.batches(log)
    batches.discover(site.position or log.start_lsn)
    more(site)
    site.capture()
    end = ChangeLog.open(site.config.log.path).last_end_lsn
    with monkeypatch.context() as patch:
        spoil(site, patch)
        with pytest.raises(expected, match=said) as told:
            batches.apply(site.position or log.start_lsn, end)
    assert "lost or damaged" not in str(told.value) and _VALUE not in str(told.value)
    assert site.state("public.a").quarantine is site.state("public.b").quarantine is None
