"""Two checksums at the end of a segment: one for whoever plans and reads the footer alone, one for the rows before it.

::

    Arrow IPC file     its footer last: the schema with the segment's metadata, and where the rows are
    uint64             where the footer begins
    uint32             CRC-32 of all bytes before the footer
    uint32             version of the format
    uint32             CRC-32 of the footer and of the trailer so far
    "W2LS"

Numbers are little-endian. Each byte is covered once, but for the last eight, which can have one value only.

Source: Arrow's "IPC File Format": the footer is followed by its length (int32) and the six bytes ``ARROW1``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from wal2lake.changelog.documents import corrupt

_FIELDS: Final = struct.Struct("<QII")
_END: Final = struct.Struct("<I4s")
_MAGIC: Final = b"W2LS"
_SIZE: Final = _FIELDS.size + _END.size
_ARROW_END: Final = struct.Struct("<i6s")


def with_trailer(file: pa.Buffer, version: int) -> list[pa.Buffer | bytes]:
    """The Arrow file and its trailer, to be written one behind the other."""
    length, _ = _ARROW_END.unpack(file.slice(file.size - _ARROW_END.size).to_pybytes())
    at = file.size - _ARROW_END.size - length
    fields = _FIELDS.pack(at, zlib.crc32(file.slice(0, at)), version)
    return [file, fields + _END.pack(zlib.crc32(fields, zlib.crc32(file.slice(at))), _MAGIC)]


def footer_begins(end: bytes) -> int:
    """Where, by a file's last bytes; what is damaged says anything, and is found out when it is read."""
    return int(_FIELDS.unpack_from(end, len(end) - _SIZE)[0]) if len(end) >= _SIZE else 0


def without_trailer(data: pa.Buffer, name: str, versions: Sequence[int], *, rows: bool) -> pa.Buffer:
    """The Arrow file in ``data``, its footer checked, and with ``rows`` all that is before it as well.

    Raises LogCorruptError for a file that is damaged or of none of the ``versions``.
    """
    end = data.size - _SIZE
    if end < 0:
        raise corrupt(name, "it is too short for a segment")
    at, before, found = _FIELDS.unpack(data.slice(end, _FIELDS.size))
    checked = data.slice(at, end + _FIELDS.size - at) if at <= end else b""
    if data.slice(end + _FIELDS.size).to_pybytes() != _END.pack(zlib.crc32(checked), _MAGIC):
        raise corrupt(name, "it is damaged, its checksum does not hold")
    if found not in versions:
        raise corrupt(name, f"it is of format {found}, and this version reads {', '.join(map(str, versions))}")
    if rows and zlib.crc32(data.slice(0, at)) != before:
        raise corrupt(name, "it is damaged, the checksum of its rows does not hold")
    return data.slice(0, end)
