"""Files that survive a crash, and failures to write them as errors of our tree."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from wal2lake.errors import ConfigError, LogFullError


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Let an OSError leave the block as LogFullError (no space, quota) or ConfigError (else), naming ``path``."""
    try:
        yield
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
