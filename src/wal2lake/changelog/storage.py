"""A change log file is whole or absent: written aside, flushed, renamed, and its folder flushed after it.

The only module that touches the file system for the log. Names are relative and use ``/``, so an object store
can stand behind the same methods: ``put`` is one PUT, ``probe`` a HEAD, ``names`` a LIST.

Assumed of the file system: rename within a folder is atomic, fsync of a file and of its folder makes both last.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from wal2lake.errors import ConfigError, LogFullError, SlotInUseError

_TEMPORARY = ".tmp"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG}


class LocalStorage:
    """A folder. Every method takes names relative to it.

    Raises LogFullError where there is no room, ConfigError where the folder cannot be used; any other OSError passes.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def path(self, name: str) -> str:
        return str(self.root / name)

    def probe(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def names(self, folder: str) -> list[str]:
        """The finished files directly in ``folder``, sorted; empty when there is no such folder."""
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(e.name for e in entries if not e.name.endswith(_TEMPORARY) and e.is_file())
        except FileNotFoundError:
            return []

    def find(self, pattern: str) -> list[str]:
        """The finished files below whose names match, ``*`` within a folder; sorted."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern) if path.name[0] != ".")

    def folders(self, folder: str) -> list[str]:
        """The folders directly in ``folder``, sorted; empty when there is no such folder."""
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []

    def get(self, name: str) -> bytes:
        with _explained(self.root):
            return (self.root / name).read_bytes()

    def map(self, name: str) -> pa.Buffer:
        """The file's bytes, mapped: uncompressed Arrow data in it is never copied."""
        with _explained(self.root), pa.memory_map(self.path(name)) as source:
            return source.read_buffer()

    def put(self, name: str, *parts: bytes | pa.Buffer, durable: bool = True) -> None:
        """Make ``name`` hold ``parts``, one behind the other, atomically.

        When this returns a durable file survives a power cut; when it fails the old content stands, if there was any.
        """
        with self._written_aside(name, parts, durable) as (aside, target):
            os.replace(aside, target)

    def create(self, name: str, data: bytes) -> bool:
        """Put ``name`` if it is absent, durably; False, and nothing changed, when it is there."""
        with self._written_aside(name, [data], durable=True) as (aside, target):
            try:
                os.link(aside, target)
            except FileExistsError:
                return False
        return True

    @contextmanager
    def _written_aside(
        self, name: str, parts: Sequence[bytes | pa.Buffer], durable: bool
    ) -> Iterator[tuple[Path, Path]]:
        """A file beside ``name`` that holds ``parts``, and the path of ``name``; what the block left of it goes."""
        target = self.root / name
        aside = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}{_TEMPORARY}")
        with _explained(self.root):
            try:
                with open(aside, "wb", buffering=0) as file:
                    for view in (memoryview(part).cast("B") for part in parts):
                        written = 0
                        while written < len(view):
                            written += file.write(view[written:])
                    if durable:
                        os.fsync(file.fileno())
                yield aside, target
            finally:
                aside.unlink(missing_ok=True)
            if durable:
                _sync_folder(target.parent)

    def remove(self, name: str) -> None:
        """Forget ``name``; it may be gone already."""
        with suppress(FileNotFoundError):
            (self.root / name).unlink()

    def modified(self, name: str) -> float:
        """When the file was published, in seconds since 1970."""
        return (self.root / name).stat().st_mtime

    def make_folders(self, *folders: str) -> None:
        """Create the root and ``folders`` in it, durably, with whatever leads to the root."""
        with _explained(self.root):
            new = [path for path in self.root.parents if not path.exists()]
            self.root.mkdir(parents=True, exist_ok=True)
            for folder in folders:
                (self.root / folder).mkdir(exist_ok=True)
            for path in (self.root, self.root.parent, *(path.parent for path in new)):
                _sync_folder(path)

    def recover(self, *folders: str) -> None:
        """After a writer that died: remove what it left half written in ``folders``, and make durable what it renamed
        there without living to flush the folder. Only the single writer of these folders may call this."""
        with _explained(self.root):
            for folder in folders:
                for leftover in (self.root / folder).glob(f".*{_TEMPORARY}"):
                    leftover.unlink(missing_ok=True)
                _sync_folder(self.root / folder)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the one writer; the lock ends with the process. Raises SlotInUseError when another holds it."""
        with _explained(self.root), open(self.root / ".lock", "a+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                who = file.read(20).decode(errors="replace").strip()
                raise SlotInUseError(
                    f"Another capture process ({who}) writes the change log {self.root}.",
                    hint="Stop it first, or give this one a slot and a log of its own (source.slot, log.path).",
                ) from None
            file.truncate(0)
            file.write(f"pid {os.getpid()}".encode())
            yield


@contextmanager
def _explained(root: Path) -> Iterator[None]:
    """What only the user can mend leaves the block as a sentence with its cure; a crash would be tried again."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno or 0)
        if error.errno in _FULL:
            raise LogFullError(
                f"The change log {root} cannot grow: {why}.",
                hint="Make room there and start again: nothing is lost, the slot keeps what is not durable.",
            ) from error
        if error.errno in _FORBIDDEN:
            raise ConfigError(
                f"The change log {root} cannot be used: {why}.",
                hint="Give the user that runs wal2lake a folder in which it may read and write (log.path).",
            ) from error
        raise


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
