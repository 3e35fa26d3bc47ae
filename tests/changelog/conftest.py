"""A log in a temporary folder, and a writer on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.writer import LogWriter
from wal2lake.lsn import LSN

IDENTITY = LogIdentity("7300000000000000001", 1, "shop", "wal2lake", "wal2lake", LSN(0x1000), {"proto_version": "1"})


@pytest.fixture
def open_writer(tmp_path: Path) -> Callable[..., LogWriter]:
    return lambda **options: LogWriter(tmp_path / "log", IDENTITY, **options)


def flushed_paths(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is flushed from now on, in order."""
    flush, flushed = os.fsync, list[Path]()

    def fsync(handle: int) -> None:
        flush(handle)
        flushed.append(Path(os.readlink(f"/proc/self/fd/{handle}")))

    monkeypatch.setattr(os, "fsync", fsync)
    return flushed
