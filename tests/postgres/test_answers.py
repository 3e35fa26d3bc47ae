"""What a server says that is not as documented: a sentence about the server, whatever was asked of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wal2lake.cli.protocol import app
from wal2lake.errors import ProtocolError
from wal2lake.testing.walsender import FakeWalsender, Rows, Session

JUNK: dict[str, tuple[list[str], str, Rows]] = {
    "no-row": (["identify"], "IDENTIFY_SYSTEM", ()),
    "no-number": (["identify"], "IDENTIFY_SYSTEM", [("seven", "1", "0/3", "shop")]),
    "no-timeline": (["identify"], "IDENTIFY_SYSTEM", [("7", "zz", "0/3", "shop")]),
    "no-lsn": (["identify"], "IDENTIFY_SYSTEM", [("7", "1", "zz", "shop")]),
    "nulls": (["identify"], "IDENTIFY_SYSTEM", [(None, None, None, None)]),
    "too-few-columns": (["identify"], "IDENTIFY_SYSTEM", [("7", "1")]),
    "no-history": (["identify"], "TIMELINE_HISTORY", [("00000002.history", "1\tzz\twhy")]),
    "no-history-row": (["identify"], "TIMELINE_HISTORY", ()),
    "slot-nowhere": (["slots", "read", "walled"], "READ_REPLICATION_SLOT", [("physical", "zz", "1")]),
    "slot-of-no-timeline": (["slots", "read", "walled"], "READ_REPLICATION_SLOT", [("physical", "0/3", "zz")]),
    "slot-of-no-columns": (["slots", "read", "walled"], "READ_REPLICATION_SLOT", [("physical",)]),
    "slot-made-nowhere": (["slots", "create", "mine"], "CREATE_REPLICATION_SLOT", [("mine", "zz", None, "pgoutput")]),
    "no-slot-made": (["slots", "create", "mine"], "CREATE_REPLICATION_SLOT", ()),
    "backup-from-nowhere": (["basebackup", "copy"], "BASE_BACKUP", [("zz", "1")]),
    "backup-of-no-timeline": (["basebackup", "copy"], "BASE_BACKUP", [("0/3", "zz")]),
    "no-backup": (["basebackup", "copy"], "BASE_BACKUP", ()),
}


@pytest.mark.parametrize("case", JUNK)
def test_an_answer_that_is_not_as_documented_is_the_servers(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, command, rows = JUNK[case]
    monkeypatch.chdir(tmp_path)
    answers: dict[str, Rows | Callable[[str], Rows]] = {command: rows}
    answers |= {"SHOW server_version": [("18.0",)], "wal_segment_size": [("16MB",)]}
    if command == "TIMELINE_HISTORY":
        answers["IDENTIFY_SYSTEM"] = [("7", "2", "0/3", "shop")]
    with FakeWalsender(_silent, answers) as server:
        done = CliRunner().invoke(app, [*arguments, "-d", server.dsn])
    assert isinstance(done.exception, ProtocolError), done.exception
    assert command in str(done.exception)
    assert not list(tmp_path.iterdir())


def _silent(session: Session) -> None:
    raise AssertionError(f"nobody asks for a stream: {session.query}")
