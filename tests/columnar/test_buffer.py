"""The bounds of windows, lengths and parts, each one byte or row before, at and behind them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from wal2lake.columnar.buffer import BLOCK_BYTES, BLOCK_ROWS, MARGIN, SPAN, ByteBuffer, MessageBatch, blocks
from wal2lake.columnar.framing import Framed

DATA = bytes(range(100, 124))


def positions(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def payload(*messages: bytes) -> pa.BinaryArray:
    """A column whose buffer ends where the last message does."""
    offsets = np.cumsum([0, *map(len, messages)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(messages))]
    return pa.Array.from_buffers(pa.binary(), len(messages), buffers)


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_a_window_and_a_byte_at_every_place(offset: int) -> None:
    source, last = ByteBuffer(pa.py_buffer(DATA)), len(DATA) - 8
    windows = [int.from_bytes(DATA[at : at + 8], "little") for at in range(last + 1)]
    assert source.window(np.arange(last + 1)).tolist() == windows
    assert source.window(positions(last + 1, 1 << 40)).tolist() == windows[-1:] * 2
    assert source.byte(np.arange(len(DATA) - offset), offset).tolist() == [*DATA[offset:]]
    assert source.byte(positions(len(DATA), 1 << 40), offset).tolist() == [DATA[-1]] * 2


@pytest.mark.parametrize("length", [0, 1, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 0xFFFFFF, 0x1000000, 0xFFFFFFFF])
@pytest.mark.parametrize("offset", [0, 1])
def test_a_length_is_unsigned_and_big_endian(length: int, offset: int) -> None:
    said = bytes([0xEE] * (3 + offset)) + length.to_bytes(4, "big") + bytes([0xEE] * 8)
    assert ByteBuffer(pa.py_buffer(said)).lengths(positions(3), offset).tolist() == [length]


@pytest.mark.parametrize(("highest", "ascii_only"), [(0x00, True), (0x7F, True), (0x80, False), (0xFF, False)])
def test_ascii_is_known_of_what_was_fetched(highest: int, ascii_only: bool) -> None:
    source = ByteBuffer(pa.py_buffer(b"\xffab" + bytes([highest]) + b"c\xff" + bytes(8)))
    assert not source.ascii
    assert source.fetch(1, 5).ascii == ascii_only


@pytest.mark.parametrize("before", [0, MARGIN - 1, MARGIN, MARGIN + 1])
@pytest.mark.parametrize("after", [0, MARGIN - 1, MARGIN, MARGIN + 1])
def test_messages_are_copied_only_where_they_lie_at_the_buffers_ends(before: int, after: int) -> None:
    column = payload(b"<" * before, b"one", b"three", b">" * after)
    messages = MessageBatch.of(column, "s.t", positions(1, 2), np.array([5, 6], np.uint64))
    assert (messages.source.data.address == column.buffers()[2].address) == (min(before, after) >= MARGIN)
    whole = messages.source.bytes.tobytes()
    assert [whole[a:b] for a, b in zip(messages.start, messages.end, strict=True)] == [b"one", b"three"]
    assert messages.start.min() >= MARGIN
    assert messages.end.max() + MARGIN <= len(whole)
    assert [messages.lsn_of(row) for row in (0, 1)] == [5, 6]


@pytest.mark.parametrize(("gap", "fetched"), [(5, True), (6, False), (7, False)])
def test_what_mostly_belongs_to_others_is_not_read(gap: int, fetched: bool) -> None:
    column = payload(b" " * 8, b"abc", b"." * gap, b"def", b" " * 8)
    assert MessageBatch.of(column, "s.t", positions(1, 3), None).source.ascii == fetched


def test_rows_that_came_together_are_copied_where_no_margins_are() -> None:
    piece = Framed.of([b"one", b"", b"three"])
    rows = MessageBatch.framed(piece, "s.t")
    whole = rows.source.bytes.tobytes()
    assert [whole[a:b] for a, b in zip(rows.start, rows.end, strict=True)] == [b"one", b"", b"three"]
    assert (rows.start[0], len(whole) - rows.end[-1]) == (MARGIN, SPAN)
    assert (len(rows), rows.lsn_of(0)) == (3, None)
    roomy = Framed(bytearray(whole), rows.start, rows.end)
    assert MessageBatch.framed(roomy, "s.t").source.data.address == pa.py_buffer(roomy.data).address
    for data, by in ((whole[1:], -1), (whole[:-1], 0)):
        short = Framed(bytearray(data), rows.start + by, rows.end + by)
        again = MessageBatch.framed(short, "s.t")
        assert (again.source.bytes.tobytes(), again.start.tolist()) == (whole, rows.start.tolist())
    assert len(MessageBatch.framed(Framed.of([]), "s.t")) == 0


def test_what_stands_side_by_side_is_gathered_at_once() -> None:
    rows = MessageBatch.framed(Framed.of([b"abcdefghij", b"0123456789"]), "s.t")
    near = rows.source.near(rows.start, 10).behind(1)
    numbers = near.numbers(">u2", 7)
    assert numbers is not None
    assert numbers.tolist() == [int.from_bytes(b"ij"), int.from_bytes(b"89")]
    assert near.numbers(">u2", 8) is None
    beyond = rows.source.near(rows.end + SPAN - 4, 8).numbers("<u8")  # clipped, not followed
    assert beyond is not None
    assert beyond.tolist() == [int.from_bytes(bytes(8))] * 2


@pytest.mark.parametrize(
    ("rows", "size", "parts"),
    [
        (0, 0, [0]),
        (1, 0, [1]),
        (BLOCK_ROWS, 1, [BLOCK_ROWS]),
        (BLOCK_ROWS + 1, 1, [BLOCK_ROWS, 1]),
        (3, BLOCK_BYTES, [1, 1, 1]),
        (3, BLOCK_BYTES // 2, [2, 1]),
        (3, 2 * BLOCK_BYTES, [1, 1, 1]),
        (3, BLOCK_BYTES // 3, [3]),
    ],
)
def test_a_part_has_up_to_so_many_rows_and_bytes(rows: int, size: int, parts: list[int]) -> None:
    column = payload(*[b"-"] * 5, *[bytes(size)] * rows).slice(5)
    found = list(blocks(column, np.arange(rows)))
    assert [part.stop - part.start if part.stop <= rows else rows - part.start for part in found] == parts
    assert [part.start for part in found] == np.cumsum([0, *parts[:-1]]).tolist()


def test_a_window_fits_before_and_behind_everything() -> None:
    rows = MessageBatch.framed(Framed.of([b"\xff", b"\xff" * 9]), "s.t")
    assert rows.source.window(rows.end)[-1] == 0
    assert rows.source.window(rows.start - 8)[0] == 0
    assert len(rows.source.near(rows.end, SPAN).rows) == 2
