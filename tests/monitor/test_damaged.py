"""A damaged document of one table is told of, and hides none of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.changelog.conftest import IDENTITY
from wal2lake.capture.startup import change_log_findings
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.places import request_document, table_folder
from wal2lake.changelog.requests import Requests
from wal2lake.config import Config, LakeConfig, LogConfig
from wal2lake.errors import ConfigError, LogCorruptError
from wal2lake.tables.asking import ask
from wal2lake.tables.listing import list_tables
from wal2lake.tables.state import TableState
from wal2lake.tables.table_folder import TableFolder


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A log that knows two tables, of which the state of public.b is damaged."""
    made = Config(log=LogConfig(path=str(tmp_path / "log")), lake=LakeConfig(path=str(tmp_path / "lake")))
    storage = ChangeLog.create(made.log.path, IDENTITY).storage
    for name in ("a", "b"):
        TableFolder(storage, made.pipeline.name, "public", name).write(TableState())
    (tmp_path / "log" / table_folder(made.pipeline.name, "public", "b") / "state.json").write_bytes(b"[/x] junk")
    return made


def test_a_damaged_table_is_listed_among_the_others(config: Config) -> None:
    a, b = list_tables(config)
    assert (a.state, b.state) == ("init", "damaged")
    assert "state.json cannot be read" in b.reason and "wal2lake resync" in b.reason


def test_a_damaged_table_can_only_be_read_anew(config: Config) -> None:
    for wish in ("retry", "skip"):
        with pytest.raises(LogCorruptError, match=r"public\.b/state\.json"):
            ask(config, [], wish)  # type: ignore[arg-type]
    assert list(Requests(config.log.path, config.pipeline.name).all()) == []
    assert ask(config, ["public.b"], "resync") == ["public.b"]


@pytest.mark.parametrize("junk", [b"[/x] junk", b""])
def test_a_damaged_request_is_found(config: Config, junk: bytes) -> None:
    ask(config, ["public.a"], "resync")
    storage = ChangeLog.find(config.log.path)
    before = list(verify_log(storage))
    file = request_document(config.pipeline.name, "public", "a")
    storage.put(file, junk)
    (found,) = [fault for fault in verify_log(storage) if fault not in before]
    assert file in found and "Remove it, and ask again." in found


def test_a_log_that_may_not_be_read_is_a_finding(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (Path(config.log.path) / "log.json").unlink()
    monkeypatch.setattr("wal2lake.changelog.local.os.scandir", refused)
    with pytest.raises(ConfigError, match="cannot be used: Permission denied"):
        ChangeLog.find(config.log.path)
    (finding,) = change_log_findings(config)
    assert (finding.level, "Permission denied" in finding.text) == ("error", True)
