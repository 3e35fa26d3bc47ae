"""What stands in the way on this machine, found without writing anything."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tests.s3 import BUCKET, S3Server
from wal2lake.config import Config
from wal2lake.run.readiness import readiness
from wal2lake.spark import java

Usage = namedtuple("Usage", "total used free")


def _levels(folder: Path, source_bytes: int | None = None, lake: str = "new/lake") -> dict[str, str]:
    config = Config.from_dict({"log": {"path": str(folder / "new/log")}, "lake": {"path": lake}})
    return {finding.name: finding.level for finding in readiness(config, source_bytes)}


def test_a_machine_that_is_ready(tmp_path: Path) -> None:
    found = _levels(tmp_path, 1000, str(tmp_path / "new/lake"))
    assert found == dict.fromkeys(("modules", "java", "log", "lake", "free_log", "free_lake"), "ok")
    assert list(tmp_path.iterdir()) == []


def test_an_object_store_is_not_looked_into(tmp_path: Path) -> None:
    assert {"lake", "free_lake"} & _levels(tmp_path, 1000, "s3://bucket/lake").keys() == set()


def test_an_object_store_for_the_log_is_tried(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(bucket: str) -> tuple[str, str]:
        log = {"path": s3.url(tmp_path.name, bucket), "local_path": str(tmp_path / "local")}
        findings = readiness(Config.from_dict({"log": log, "lake": {"path": str(tmp_path / "lake")}}), None)
        assert {finding.level for finding in findings if finding.name != "object_store"} == {"ok"}
        return next((finding.level, finding.text) for finding in findings if finding.name == "object_store")

    assert found(BUCKET)[0] == "ok"
    put = [path for method, path in s3.requests if method == "PUT" and tmp_path.name in path]
    assert put and all("/.probe-" in path for path in put)
    assert list(tmp_path.iterdir()) == []
    level, text = found("nowhere")
    assert (level, text.partition(".")[0]) == ("error", f"There is no bucket for s3://nowhere/{tmp_path.name}")
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "wal2lake.changelog.objects")
    level, text = found(BUCKET)
    assert level == "error" and "module obstore" in text and "'wal2lake[arrow,objects]'" in text


def test_java_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "FOLDERS", ())
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _levels(tmp_path)["java"] == "error"


def test_a_file_lies_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    assert _levels(tmp_path)["log"] == "error"


def test_a_folder_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    assert _levels(tmp_path, lake="/lake") | {"java": ""} == {
        "modules": "ok", "java": "", "log": "error", "lake": "ok", "free_log": "ok", "free_lake": "ok",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("free", "source_bytes", "levels"),
    [(2 << 30, 1 << 30, ("ok", "ok")), (2 << 30, 3 << 30, ("ok", "warning")), (1 << 29, None, ("warning", "ok"))],
)
def test_room_for_the_first_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, source_bytes: int | None, levels: tuple[str, str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(free, 0, free))
    found = _levels(tmp_path, source_bytes)
    assert (found["free_log"], found["free_lake"]) == levels


@pytest.mark.parametrize(("missing", "level"), [("pyspark", "warning"), ("pyarrow", "error")])
def test_modules_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, level: str) -> None:
    monkeypatch.setattr("wal2lake.run.readiness.find_spec", lambda name: None if name == missing else object())
    assert _levels(tmp_path)["modules"] == level
