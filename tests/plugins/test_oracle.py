"""Where the judges cannot be fetched, the error says what is missing and what works without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins import oracle
from wal2lake.errors import ConfigError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing on the PATH but what a test puts there."""
    monkeypatch.setattr(oracle, "cache_folder", lambda: tmp_path)
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return tmp_path


def test_without_apt_get(cache: Path) -> None:
    with pytest.raises(ConfigError, match="fetched by apt-get, which is not here") as refused:
        oracle.wal2json_folder()
    assert "--server 18" in (refused.value.hint or "")
    assert [path.name for path in cache.iterdir()] == ["programs"]


def test_where_apt_get_cannot(cache: Path) -> None:
    for name in ("apt-get", "dpkg"):
        program = cache / "programs" / name
        program.write_text("#!/bin/sh\necho E: Unable to locate package >&2\nexit 100\n")
        program.chmod(0o755)
    with pytest.raises(ConfigError, match="Unable to locate package") as refused:
        oracle.wal2json_folder()
    assert "needs root" in (refused.value.hint or "")
    assert [path.name for path in cache.iterdir()] == ["programs"]
