"""Where a vector's bytes are: in the log itself, or with others in a file of their own; either is checked when read.

A file holds several vectors, each with its length before it and its CRC-32 behind it. It has its final name from the
beginning and no log names it until it is whole, so what a writer that died leaves of it is an orphan.

Source: Delta transaction log protocol, "Deletion Vector Descriptor Schema", "Deletion Vector Storage".
"""

from __future__ import annotations

import re
import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs

from wal2lake.deltadv import base85, bitmap
from wal2lake.deltadv.bitmap import Marked, VectorError

LARGEST: Final = 1 << 30  # bytes of one vector; more can only be damage
_FORM: Final = b"\x01"
_LENGTH: Final = struct.Struct(">i")
_CHECKSUM: Final = struct.Struct(">I")
_UUID: Final = 20  # characters of one in Z85
_NAME: Final = re.compile(r"(?:.*/)?deletion_vector_([0-9a-f-]{36})\.bin")


@dataclass(frozen=True, slots=True)
class Vector:
    """Of one data file. ``storage`` is "i" (``place`` is the vector itself), "u" (a prefix and a file's UUID) or "p"
    (an absolute path), as in the log; ``size`` in bytes; ``cardinality`` rows are marked."""

    storage: str
    place: str
    size: int
    cardinality: int
    offset: int | None = None

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> Vector:
        """As the log has it in ``deletionVector``. Raises VectorError for what is none."""
        try:
            storage, place = str(action["storageType"]), str(action["pathOrInlineDv"])
            size, cardinality, offset = int(action["sizeInBytes"]), int(action["cardinality"]), action.get("offset")
        except (KeyError, TypeError, ValueError) as error:
            raise VectorError("The log describes a deletion vector as the protocol does not.") from error
        if storage not in ("i", "u", "p") or not 0 <= size <= LARGEST:
            raise VectorError(f"The log describes a deletion vector of {size} bytes in a storage {storage!r}.")
        return cls(storage, place, size, cardinality, None if offset is None else int(offset))

    def action(self) -> dict[str, Any]:
        """As ``Vector.of`` reads it."""
        said: dict[str, Any] = {"storageType": self.storage, "pathOrInlineDv": self.place}
        said |= {} if self.offset is None else {"offset": self.offset}
        return said | {"sizeInBytes": self.size, "cardinality": self.cardinality}

    @property
    def identity(self) -> str:
        """What tells it from another of the same data file, which is then another logical file."""
        return f"{self.storage}{self.place}" + ("" if self.offset is None else f"@{self.offset}")

    @property
    def path(self) -> str | None:
        """Of the file that holds it, below the table's folder; None for one in the log, or elsewhere."""
        if self.storage != "u":
            return None
        prefix, identifier = self.place[:-_UUID], self.place[-_UUID:]
        try:
            name = f"deletion_vector_{uuid.UUID(bytes=base85.decode(identifier, 16))}.bin"
        except ValueError as error:
            raise VectorError("The log names a deletion vector's file by what is no UUID.") from error
        if prefix and not prefix.isalnum():
            raise VectorError("The log names a deletion vector's file in a folder that is none of the table's.")
        return f"{prefix}/{name}" if prefix else name


def place_of(path: str) -> str | None:
    """How the log names a file of vectors that lies in the table's folder itself; None for any other file."""
    found = _NAME.fullmatch(path)
    return None if found is None or "/" in path else base85.encode(uuid.UUID(found[1]).bytes)


def write_vectors(files: Any, marked: Mapping[str, Marked]) -> tuple[dict[str, Vector], str]:
    """A vector for each data file of ``marked``, and the path of the new file, not flushed, that holds them all.

    ``files``: the ``pyarrow.fs`` file system of the table's folder. None is put into the log, where some readers do not
    look for them, and where everybody who opens the table would read it.
    """
    identifier = uuid.uuid4()
    name = f"deletion_vector_{identifier}.bin"
    vectors: dict[str, Vector] = {}
    try:
        with files.open_output_stream(name) as stream:
            stream.write(_FORM)
            for path, rows in marked.items():
                data, offset = bitmap.encode(rows), stream.tell()
                vectors[path] = Vector("u", base85.encode(identifier.bytes), len(data), len(rows), offset)
                stream.write(_LENGTH.pack(len(data)) + data + _CHECKSUM.pack(zlib.crc32(data)))
    except BaseException:  # what nobody will ever name must not keep a full disk full
        if files.get_file_info(name).type == pa.fs.FileType.File:
            files.delete_file(name)
        raise
    return vectors, name


def read_vector(files: Any, vector: Vector) -> Marked:
    """The rows that are gone. Raises VectorError when it is damaged or not what the log says of it, and OSError."""
    rows = bitmap.decode(_inline(vector) if vector.storage == "i" else _in_file(files, vector))
    if len(rows) != vector.cardinality:
        raise VectorError(f"A deletion vector marks {len(rows)} rows, and the log says {vector.cardinality}.")
    return rows


def _inline(vector: Vector) -> bytes:
    try:
        return base85.decode(vector.place, vector.size)
    except ValueError as error:
        raise VectorError("A deletion vector in the log is not what its length says.") from error


def _in_file(files: Any, vector: Vector) -> bytes:
    path = vector.path
    if path is None:
        raise VectorError("A deletion vector lies outside of its table's folder, as in a shallow clone.")
    with files.open_input_file(path) as file:
        if file.read(1) != _FORM:
            raise VectorError(f"The deletion vectors in {path} are of a form that is not known.")
        file.seek(vector.offset or 1)
        found = file.read(_LENGTH.size + vector.size + _CHECKSUM.size)
    data = bytes(found[_LENGTH.size : -_CHECKSUM.size])
    if len(found) != _LENGTH.size + vector.size + _CHECKSUM.size or _LENGTH.unpack_from(found)[0] != vector.size:
        raise VectorError(f"A deletion vector in {path} is not what its length says.")
    if _CHECKSUM.unpack(found[-_CHECKSUM.size :])[0] != zlib.crc32(data):
        raise VectorError(f"A deletion vector in {path} is damaged: its checksum is another.")
    return data
