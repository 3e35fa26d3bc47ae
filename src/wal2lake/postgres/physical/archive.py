"""The files of one of a base backup's archives, as PostgreSQL writes them; what only a hostile server would is refused.

A server is believed about its own files and about nothing else. What it sends lands in the folder that the archive was
given: no name leads out of it, none through a link, and the only links are those of tablespaces, which point to where
the user wants them and not to where the archive says. Kinds of members that PostgreSQL has no use for are refused as
well, since each is a rule of its own that reads or writes something.

Source: PostgreSQL documentation, "Streaming Replication Protocol", BASE_BACKUP; src/port/tar.c (tarCreateHeader).
"""

from __future__ import annotations

import contextlib
import errno
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from wal2lake.errors import ProtocolError
from wal2lake.files import flush_file
from wal2lake.postgres.physical.manifest import new_hash
from wal2lake.postgres.system import OWNER, Permissions

_BLOCK = tarfile.BLOCKSIZE
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
# What a path itself can be wrong in: a name too long, a folder that is missing, a file where a folder should be.
_BAD_PATH = (errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR)


class File(NamedTuple):
    """A regular file that came: its path in the archive, its size and, if it was computed, its checksum in hex."""

    path: str
    size: int
    checksum: str


class Archive:
    """How one archive becomes files in ``folder``; None: its members are only read and digested.

    ``links``: path in the archive → where that link has to point. ``checksums``: the manifest's algorithm.
    """

    def __init__(
        self,
        folder: Path | None,
        links: Mapping[str, Path],
        *,
        checksums: str = "NONE",
        permissions: Permissions = OWNER,
        sync: bool = True,
    ) -> None:
        self._folder = folder
        self._links = links
        self._checksums = checksums
        self._permissions = permissions
        self._sync = sync

    def read(self, pieces: Iterator[bytes]) -> Iterator[File]:
        """Go through the whole archive; raise ProtocolError, with the offset, where it is none of PostgreSQL's."""
        source = _Source(pieces)
        while (member := self._header(source)) is not None:
            with _named(member.name, source):
                path = inside(member.name)
                self.refuse_below_link(path)
                if member.type in _FILES:
                    yield self._file(source, member, path)
                elif member.isdir():
                    self._make_folder(path)
                else:
                    self._link(member, path)
        for _ in pieces:  # what follows the end is padding, but belongs to the file
            pass

    def _header(self, source: _Source) -> tarfile.TarInfo | None:
        """The next member; None at the block of zeros that ends an archive."""
        at = source.offset
        try:
            member = tarfile.TarInfo.frombuf(source.read(_BLOCK), "utf-8", "surrogateescape")
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            return None
        except (tarfile.TarError, ValueError) as error:
            raise ProtocolError("The server sent an archive that is no tar file.", offset=at) from error
        if member.size < 0 or (member.size and member.type not in _FILES):
            raise ProtocolError(f"The archive gives {member.name!r} {member.size} bytes.", offset=at)
        return member

    def refuse_below_link(self, path: str) -> None:
        """Raise ProtocolError for a path that leads through the link of a tablespace."""
        if any(path.startswith(link + "/") for link in self._links):
            raise ProtocolError(f"The archive has {path!r}, which lies below the link of a tablespace.")

    def _file(self, source: _Source, member: tarfile.TarInfo, path: str) -> File:
        checksum = new_hash(self._checksums)
        place = None if self._folder is None else self._folder / path
        with create(place, self._permissions) if place else contextlib.nullcontext() as output:
            for piece in source.pieces(member.size):
                checksum.update(piece)
                if output is not None:
                    output.write(piece)
            if output is not None and self._sync:
                flush_file(output)
        for _ in source.pieces(-member.size % _BLOCK):
            pass
        return File(path, member.size, checksum.hexdigest())

    def _make_folder(self, path: str) -> None:
        if self._folder is None or path == ".":
            return
        folder = self._folder / path
        if path in self._links:
            raise ProtocolError(f"The archive has a folder {path!r} where the link of a tablespace belongs.")
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(self._permissions.folder)

    def _link(self, member: tarfile.TarInfo, path: str) -> None:
        if not member.issym() or path not in self._links:
            raise ProtocolError(f"The archive has {path!r}, which is neither file, folder nor tablespace.")
        if self._folder is not None:
            (self._folder / path).symlink_to(self._links[path])


class _Source:
    """An archive's bytes, taken by number; a server may cut them anywhere."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self.offset = 0

    def read(self, size: int) -> bytes:
        return b"".join(self.pieces(size))

    def pieces(self, size: int) -> Iterator[memoryview]:
        """``size`` bytes, as they come; raise ProtocolError when the archive ends before."""
        while size > 0:
            while not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    raise ProtocolError("The archive ends before its end is marked.", offset=self.offset)
                self._rest = memoryview(piece)
            part, self._rest = self._rest[:size], self._rest[size:]
            size -= len(part)
            self.offset += len(part)
            yield part


@contextlib.contextmanager
def _named(name: str, source: _Source) -> Iterator[None]:
    """Give what is wrong with a member its place; a path that cannot be is the server's fault, not the disk's."""
    try:
        yield
    except ProtocolError as error:
        error.offset = source.offset if error.offset is None else error.offset
        raise
    except OSError as error:
        if error.errno not in _BAD_PATH:
            raise
        text = f"The archive has {name!r}, which cannot be made: {error.strerror}."
        raise ProtocolError(text, offset=source.offset) from error


def create(place: Path, permissions: Permissions) -> BinaryIO:
    """A new file, through no link, with just these permissions, whatever the umask."""
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    os.fchmod(descriptor, permissions.file)
    return os.fdopen(descriptor, "wb")


def inside(name: str) -> str:
    """The member's path below the target; raise ProtocolError for one that leads out of it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ProtocolError(f"The archive has {name!r}, which leads out of the data directory.")
    return str(path)
