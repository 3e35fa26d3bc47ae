"""What a file costs in flushes, what a listing leaves out, and what becomes of a file that cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from tests.changelog.conftest import flushed_paths
from wal2lake.changelog.storage import LocalStorage


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_file_is_flushed_and_then_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    storage, flushed = LocalStorage(tmp_path), flushed_paths(monkeypatch)
    storage.make_folders("a")
    flushed.clear()
    storage.put("a/file", b"one", pa.py_buffer(b""), pa.py_buffer(b"three"), durable=durable)
    assert (tmp_path / "a/file").read_bytes() == b"onethree"
    assert len(flushed) == 2 * durable
    if durable:
        aside, folder = flushed
        assert (aside.parent, aside.name.startswith(".file."), folder) == (tmp_path / "a", True, tmp_path / "a")


def test_only_finished_files_are_listed(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.make_folders("a", "a/folder")
    for name in ("b", "a"):
        storage.put(f"a/{name}", b"x", durable=False)
    (tmp_path / "a/.c.1-2.tmp").write_bytes(b"half")
    assert (storage.names("a"), storage.names("nowhere")) == (["a", "b"], [])
    assert storage.find("a/*") == ["a/a", "a/b", "a/folder"]
    assert [storage.probe(name) for name in ("a/a", "a/c")] == [True, False]
    storage.recover("a")
    assert sorted(os.listdir(tmp_path / "a")) == ["a", "b", "folder"]
    storage.remove("a/a")
    storage.remove("a/a")
    assert storage.names("a") == ["b"]


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("file", b"old")

    def fsync(handle: int) -> None:
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="broken"):
        storage.put("file", b"new")
    assert (os.listdir(tmp_path), storage.get("file")) == (["file"], b"old")
