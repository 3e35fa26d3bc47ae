"""Files that survive a crash, and failures to write them as errors of our tree."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from wal2lake.errors import ConfigError, LogFullError

logger = logging.getLogger("wal2lake.files")


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Let an OSError leave the block as LogFullError (no space, quota) or ConfigError (else), naming ``path``.

    BrokenPipeError stays what it is: whoever read the output has had enough, and wants to hear no more.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise LogFullError(f"The disk under {path} is full.", hint="Free space there, then start again.") from error
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{error.filename or path} cannot be written: {reason}.") from error


def fsync_folder(folder: Path) -> None:
    """Make the folder's entries durable: what was created, renamed or removed in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def durable_rename(source: Path, target: Path) -> None:
    """Give ``source``, whose content is synced, its final name for good."""
    source.rename(target)
    fsync_folder(target.parent)


def write_durably(path: Path, content: bytes) -> None:
    """Write ``path`` whole or not at all."""
    staging = path.with_name(path.name + ".tmp")
    with staging.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    durable_rename(staging, path)


class NewFolders:
    """Folders that are filled together. Unless ``keep``, whatever ends the block early leaves them as they were."""

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._claimed: list[tuple[Path, bool]] = []

    def claim(self, folder: Path) -> None:
        """Make ``folder`` where it is missing; raise ConfigError when something is in it."""
        existed = folder.exists()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty.", hint="Name a new or empty folder for the backup.")
        self._claimed.append((folder, existed))

    def fsync(self) -> None:
        """Make every entry in and below the folders durable, and the folders' own."""
        for claimed, _ in self._claimed:
            for folder, _, _ in os.walk(claimed):
                fsync_folder(Path(folder))
            fsync_folder(claimed.parent)

    def __enter__(self) -> NewFolders:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self._keep:
            return
        for folder, existed in reversed(self._claimed):
            try:
                _empty(folder)
                if not existed:
                    folder.rmdir()
            except OSError as error:  # the reason why the block ended early matters more
                logger.warning("What came into %s could not be removed: %s.", folder, error.strerror)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
