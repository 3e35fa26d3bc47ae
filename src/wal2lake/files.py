"""Files that survive a crash, locks that end with their process, and what the system's error numbers mean: here alone.

The rule: what must be whole or absent is written aside and put in place in one step, and a file is durable when both it
and the folder that names it are flushed. Assumed of the file system: rename and link within a folder are atomic, fsync
of a file and of its folder makes both last.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import IO, Final

from wal2lake.errors import ConfigError, LogFullError

ASIDE: Final = ".tmp"  # what the name of a file ends with that is not finished
_BLOCK = 512  # bytes, of st_blocks


class Trouble(Enum):
    """What an error number says of the file or folder that was to be used."""

    FULL = auto()  # no room is left, or none for this user
    REFUSED = auto()  # somebody has to change the settings or the rights
    MISPLACED = auto()  # what is there, or is not, is of another kind than the path says
    PASSING = auto()  # the device, or the process's means, may be back later
    OTHER = auto()


_TROUBLES: Final = {
    Trouble.FULL: {errno.ENOSPC, errno.EDQUOT, errno.EFBIG},
    Trouble.REFUSED: {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP},
    Trouble.MISPLACED: {errno.ENOENT, errno.ENOTDIR, errno.EISDIR},
    Trouble.PASSING: {
        *(errno.EAGAIN, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT),
    },
}
_BY_NUMBER: Final = {number: trouble for trouble, numbers in _TROUBLES.items() for number in numbers}


def trouble(error: int | OSError | None) -> Trouble:
    """What an error, or its number, means."""
    return _BY_NUMBER.get(_number(error), Trouble.OTHER)


def disk_full(error: int | OSError, where: object = None, *, relation: str | None = None) -> LogFullError:
    """The error for one of Trouble.FULL, met when something was written to ``where``."""
    disk = "A disk" if where is None else f"The disk under {where}"
    hint = "Make room there and start again: nothing is lost, the work goes on where it was."
    return LogFullError(f"{disk} is full: {os.strerror(_number(error))}.", hint=hint, relation=relation)


def _number(error: int | OSError | None) -> int:
    return (error.errno if isinstance(error, OSError) else error) or 0


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Let an OSError leave the block as LogFullError (no space, quota) or ConfigError (else), naming ``path``.

    BrokenPipeError stays what it is: whoever read the output has had enough, and wants to hear no more.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if trouble(error) is Trouble.FULL:
            raise disk_full(error, path) from error
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{error.filename or path} cannot be written: {reason}.") from error


# -- durable


def flush(path: str | Path) -> None:
    """Make what the file holds durable; of a folder its entries: what was created, renamed or removed in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_file(file: IO[bytes]) -> None:
    """Make what was written to ``file`` durable; its folder's entry is another matter."""
    file.flush()
    os.fsync(file.fileno())


def flush_tree(folder: Path) -> None:
    """Make every entry in and below ``folder`` durable, and its own."""
    for path, _, _ in os.walk(folder):
        flush(path)
    flush(folder.parent)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Create ``folder``, with rights ``mode`` below the umask, and whatever leads to it, durably, even if whoever made
    it did not live to flush it."""
    new = [path for path in folder.parents if not path.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for path in (folder, folder.parent, *(path.parent for path in new)):
        flush(path)


def rename(source: Path, target: Path) -> None:
    """Give ``source``, whose content is flushed, its final name for good."""
    source.rename(target)
    flush(target.parent)


def put(target: Path, *parts: bytes | memoryview, durable: bool = True) -> None:
    """Have ``target`` hold ``parts``, one behind the other, in one step: when it fails the old content stands."""
    with _aside(target, parts, durable) as aside:
        os.replace(aside, target)


def overwrite(target: Path, data: bytes) -> bool:
    """Put ``data`` where ``target`` is, if it is there and has the room, also on a disk that has none; else False.

    Not in one step, and not durably: for what nobody misses when it is torn.
    """
    try:
        with open(target, "r+b", buffering=0) as file:
            if len(data) > os.fstat(file.fileno()).st_blocks * _BLOCK:
                return False
            file.write(data)
            file.truncate(len(data))
    except FileNotFoundError:
        return False
    return True


def create(target: Path, *parts: bytes | memoryview) -> bool:
    """Put ``target`` if it is absent, durably; False, and nothing changed, when it is there."""
    with _aside(target, parts, durable=True) as aside:
        try:
            os.link(aside, target)
        except FileExistsError:
            return False
    return True


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """What the block writes is ``target``, in one step, when it ends; not durably: a crash may leave it torn. When it
    fails what was there stands."""
    aside = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}{ASIDE}")
    try:
        with open(aside, "wb") as file:
            yield file
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def _aside(target: Path, parts: tuple[bytes | memoryview, ...], durable: bool) -> Iterator[Path]:
    """A file beside ``target`` that holds ``parts``; what the block leaves of it goes."""
    aside = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}{ASIDE}")
    try:
        with open(aside, "wb", buffering=0) as file:
            for view in (memoryview(part).cast("B") for part in parts):
                written = 0
                while written < len(view):
                    written += file.write(view[written:])
            if durable:
                os.fsync(file.fileno())
        yield aside
    finally:
        aside.unlink(missing_ok=True)
    if durable:
        flush(target.parent)


def remove_asides(folder: Path) -> None:
    """What a writer that died left half written in ``folder`` goes; nobody else may be writing there."""
    for leftover in folder.glob(f".*{ASIDE}"):
        leftover.unlink(missing_ok=True)


# -- locks


class LockHeldError(Exception):
    """Somebody else holds the lock; ``holder`` is what they wrote of themselves, perhaps nothing."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


@contextmanager
def lock(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Be the only one who has the lock ``path``, until the block or the process ends.

    Raises LockHeldError when somebody else has it, unless told to ``wait``. The file stays: whoever opened it before
    it was removed would hold a lock that nobody else can see.
    """
    with open(path, "a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise LockHeldError(file.read(20).decode(errors="replace").strip()) from None
        file.truncate(0)
        file.write(f"pid {os.getpid()}".encode())
        yield


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock now."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
