"""How far an idle stream is durable is said twice, so that a file that is lost or damaged costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.changelog.conftest import IDENTITY
from tests.changelog.test_retention import fill
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.errors import LogCorruptError

Writer = Callable[..., LogWriter]
NAMES = ["position.json", "position.copy.json"]
AT = 0x9000


@pytest.fixture
def idle(open_writer: Writer, tmp_path: Path) -> Path:
    """The folder of a log whose stream was idle up to AT."""
    with open_writer() as writer:
        fill(writer, 2)
        writer.set_position(AT)
    return tmp_path / "log"


def spoil(file: Path, how: str) -> None:
    """``how``: "missing" or "damaged"."""
    file.unlink() if how == "missing" else file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.parametrize("how", ["missing", "damaged"])
@pytest.mark.parametrize("name", NAMES)
def test_one_of_the_two_is_enough_and_the_other_is_made_anew(
    idle: Path, open_writer: Writer, name: str, how: str
) -> None:
    spoil(idle / name, how)
    log = ChangeLog.open(idle)
    assert log.durable_lsn() == AT
    assert [f"{name} cannot be read: it is {how}" in fault for fault in verify_log(log.storage)] == [True]
    with open_writer() as writer:
        assert writer.durable_lsn == AT
        assert list(verify_log(log.storage)) == []
        writer.set_position(AT + 8)
    assert ChangeLog.open(idle).durable_lsn() == AT + 8


def test_where_both_are_damaged_nobody_guesses(idle: Path, open_writer: Writer) -> None:
    for name in NAMES:
        spoil(idle / name, "damaged")
    for use in (lambda: ChangeLog.open(idle).durable_lsn(), open_writer):
        with pytest.raises(LogCorruptError, match=r"position\.json cannot be read.*remove position\.json and"):
            use()


def test_where_both_are_lost_the_segments_tell_what_they_have(
    idle: Path, open_writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    """Capture compares that with the slot, which knows what was acknowledged."""
    for name in NAMES:
        spoil(idle / name, "missing")
    assert [name in fault for name, fault in zip(NAMES, verify_log(ChangeLog.find(idle)), strict=True)] == [True, True]
    with open_writer() as writer:
        assert IDENTITY.start_lsn < writer.durable_lsn == writer.log.last_end_lsn < AT
    assert "has lost its position" in caplog.text
    assert list(verify_log(writer.log.storage)) == []


def test_a_crash_between_the_two_says_nothing_wrong(
    idle: Path, open_writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_writer() as writer:
        swap = writer.log.storage.swap

        def die(name: str, data: bytes, version: str | None) -> str | None:
            if name == "position.json":
                raise RuntimeError("the process dies")
            return swap(name, data, version)

        monkeypatch.setattr(writer.log.storage, "swap", die)
        with pytest.raises(RuntimeError, match="dies"):
            writer.set_position(AT + 8)
        assert writer.durable_lsn == AT
    assert ChangeLog.open(idle).durable_lsn() == AT
    with open_writer() as writer:
        writer.set_position(AT + 16)
    log = ChangeLog.open(idle)
    assert (log.durable_lsn(), list(verify_log(log.storage))) == (AT + 16, [])
