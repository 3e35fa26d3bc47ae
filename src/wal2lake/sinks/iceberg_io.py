"""pyiceberg's files on a disk, but durable: what a commit names is on stable storage before the catalog hears of it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import IO

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from wal2lake.files import flush, flush_file, make_folder


class DurableFileIO(PyArrowFileIO):
    """``py-io-impl`` of a lake in a folder; places elsewhere are pyiceberg's own affair."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file that is durable when it is closed."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        made = super().new_output(location)
        return _DurableFile(location, path, self.fs_by_scheme(scheme, netloc)) if scheme == "file" else made


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        place = Path(self._path)
        if not place.parent.exists():
            make_folder(place.parent)
        return _DurableStream(place.open("wb" if overwrite else "xb"), place)


class _DurableStream(OutputStream):
    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path

    def write(self, b: bytes) -> int:
        return self._file.write(b)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self._file.closed:
            with self._file:
                flush_file(self._file)
            flush(self._path.parent)

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
