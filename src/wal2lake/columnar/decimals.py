"""decimal128 without a Python object: two 64-bit words per number, the lower first, in two's complement."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.columnar.buffer import Mask, Words
from wal2lake.columnar.cells import fixed

WORD_DIGITS: Final = 18  # decimal digits that one signed word always holds
_LOW_32: Final = 0xFFFFFFFF


def widen(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Each number as its two words."""
    words = np.empty((len(values), 2), np.int64)
    words[:, 0] = values
    words[:, 1] = values >> 63
    return words


class Unscaled:
    """Unsigned integers built from the most significant digits on, in one word while ``precision`` allows it."""

    def __init__(self, rows: int, precision: int) -> None:
        self._low: Words = np.zeros(rows, np.uint64)
        self._high: Words | None = None if precision <= WORD_DIGITS else np.zeros(rows, np.uint64)

    def append(self, digits: npt.NDArray[Any], factor: int) -> None:
        """Multiply by ``factor`` (below 2**32) and add ``digits`` (below ``factor``)."""
        if self._high is None:
            self._low = self._low * factor + digits
            return
        # by halves of 32 bits: a half times the factor, and what is carried into it, stay below 2**64
        low = (self._low & _LOW_32) * factor + digits
        middle = (self._low >> 32) * factor + (low >> 32)
        self._low = (low & _LOW_32) | (middle << 32)
        self._high = self._high * factor + (middle >> 32)

    def decimal(self, arrow: pa.DataType, negative: Mask, missing: Mask | None) -> pa.Decimal128Array:
        """The numbers with their signs."""
        # uint64[rows]: all ones where negative; -x is its complement + 1, which a lower word of 0 carries upwards
        sign = np.negative(negative.astype(np.uint64))
        words = np.empty((len(sign), 2), np.uint64)
        words[:, 0] = (self._low ^ sign) - sign
        high = sign if self._high is None else self._high ^ sign
        words[:, 1] = high + (negative & (self._low == 0))
        return fixed(words, arrow, missing)
