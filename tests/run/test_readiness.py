"""What stands in the way on this machine, found without writing anything."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tests.s3 import BUCKET, SECRET, Fault, S3Server
from wal2lake import object_stores
from wal2lake.config import Config
from wal2lake.lakes import Place
from wal2lake.run.readiness import readiness
from wal2lake.sinks.folder import Folder
from wal2lake.spark import java

Usage = namedtuple("Usage", "total used free")


def _levels(folder: Path, source_bytes: int | None = None, lake: str = "new/lake") -> dict[str, str]:
    config = Config.from_dict({"log": {"path": str(folder / "new/log")}, "lake": {"path": lake}})
    return {finding.name: finding.level for finding in readiness(config, source_bytes)}


def test_a_machine_that_is_ready(tmp_path: Path) -> None:
    found = _levels(tmp_path, 1000, str(tmp_path / "new/lake"))
    assert found == dict.fromkeys(("modules", "java", "log", "lake", "free_log", "free_lake"), "ok")
    assert list(tmp_path.iterdir()) == []


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


def test_a_lake_in_an_object_store_is_tried(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_stores, "RETRIES", 1)

    def found(path: str, **options: str) -> tuple[str, str]:
        lake = {"path": path, "options": options}
        findings = readiness(Config.from_dict({"log": {"path": str(tmp_path / "log")}, "lake": lake}), 1000)
        assert "free_lake" not in [finding.name for finding in findings]
        return next((finding.level, finding.text) for finding in findings if finding.name == "lake")

    def refused(*methods: str, listing: bool = False, how: Fault = "denied") -> tuple[str, str]:
        s3.fault = lambda method, path: how if method in methods and (path == f"/{BUCKET}") == listing else None
        try:
            return found(url)
        finally:
            s3.fault = lambda *_: None

    url, where = s3.url(f"{tmp_path.name}/lake"), f"s3://{BUCKET}/{tmp_path.name}/lake"
    files = Folder(Place.of(url))
    assert found(url)[0] == "ok" and files.files_below() == []
    expected = {
        f"There is no bucket for s3://nowhere/{tmp_path.name}.": found(s3.url(tmp_path.name, "nowhere")),
        f"The object store does not let these credentials put objects below {where}.": refused("PUT"),
        f"The object store does not let these credentials get objects below {where}.": refused("GET"),
        f"The object store does not let these credentials list objects below {where}.": refused("GET", listing=True),
        f"The object store of {where} does not keep to the condition": refused("PUT", how="unconditional"),
        f"The object store of {where} knows no credentials, or not these": refused("PUT", how="unknown_key"),
        "The object store of s3://changes/x knows no credentials": found(
            "s3://changes/x", endpoint=s3.endpoint, metadata_endpoint="http://127.0.0.1:9"
        ),
        "The object store of s3://changes/x does not answer as it should, or not at all.": found(
            "s3://changes/x",
            endpoint="http://127.0.0.1:9",
            access_key_id="a",
            secret_access_key="${WAL2LAKE_TEST_SECRET}",
        ),
        "lake.options.secret_access_key names the environment variable WAL2LAKE_NOT_SET": found(
            "s3://changes/x", secret_access_key="$WAL2LAKE_NOT_SET"
        ),
    }
    assert {said: level for said, (level, text) in expected.items() if not text.startswith(said)} == {}
    assert {level for level, _ in expected.values()} == {"error"}
    assert not any(hidden in text for _, text in expected.values() for hidden in (SECRET, "Signature="))
    assert files.files_below() == []
    s3.fault = lambda method, path: "denied" if method in ("POST", "DELETE") else None
    level, text = found(url)
    s3.fault = lambda *_: None
    assert level == "error" and "these credentials delete objects" in text and ".wal2lake-probe-" in text


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
