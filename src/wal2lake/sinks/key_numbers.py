"""Keys as 64-bit numbers, a column at a time: keys that are the same bits (apply/row_index.py) have the same number.

A key of one column whose values have no more than 64 bits is its own number, and no other key has it. Any other key is
hashed, and others may have its number, though not by design of whoever chooses the keys: each 32 bits of it, and the
length of what has no fixed one, are multiplied by an odd number that only the lake knows, and added up. Two keys that
were chosen without knowing those collide in the upper bits with a chance of 2^-32 at most, whatever they are.

Source: M. Thorup, "High Speed Hashing for Integers and Strings" (arXiv:1504.06804), multilinear hashing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.apply.packed import is_nested, one_nan, packed

Numbers = npt.NDArray[np.uint64]

_WORD = 4  # bytes; a longer one's upper bits would be lost where the factor's lower ones are

_RUN = 1 << 15  # rows whose numbers are made at once: what that takes fits into a processor's cache


def is_own_number(kinds: list[pa.DataType]) -> bool:
    """Whether a key of these types is told by its number alone."""
    return len(kinds) == 1 and _fits(kinds[0])


def _fits(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind)) and kind.bit_width in (8, 16, 32, 64)


def key_numbers(keys: pa.Table, seed: int) -> Numbers:
    """uint64[keys], of keys without NULL; ``seed``, of 128 bits, chooses the factors."""
    if is_own_number(keys.schema.types):
        return _own(keys.column(0).combine_chunks())
    total = np.zeros(keys.num_rows, np.uint64)
    for start in range(0, keys.num_rows, _RUN):
        for place, column in enumerate(keys.slice(start, _RUN).columns):
            _add(total[start : start + _RUN], column.combine_chunks(), _Factors(seed, place))
    return total


class _Factors:
    """The odd numbers of one column of the key: of its length, and of each of its words."""

    def __init__(self, seed: int, place: int) -> None:
        self._key = [seed & (2**64 - 1), (seed >> 64) ^ place]

    def first(self, count: int) -> Numbers:
        raw = np.random.Philox(key=np.array(self._key, np.uint64)).random_raw(count)
        found: Numbers = raw | np.uint64(1)
        return found


def _own(column: pa.Array) -> Numbers:
    array = one_nan(column)
    plain: Any = array.view(f"int{array.type.bit_width}").to_numpy(zero_copy_only=False)
    found: Numbers = plain.astype(np.int64).view(np.uint64)
    return found


def _add(total: Numbers, column: pa.Array, factors: _Factors) -> None:
    kind = column.type
    if is_nested(kind):
        _add_bytes(total, packed(column), factors)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        _add_bytes(total, column, factors)
    elif pa.types.is_decimal128(kind):
        _add_words(total, np.frombuffer(column.buffers()[1], "<u4").reshape(-1, 4)[column.offset :], factors)
    else:
        plain = column.cast(pa.int8()) if pa.types.is_boolean(kind) else column
        _add_words(total, _own(plain).view("<u4").reshape(-1, 2), factors)


def _add_words(total: Numbers, words: npt.NDArray[np.uint32], factors: _Factors) -> None:
    for factor, word in zip(factors.first(words.shape[1]), words[: len(total)].T, strict=True):
        total += word.astype(np.uint64) * factor


def _add_bytes(total: Numbers, column: pa.Array, factors: _Factors) -> None:
    """Of each value its length and its words, the last one filled up with zero bytes."""
    if not len(column):
        return
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1].astype(np.int64)
    start, length = bounds[:-1] - bounds[0], np.diff(bounds)
    held = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]] if data is not None else np.empty(0, np.uint8)
    filled = np.append(held, np.zeros(_WORD, np.uint8))
    words = np.ndarray((len(filled) - _WORD + 1,), "<u4", filled, strides=(1,))  # the word that begins at each byte
    several = factors.first(1 + -(-int(length.max()) // _WORD))
    total += length.astype(np.uint64) * several[0]
    shortest = int(length.min())
    for place, factor in zip(range(0, int(length.max()), _WORD), several[1:], strict=True):
        if shortest >= place + _WORD:
            total += words[start + place].astype(np.uint64) * factor
            continue
        longer = np.flatnonzero(length > place)
        bits = np.minimum(length[longer] - place, _WORD).astype(np.uint64) * np.uint64(8)
        mask = (np.uint64(1) << bits) - np.uint64(1)
        total[longer] += (words[start[longer] + place].astype(np.uint64) & mask) * factor
