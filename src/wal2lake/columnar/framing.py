"""CopyData frames found for a whole buffer at once: no Python object per message.

A frame says how long it is, and so where the next one begins: that is a walk, one step per message. But what begins a
CopyData of this stream (a tag, a length below 16 MB, the payload's first bytes) stands hardly anywhere else. So all
places that look like one are found at once, each says where the next frame would begin, and as far as that is the next
place found they are frames. Where it is not, a step is taken by itself: over a frame of another kind, or over places
inside a payload that only look like a frame. Nothing is believed that the walk from the first byte would not come to.

Source: PostgreSQL documentation, "Message Formats" (CopyData).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from wal2lake.columnar.arrays import Numbers, gather
from wal2lake.errors import ProtocolError
from wal2lake.wire.framing import MESSAGE_LIMIT

HEAD: Final = 5  # a tag, and a length that counts itself
_TAG: Final = ord("d")
_LENGTH_BYTES: Final = 4
_LONG: Final = b"dTDENA"  # the messages that may be, VALID_LONG_MESSAGE_TYPE in fe-protocol3.c
_SHORT_LIMIT: Final = 30000
_PART_BYTES: Final = 96 << 10  # below malloc's threshold for fresh pages, which cost five times what is done with them


@dataclass(frozen=True, slots=True)
class Framed:
    """Payloads of CopyData, in order: the i-th is ``data[begins[i]:ends[i]]``; whose ``data`` they are in must not
    change any more."""

    data: bytearray
    begins: Numbers
    ends: Numbers

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def payloads(self) -> list[bytes]:
        """Each as a value of its own."""
        view = memoryview(self.data)
        return [bytes(view[a:b]) for a, b in zip(self.begins.tolist(), self.ends.tolist(), strict=True)]

    def last(self, size: int) -> bytes:
        """The last payload, of which there is one, as far as ``size`` bytes go."""
        begin, end = int(self.begins[-1]), int(self.ends[-1])
        return bytes(self.data[begin : min(end, begin + size)])

    @classmethod
    def of(cls, payloads: Sequence[bytes]) -> Framed:
        """Payloads that lie apart, as one."""
        ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
        begins = np.concatenate([[0], ends])[:-1].astype(np.int64)
        return cls(bytearray().join(payloads), begins, ends)

    def __getitem__(self, rows: slice) -> Framed:
        """Some of them."""
        return Framed(self.data, self.begins[rows], self.ends[rows])

    @classmethod
    def joined(cls, pieces: Sequence[Framed]) -> Framed:
        """All payloads of ``pieces``, none of which is empty, in one buffer that is nobody else's."""
        spans = [(int(piece.begins[0]), int(piece.ends[-1])) for piece in pieces]
        data = bytearray().join(memoryview(p.data)[a:b] for p, (a, b) in zip(pieces, spans, strict=True))
        moved, at = [], 0
        for first, last in spans:
            moved.append(at - first)
            at += last - first
        if not pieces:
            return cls.of([])
        begins, ends = (
            np.concatenate([bounds + by for bounds, by in zip(each, moved, strict=True)])
            for each in ([piece.begins for piece in pieces], [piece.ends for piece in pieces])
        )
        return cls(data, begins, ends)


@dataclass(slots=True)
class Walk:
    """How far ``walk`` came. ``begins`` and ``ends``: of payloads, in runs; ``other``: where each frame begins and ends
    that is none of them. ``at``: where the first frame begins that is not whole, and ``wanted``: how long it is, as far
    as that is known. ``wrong``: no message is as long as what stands there says."""

    at: int
    wanted: int = HEAD
    begins: list[Numbers] = field(default_factory=list)
    ends: list[Numbers] = field(default_factory=list)
    other: list[tuple[int, int]] = field(default_factory=list)
    wrong: ProtocolError | None = None

    def payloads(self) -> tuple[Numbers, Numbers]:
        """Begins and ends of all."""
        return np.concatenate(self.begins), np.concatenate(self.ends)

    def cut(self, at: int) -> None:
        """Forget the payloads behind ``at``."""
        self.ends = [ends[begins < at] for begins, ends in zip(self.begins, self.ends, strict=True) if begins[0] < at]
        self.begins = [begins[begins < at] for begins in self.begins if begins[0] < at]


def walk(data: bytearray, first: int, end: int, mark: bytes, short: int) -> Walk:
    """Find the frames of ``data`` from ``first``, where one begins, to ``end``. ``mark``: what nearly all payloads
    begin with. Of the others those of up to ``short`` bytes are ``other``, as are the frames that are no CopyData.
    """
    found = Walk(first)
    starts, nexts = _candidates(data, first, end, mark)
    torn = np.flatnonzero(nexts[:-1] != starts[1:])  # behind these no candidate follows at once
    while end - found.at >= HEAD:
        row = int(np.searchsorted(starts, found.at))
        if row < len(starts) and starts[row] == found.at:
            run = int(np.searchsorted(torn, row))
            last = int(torn[run]) if run < len(torn) else len(starts) - 1
            last -= int(nexts[last]) > end  # one that is not whole has none behind it
            if last >= row:
                found.begins.append(starts[row : last + 1] + HEAD)
                found.ends.append(nexts[row : last + 1])
                found.at = int(nexts[last])
                continue
        size = 1 + int.from_bytes(data[found.at + 1 : found.at + HEAD], "big")
        if not HEAD <= size <= HEAD + (MESSAGE_LIMIT if data[found.at] in _LONG else _SHORT_LIMIT):
            found.wrong = ProtocolError(f"A message announces {size - 1} bytes.", offset=1)
            break
        if size > end - found.at:
            found.wanted = size
            break
        if data[found.at] == _TAG and size - HEAD > short:
            found.begins.append(np.array([found.at + HEAD]))
            found.ends.append(np.array([found.at + size]))
        else:
            found.other.append((found.at, found.at + size))
        found.at += size
    return found


def _candidates(data: bytearray, first: int, end: int, mark: bytes) -> tuple[Numbers, Numbers]:
    """Where something begins that looks like a CopyData with a marked payload, and where each would end."""
    room = end - first - HEAD - len(mark)
    if room < 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    cells = np.frombuffer(data, np.uint8)
    parts = range(first, first + room + 1, _PART_BYTES)
    starts = np.concatenate([_tagged(cells, at, min(at + _PART_BYTES, first + room + 1)) for at in parts])
    for offset, byte in enumerate(mark, HEAD):
        starts = starts[cells[starts + offset] == byte]
    sizes = gather(data, ">u4", starts + 1).astype(np.int64)
    sound = sizes >= _LENGTH_BYTES + len(mark)
    return starts[sound], (starts + 1 + sizes)[sound]


def _tagged(cells: Numbers, first: int, end: int) -> Numbers:
    """Where from ``first`` to ``end`` a tag stands that a length below 16 MB may follow."""
    tagged = cells[first:end] == _TAG
    tagged &= cells[first + 1 : end + 1] == 0
    return np.flatnonzero(tagged) + first
