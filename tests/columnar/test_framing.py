"""Frames of a whole buffer, held to the walk that takes one step per message."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wal2lake.columnar.framing import HEAD, Framed, walk
from wal2lake.wire.framing import MESSAGE_LIMIT

SHORT = 18
LIKE_A_FRAME = b"d\0\0\0\x06w"

payloads = st.one_of(
    st.binary(max_size=40).map(lambda data: b"w" + data),
    st.binary(max_size=40),
    st.lists(st.sampled_from([LIKE_A_FRAME, b"d\0", b"d", b"\0\0\0\4", b"w"]), max_size=8).map(b"".join),
)
frames = st.builds(lambda tag, payload: frame(payload, tag), st.sampled_from([b"d"] * 9 + [b"N"]), payloads)


def frame(payload: bytes, tag: bytes = b"d") -> bytes:
    return tag + (len(payload) + 4).to_bytes(4, "big") + payload


def step_by_step(data: bytes, mark: bytes = b"w", short: int = SHORT) -> tuple[list[bytes], list[bytes], int, bool]:
    """The payloads, the other frames, where the first one begins that is not whole, and whether it is none."""
    found, other, at = [], [], 0
    while len(data) - at >= HEAD:
        length = int.from_bytes(data[at + 1 : at + 5], "big")
        limit = MESSAGE_LIMIT if data[at : at + 1] in (b"d", b"T", b"D", b"E", b"N", b"A") else 30000
        if not 4 <= length <= limit + 4:
            return found, other, at, True
        end = at + 1 + length
        if end > len(data):
            break
        payload = data[at + HEAD : end]
        if data[at] == ord("d") and (payload.startswith(mark) or len(payload) > short):
            found.append(payload)
        else:
            other.append(data[at:end])
        at = end
    return found, other, at, False


def check(data: bytes, lead: bytes = b"") -> None:
    """``walk`` finds in ``data``, behind ``lead``, what the single steps find."""
    buffer, first = bytearray(lead + data), len(lead)
    expected, other, at, wrong = step_by_step(data)
    found = walk(buffer, first, len(buffer), b"w", SHORT)
    assert (Framed(buffer, *found.payloads()).payloads if found.begins else []) == expected
    assert [bytes(buffer[a:b]) for a, b in found.other] == other
    assert (found.at, found.wrong is not None) == (first + at, wrong)


@given(st.lists(frames, max_size=12), st.integers(0, 60), st.binary(max_size=9))
@example([frame(b"w" + LIKE_A_FRAME * 3), frame(b"w"), frame(b"k" + bytes(17)), frame(b"wx")], 0, b"")
@example([frame(b"x" * 30 + LIKE_A_FRAME)], 3, LIKE_A_FRAME)
@example([frame(b"w" * 20), b"c\0\0\0\4", frame(b"w" * 20)], 0, b"")
def test_what_is_found_is_what_single_steps_find(sent: list[bytes], cut: int, lead: bytes) -> None:
    data = b"".join(sent)
    check(data[: len(data) - cut] if cut < len(data) else data, lead)


@given(st.binary(max_size=80))
@example(b"d\xff\xff\xff\xffw")
@example(b"d\0\0\0\3w")
@example(b"Z\0\0\x80\0I")
def test_any_bytes(data: bytes) -> None:
    check(data)
    check(frame(b"w" * 25) + data)


@pytest.mark.parametrize("length", [0, 3, MESSAGE_LIMIT + 5, 0xFFFFFFFF])
def test_no_such_length(length: int) -> None:
    wrong = walk(bytearray(b"d" + length.to_bytes(4, "big")), 0, 5, b"w", SHORT).wrong
    assert f"announces {length} bytes" in str(wrong)


def test_what_is_wanted_is_what_the_frame_announces() -> None:
    data = bytearray(frame(b"w" * 30) + b"d" + (70_000_000).to_bytes(4, "big") + b"w")
    found = walk(data, 0, len(data), b"w", SHORT)
    assert (found.at, found.wanted) == (35, 70_000_001)


def test_payloads_that_look_like_frames_cost_little() -> None:
    """However many there are: each step over them takes the same."""

    def seconds(count: int) -> float:
        data = bytearray(frame(b"w" + LIKE_A_FRAME * 10) * count)
        began = time.process_time()
        found = walk(data, 0, len(data), b"w", SHORT)
        assert len(found.payloads()[0]) == count
        return time.process_time() - began

    assert min(seconds(8000) for _ in range(3)) < 20 * min(seconds(1000) for _ in range(3))


def test_a_cut_forgets_what_is_behind() -> None:
    data = bytearray(frame(b"w1") + frame(b"k") + frame(b"w2"))
    found = walk(data, 0, len(data), b"w", SHORT)
    found.cut(found.other[0][0])
    assert Framed(data, *found.payloads()).payloads == [b"w1"]
    found.cut(0)
    assert found.begins == []


@given(st.lists(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=4), max_size=4))
def test_pieces_are_joined(parts: list[list[bytes]]) -> None:
    pieces = []
    for part in parts:
        data = bytearray(b"".join(frame(b"w" + payload) for payload in part))
        pieces.append(Framed(data, *walk(data, 0, len(data), b"w", SHORT).payloads()))
    joined = Framed.joined(pieces)
    assert joined.payloads == [b"w" + payload for part in parts for payload in part]
    assert len(joined) == sum(map(len, parts))
    if parts:
        assert joined.last(2) == (b"w" + parts[-1][-1])[:2]
        joined.data[:] = bytes(len(joined.data))  # it is nobody else's
        assert pieces[0].payloads == [b"w" + payload for payload in parts[0]]


def test_of_single_payloads() -> None:
    assert Framed.of([b"a", b"", b"bc"]).payloads == [b"a", b"", b"bc"]
    assert Framed.of([]).begins.dtype == np.int64
