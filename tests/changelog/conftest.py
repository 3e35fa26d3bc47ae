"""A log in a temporary folder, and a writer on it."""

from __future__ import annotations

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
