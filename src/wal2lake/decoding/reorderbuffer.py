"""What cannot be given to the plugin yet: streamed transactions, and prepared ones that wait for COMMIT PREPARED.

pgoutput sends the chunks of transactions in progress as they come, interleaved; they are kept here, each in the order
of the WAL, until their end is known, and given out in the order of their commits. What belongs to aborted
subtransactions is left out then. A transaction is one byte string of records, in memory and on disk alike; past the
memory limit the largest is written to a file of its own, as often as needed, and a file goes with its transaction.

Source: src/backend/replication/logical/reorderbuffer.c, ReorderBufferCheckMemoryLimit and ReorderBufferSerializeTXN.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from wal2lake.decoding.spillfolder import SpillFolder
from wal2lake.files import writing
from wal2lake.lsn import LSN

MEMORY_LIMIT: Final = 64 << 20  # bytes; logical_decoding_work_mem's default
_HEADER: Final = struct.Struct(">QIII")  # LSN, (sub)transaction, version of the relation, length of the message
_READ_BYTES: Final = 1 << 20


class HeldMessage(NamedTuple):
    """``payload``: without the xid that stands in it inside a chunk. ``version``: of the relation, as the owner
    counts."""

    lsn: LSN
    xid: int
    version: int
    payload: bytes


class _Held:
    __slots__ = ("aborted", "file", "records", "spilled")

    def __init__(self) -> None:
        self.records = bytearray()
        self.aborted: set[int] = set()
        self.file: Path | None = None
        self.spilled = 0


class ReorderBuffer:
    """Holds transactions by xid. ``memory``: bytes held in memory now; ``spilled_bytes``: written to disk so far.

    ``spill_dir``: where a folder for the files is made when it is first needed; None: the system's temporary folder.
    """

    def __init__(self, memory_limit: int = MEMORY_LIMIT, spill_dir: str | Path | None = None) -> None:
        self.memory = 0
        self.spilled_bytes = 0
        self._limit = memory_limit
        self._spill_dir = spill_dir
        self._folder: SpillFolder | None = None
        self._held: dict[int, _Held] = {}

    def __contains__(self, xid: int) -> bool:
        return xid in self._held

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, xid: int) -> None:
        """Hold a new transaction; what was held under its xid is forgotten."""
        self.forget(xid)
        self._held[xid] = _Held()

    def append(self, xid: int, lsn: int, subxid: int, version: int, payload: bytes) -> None:
        """One more message of ``xid``; raises LogFullError when it must be spilled and the disk is full."""
        records = self._held[xid].records
        records += _HEADER.pack(lsn, subxid, version, len(payload))
        records += payload
        self.memory += _HEADER.size + len(payload)
        while self.memory > self._limit:
            self._spill(max(self._held, key=lambda held: len(self._held[held].records)))

    def abort(self, xid: int, subxid: int) -> None:
        """Leave out what ``subxid`` did."""
        self._held[xid].aborted.add(subxid)

    def replay(self, xid: int) -> Iterator[HeldMessage]:
        """All messages of the transaction, in their order; it stays held."""
        held = self._held[xid]
        aborted, size = held.aborted, _HEADER.size
        for data in self._pieces(held):
            at = 0
            while at < len(data):
                lsn, subxid, version, length = _HEADER.unpack_from(data, at)
                at += size + length
                if subxid not in aborted:
                    yield HeldMessage(int.__new__(LSN, lsn), subxid, version, bytes(data[at - length : at]))

    def forget(self, xid: int) -> None:
        """The transaction is done with."""
        held = self._held.pop(xid, None)
        if held is not None:
            self.memory -= len(held.records)
            if held.file is not None:
                held.file.unlink()

    def keep(self, xids: Container[int]) -> None:
        """Forget all but these."""
        for xid in [held for held in self._held if held not in xids]:
            self.forget(xid)

    def clear(self) -> None:
        """Forget everything, files included."""
        self._held.clear()
        self.memory = 0
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _spill(self, xid: int) -> None:
        held = self._held[xid]
        with writing(self._spill_dir or tempfile.gettempdir()):
            if self._folder is None:
                self._folder = SpillFolder(self._spill_dir or tempfile.gettempdir())
            held.file = self._folder.path / str(xid)
            with held.file.open("ab") as file:
                file.write(held.records)
        self.memory -= len(held.records)
        self.spilled_bytes += len(held.records)
        held.spilled += len(held.records)
        held.records = bytearray()

    def _pieces(self, held: _Held) -> Iterator[bytes | bytearray]:
        """Whole records, from the file in pieces, then from memory."""
        if held.file is not None:
            with held.file.open("rb") as file:
                rest = b""
                while data := file.read(_READ_BYTES):
                    data = rest + data
                    end = _whole(data)
                    yield data[:end]
                    rest = data[end:]
        yield held.records


def _whole(data: bytes) -> int:
    """How many bytes of ``data`` are whole records."""
    at = 0
    while at + _HEADER.size <= len(data):
        end = at + _HEADER.size + int.from_bytes(data[at + _HEADER.size - 4 : at + _HEADER.size], "big")
        if end > len(data):
            break
        at = end
    return at
