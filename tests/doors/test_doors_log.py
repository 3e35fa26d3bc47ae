"""The change log holds every table's rows: its folder is its owner's, whoever makes it, whatever the umask."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.changelog.conftest import IDENTITY
from wal2lake.capture import Capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config


def _by_capture(path: Path) -> None:
    """Which has its status there before it has a log."""
    stop = threading.Event()
    stop.set()
    Capture(Config.from_dict({"log": {"path": str(path)}})).run(stop)


@pytest.mark.parametrize("make", [_by_capture, lambda path: ChangeLog.create(path, IDENTITY)])
def test_doors_the_log_is_its_owners(tmp_path: Path, make: object) -> None:
    before = os.umask(0o022)
    try:
        make(tmp_path / "new" / "log")  # type: ignore[operator]
    finally:
        os.umask(before)
    made = [tmp_path / "new" / "log", *(tmp_path / "new" / "log").iterdir()]
    assert len(made) > 1
    for folder in (path for path in made if path.is_dir()):
        assert folder.stat().st_mode & 0o777 == 0o700, folder
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755
