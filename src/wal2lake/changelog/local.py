"""The log in a folder of this machine, or of one that several share: an object is a file, and whole or absent.

The only module that touches the file system for the log; how a file is made to last is files.py's to know. ``swap``
compares and replaces under a lock of its own, which readers do not take. A version is the content's digest.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from wal2lake import files
from wal2lake.changelog.places import EVERYTHING, WRITER_LOCK
from wal2lake.changelog.storage import Hold, Storage, Stored, Version
from wal2lake.errors import ConfigError
from wal2lake.files import Trouble, disk_full, trouble
from wal2lake.urls import is_object_url

if TYPE_CHECKING:
    import pyarrow as pa

_SWAP_LOCK = ".swap"


class LocalStorage:
    """A ``Storage``: the folder ``root``."""

    tell_s, look_s = 1.0, 0.0

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @property
    def where(self) -> str:
        return str(self.root)

    def path(self, name: str) -> str:
        return str(self.root / name)

    def get(self, name: str) -> bytes:
        with _explained(self.root):
            return (self.root / name).read_bytes()

    def read(self, name: str) -> Stored:
        data = self.get(name)
        return Stored(data, _version(data))

    def map(self, name: str) -> pa.Buffer:
        """Mapped: uncompressed Arrow data in it is never copied."""
        import pyarrow as pa  # noqa: PLC0415 - documents are read where there is no Arrow

        with _explained(self.root), pa.memory_map(self.path(name)) as source:
            return source.read_buffer()

    def map_ends(self, names: Sequence[str], begins: Callable[[bytes], int]) -> Iterator[pa.Buffer | None]:
        for name in names:
            try:
                yield self.map(name)
            except FileNotFoundError:
                yield None

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def watchable(self, folder: str) -> str | None:
        return self.path(folder)

    def names(self, folder: str) -> list[str]:
        return [entry.name for entry in self._entries(folder) if entry.is_file()]

    def folders(self, folder: str) -> list[str]:
        return [entry.name for entry in self._entries(folder) if entry.is_dir()]

    def modified(self, name: str) -> float:
        return (self.root / name).stat().st_mtime

    def create(self, name: str, *parts: bytes | pa.Buffer) -> bool:
        with _explained(self.root):
            return files.create(self.root / name, *parts)

    def swap(self, name: str, data: bytes, version: Version | None) -> Version | None:
        with _explained(self.root), files.lock(self.root / _SWAP_LOCK, wait=True):
            try:
                found = self.read(name).version
            except FileNotFoundError:
                found = None
            if found != version:
                return None
            files.put(self.root / name, data)
        return _version(data)

    def put(self, name: str, data: bytes) -> None:
        with _explained(self.root):
            files.put(self.root / name, data)

    def note(self, name: str, data: bytes) -> None:
        with _explained(self.root):
            try:
                files.put(self.root / name, data, durable=False)
            except OSError as error:
                if trouble(error) is not Trouble.FULL or not files.overwrite(self.root / name, data):
                    raise

    def remove(self, *names: str) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                (self.root / name).unlink()

    def prepare(self, *folders: str) -> None:
        with _explained(self.root):
            files.make_folder(self.root, 0o700)  # it holds the rows of every table
            parts = {part for folder in map(PurePath, folders) for part in (folder, *folder.parents)} - {PurePath()}
            for part in sorted(parts):  # whoever leads to another comes before it
                (self.root / part).mkdir(0o700, exist_ok=True)
            for part in {*parts, *(part.parent for part in parts)}:  # each once, also what was there
                files.flush(self.root / part)

    def recover(self, *folders: str) -> None:
        with _explained(self.root):
            for folder in folders:
                files.remove_asides(self.root / folder)
                files.flush(self.root / folder)

    def clear(self) -> bool:
        found = [path for name in EVERYTHING if (path := self.root / name).exists()]
        with _explained(self.root):
            for (
                path
            ) in found:  # killed amid this, it leaves segments without an identity, which nobody reads or adds to
                path.unlink() if path.is_file() else shutil.rmtree(path)
            for left in (self.root / name for name in (WRITER_LOCK, _SWAP_LOCK) if found):
                left.unlink(missing_ok=True)
        with suppress(OSError):  # something else lies there
            self.root.rmdir()
        return bool(found)

    @contextmanager
    def lock(self, name: str) -> Iterator[Hold]:
        with ExitStack() as held:
            with _explained(self.root):
                held.enter_context(files.lock(self.root / name))
            yield Hold()

    def is_locked(self, name: str) -> bool:
        return files.is_locked(self.root / name)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with _explained(self.root), os.scandir(self.root / folder) as entries:
                return sorted((entry for entry in entries if entry.name[0] != "."), key=lambda entry: entry.name)
        except FileNotFoundError:
            return []


def storage_at(place: str | Path | Storage) -> Storage:
    """The storage at a path of this machine or a URL of an object store, or what is one already."""
    if not isinstance(place, str | Path):
        return place
    if is_object_url(place):
        from wal2lake.changelog.objects import object_storage  # noqa: PLC0415 - an extra

        return object_storage(str(place))
    return LocalStorage(place)


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


def _version(data: bytes) -> Version:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
