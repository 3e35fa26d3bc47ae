"""A power cut tears Spark's checkpoint: it is put aside, and the stream begins where the log does."""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.changelog.test_stop_the_losses import bits_flipped
from tests.pipeline.conftest import Site
from wal2lake.changelog.log import ChangeLog
from wal2lake.spark.checkpoint import committed_lsn, require_readable

OFFSET = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"lsn": %d0}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Three batches were begun, two are done, up to 10; the first is gone, as Spark removes old ones."""
    path = tmp_path / "checkpoints" / "p"
    for folder in ("offsets", "commits"):
        (path / folder).mkdir(parents=True)
    (path / "metadata").write_text('{"id":"7ec8d944"}')
    for number in (1, 2, 3):
        (path / f"offsets/{number}").write_text(OFFSET % number)
        (path / f"offsets/.{number}.crc").write_bytes(b"crc")
    for number in (1, 2):
        (path / f"commits/{number}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return path


def set_aside(checkpoint: Path, beginning: int = 0) -> bool:
    require_readable(checkpoint, beginning)
    return not checkpoint.exists() and len(list(checkpoint.parent.glob("p~unreadable-*"))) == 1


def test_a_whole_one_is_kept_without_its_checksums(checkpoint: Path) -> None:
    assert not set_aside(checkpoint)
    assert committed_lsn(checkpoint) == 20
    assert not list(checkpoint.rglob("*.crc"))


def test_none_is_kept_as_it_is(tmp_path: Path) -> None:
    require_readable(tmp_path / "none", 5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["offsets/1", "offsets/2", "offsets/3", "commits/1", "commits/2", "metadata"])
@pytest.mark.parametrize("left", [0, 0.2, 0.9])
@pytest.mark.parametrize("filled", [False, True], ids=["cut", "zeros"])
def test_an_empty_or_torn_file_is_noticed(checkpoint: Path, name: str, left: float, filled: bool) -> None:
    whole = (checkpoint / name).read_bytes()
    kept = whole[: int(len(whole) * left)]
    (checkpoint / name).write_bytes(kept.ljust(len(whole), b"\0") if filled else kept)
    assert committed_lsn(checkpoint) in (20, None)
    assert set_aside(checkpoint)


@pytest.mark.parametrize(
    ("name", "text"),
    [("offsets/3", "v1\n{}\n[1]"), ("offsets/3", "v1\n{}\n{}"), ("commits/2", "v1"), ("metadata", "[]")],
)
def test_another_documents_json_is_noticed(checkpoint: Path, name: str, text: str) -> None:
    (checkpoint / name).write_text(text)
    assert set_aside(checkpoint)


@pytest.mark.parametrize("name", ["offsets/2", "offsets/3"])
def test_a_missing_file_is_noticed_where_spark_needs_it(checkpoint: Path, name: str) -> None:
    if name == "offsets/3":
        (checkpoint / "commits/3").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (checkpoint / name).unlink()
    assert committed_lsn(checkpoint) is None
    assert set_aside(checkpoint)


def test_one_that_retention_has_overtaken_is_put_aside(checkpoint: Path) -> None:
    assert not set_aside(checkpoint, 20)
    assert set_aside(checkpoint, 21)


@pytest.mark.parametrize("name", ["offsets/2", "offsets/3", "commits/2", "metadata"])
def test_stop_the_losses_of_any_flipped_bit(checkpoint: Path, name: str) -> None:
    """An offset that is too high, and the stream would begin behind changes that no table has."""
    file = checkpoint / name
    whole = file.read_bytes()
    file.with_name(f".{file.name}.crc").write_bytes(b"crc\0\0\0\2\0" + zlib.crc32(whole).to_bytes(4, "big"))
    for damaged in bits_flipped(whole):
        file.write_bytes(damaged)
        assert committed_lsn(checkpoint) in (20, None)
        assert set_aside(checkpoint)
        (aside,) = checkpoint.parent.glob("p~unreadable-*")
        aside.rename(checkpoint)
    file.write_bytes(whole)
    assert not set_aside(checkpoint)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _torn_checksum(path: Path) -> None:
    sums = path.with_name(f".{path.name}.crc")
    sums.write_bytes(sums.read_bytes()[:-1])


def _another_offset(path: Path) -> None:
    """One that is far ahead: the stream would pass over all that comes before it."""
    path.write_bytes(re.sub(rb'("lsn": ?)', rb"\g<1>9", path.read_bytes()))


def _gone(path: Path) -> None:
    path.unlink()


@pytest.mark.server
@pytest.mark.spark
def test_spark_goes_on_after_a_power_cut(spark_site: Site) -> None:
    site = spark_site
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY)")
    site.publish("t")
    site.run()
    checkpoint = Path(site.config.log.path) / "checkpoints" / site.config.pipeline.name
    damages: list[tuple[str, Callable[[Path], None], bool]] = [
        ("offsets", _empty, True),
        ("offsets", _torn_checksum, False),
        ("offsets", _another_offset, True),
        ("commits", _gone, False),
    ]
    for folder, damage, useless in damages:
        site.sql("INSERT INTO t SELECT count(*) FROM t", "UPDATE t SET id = -id WHERE id % 3 = 1")
        site.run()
        damage(checkpoint / folder / str(max(int(p.name) for p in (checkpoint / folder).glob("[0-9]*"))))
        site.sql("INSERT INTO t SELECT count(*) FROM t")
        site.run()
        site.same("public.t")
        aside = list(checkpoint.parent.glob("*~unreadable-*"))
        assert bool(aside) == useless, (folder, damage)
        for path in aside:
            shutil.rmtree(path)
    assert site.status()["applied_lsn"] == str(ChangeLog.open(site.config.log.path).last_end_lsn)
