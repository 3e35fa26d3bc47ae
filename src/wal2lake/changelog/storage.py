"""A change log file is whole or absent: written aside, flushed, renamed, and its folder flushed after it.

The only module that touches the file system for the log. Names are relative and use ``/``, so an object store
can stand behind the same methods: ``put`` is one PUT, ``probe`` a HEAD, ``names`` a LIST. How a file is made to last is
files.py's to know.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from wal2lake import files
from wal2lake.errors import ConfigError, SlotInUseError
from wal2lake.files import Trouble, disk_full, trouble


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
                return sorted(e.name for e in entries if not e.name.endswith(files.ASIDE) and e.is_file())
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
        with _explained(self.root):
            files.put(self.root / name, *parts, durable=durable)

    def create(self, name: str, data: bytes) -> bool:
        """Put ``name`` if it is absent, durably; False, and nothing changed, when it is there."""
        with _explained(self.root):
            return files.create(self.root / name, data)

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
            files.make_folder(self.root)
            for folder in folders:
                (self.root / folder).mkdir(exist_ok=True)
            if folders:
                files.flush(self.root)

    def recover(self, *folders: str) -> None:
        """After a writer that died: remove what it left half written in ``folders``, and make durable what it renamed
        there without living to flush the folder. Only the single writer of these folders may call this."""
        with _explained(self.root):
            for folder in folders:
                files.remove_asides(self.root / folder)
                files.flush(self.root / folder)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the one writer; the lock ends with the process. Raises SlotInUseError when another holds it."""
        try:
            with _explained(self.root), files.lock(self.root / ".lock"):
                yield
        except files.LockHeldError as error:
            raise SlotInUseError(
                f"Another capture process ({error.holder}) writes the change log {self.root}.",
                hint="Stop it first, or give this one a slot and a log of its own (source.slot, log.path).",
            ) from None


@contextmanager
def _explained(root: Path) -> Iterator[None]:
    """What only the user can mend leaves the block as a sentence with its cure; a crash would be tried again."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        match trouble(error):
            case Trouble.FULL:
                raise disk_full(error, f"the change log {root}") from error
            case Trouble.REFUSED | Trouble.MISPLACED:
                raise ConfigError(
                    f"The change log {root} cannot be used: {os.strerror(error.errno or 0)}.",
                    hint="Give the user that runs wal2lake a folder in which it may read and write (log.path).",
                ) from error
        raise
