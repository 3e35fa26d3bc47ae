"""What becomes of a file that is written aside, of a lock whose holder dies, and what an error number means."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.changelog.conftest import flushed_paths
from wal2lake import files
from wal2lake.errors import ConfigError, LogFullError
from wal2lake.files import LockHeldError, Trouble

_HOLDS = "import sys, time; from pathlib import Path; from wal2lake.files import lock\nwith lock(Path(sys.argv[1])):\n"


@pytest.mark.parametrize(
    ("number", "meaning"),
    [
        (errno.ENOSPC, Trouble.FULL),
        (errno.EDQUOT, Trouble.FULL),
        (errno.EFBIG, Trouble.FULL),
        (errno.EACCES, Trouble.REFUSED),
        (errno.EPERM, Trouble.REFUSED),
        (errno.EROFS, Trouble.REFUSED),
        (errno.ENAMETOOLONG, Trouble.REFUSED),
        (errno.ENOENT, Trouble.MISPLACED),
        (errno.ENOTDIR, Trouble.MISPLACED),
        (errno.EISDIR, Trouble.MISPLACED),
        (errno.EIO, Trouble.PASSING),
        (errno.EMFILE, Trouble.PASSING),
        (errno.ESTALE, Trouble.PASSING),
        (errno.EXDEV, Trouble.OTHER),
        (None, Trouble.OTHER),
    ],
)
def test_what_an_error_number_means(number: int | None, meaning: Trouble) -> None:
    assert files.trouble(number) is meaning
    assert files.trouble(OSError() if number is None else OSError(number, "…")) is meaning


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EDQUOT, "…"), LogFullError),
        (OSError(errno.EFBIG, "…"), LogFullError),
        (PermissionError(errno.EACCES, "…"), ConfigError),
        (BrokenPipeError(errno.EPIPE, "…"), BrokenPipeError),
    ],
)
def test_what_a_command_says_of_a_file_that_it_cannot_write(error: OSError, kind: type[Exception]) -> None:
    with pytest.raises(kind), files.writing("there"):
        raise error


def test_a_file_is_created_once_and_the_second_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = flushed_paths(monkeypatch)
    assert files.create(tmp_path / "file", b"one", b"two")
    assert flushed[-1] == tmp_path
    assert not files.create(tmp_path / "file", b"other")
    assert (os.listdir(tmp_path), (tmp_path / "file").read_bytes()) == (["file"], b"onetwo")


def test_a_folder_lasts_with_all_that_leads_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = flushed_paths(monkeypatch)
    files.make_folder(tmp_path / "a/b/c")
    assert {tmp_path, tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/c"} <= set(flushed)
    flushed.clear()
    files.make_folder(tmp_path / "a/b/c")  # whoever made it may have died before it was flushed
    assert {tmp_path / "a/b", tmp_path / "a/b/c"} <= set(flushed)


def test_a_lock_ends_with_its_process_and_names_it_before(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not files.is_locked(path)
    command = [sys.executable, "-c", f"{_HOLDS}    print(flush=True); time.sleep(600)", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert files.is_locked(path)
        with pytest.raises(LockHeldError) as caught, files.lock(path):
            pass
        assert caught.value.holder == f"pid {process.pid}"
        process.kill()
    with files.lock(path):
        assert files.is_locked(path)


def test_a_lock_that_is_waited_for_comes_when_it_is_let_go(tmp_path: Path) -> None:
    order, inside = [], threading.Event()

    def second() -> None:
        with files.lock(tmp_path / "lock", wait=True):
            order.append("second")

    with files.lock(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        inside.wait(0.05)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]
