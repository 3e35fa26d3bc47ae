"""Mend an ELF program whose dynamic section shares a page with a segment that is mapped read-only.

A tool that edits a program's header can leave it so. The loader writes into the dynamic section (DT_DEBUG) and dies.
Writable instead of read-only is all that the segment needs; a sound program has no such segment and stays as it is.
"""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

_PT_LOAD, _PT_DYNAMIC, _PF_W = 1, 2, 2
_TABLE = struct.Struct("<32xQ14xHH")  # e_phoff, e_phentsize, e_phnum of a 64-bit little-endian file
_ENTRY = struct.Struct("<IIQQQQQQ")


class ProgramHeader(NamedTuple):
    """Elf64_Phdr."""

    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int

    def shares_a_page(self, other: ProgramHeader) -> bool:
        first, last = self.vaddr // mmap.PAGESIZE, (self.vaddr + self.memsz - 1) // mmap.PAGESIZE
        return first <= (other.vaddr + other.memsz - 1) // mmap.PAGESIZE and other.vaddr // mmap.PAGESIZE <= last


def mended(program: bytes) -> bytes:
    """``program`` with each read-only LOAD that shares a page with DYNAMIC made writable."""
    if program[:6] != b"\x7fELF\2\1":
        raise ValueError("This is no 64-bit little-endian ELF file.")
    start, size, count = _TABLE.unpack_from(program)
    places = [start + number * size for number in range(count)]
    headers = {place: ProgramHeader(*_ENTRY.unpack_from(program, place)) for place in places}
    dynamic = [header for header in headers.values() if header.type == _PT_DYNAMIC]
    changed = bytearray(program)
    for place, header in headers.items():
        read_only = header.type == _PT_LOAD and not header.flags & _PF_W
        if read_only and any(header.shares_a_page(section) for section in dynamic):
            _ENTRY.pack_into(changed, place, *header._replace(flags=header.flags | _PF_W))
    return bytes(changed)
