"""A program is mended in the flags of one segment and nowhere else."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import pytest

from tests.servers.clients import program
from tests.servers.elf import ProgramHeader, mended

pytestmark = pytest.mark.servers

PAGE = mmap.PAGESIZE
FIRST = ProgramHeader(1, 6, 0, 0, 0, PAGE // 2, PAGE // 2, PAGE)
DYNAMIC = ProgramHeader(2, 6, PAGE // 2, PAGE // 2, 0, PAGE, PAGE, 8)
SHARES = ProgramHeader(1, 4, 2 * PAGE - 8, 2 * PAGE - 8, 0, 100, 100, PAGE)
BEHIND = ProgramHeader(1, 5, 2 * PAGE, 2 * PAGE, 0, 100, 100, PAGE)


def elf(*headers: ProgramHeader) -> bytes:
    """The head of a 64-bit little-endian file, with its program headers behind it."""
    head = struct.pack("<6s26xQ14xHH6x", b"\x7fELF\2\1", 64, 56, len(headers))
    return head + b"".join(struct.pack("<IIQQQQQQ", *header) for header in headers)


def test_the_segment_that_shares_a_page_becomes_writable() -> None:
    writable = elf(FIRST, DYNAMIC, SHARES._replace(flags=6), BEHIND)
    assert mended(elf(FIRST, DYNAMIC, SHARES, BEHIND)) == writable == mended(writable)


def test_a_sound_program_stays_as_it_is() -> None:
    sound = Path(program("pg_waldump", 16)).read_bytes()
    assert mended(sound) == sound


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(ValueError, match="ELF"):
        mended(b"#!/bin/sh\n")
