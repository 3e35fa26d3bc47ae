"""A log sequence number is an integer of bytes into the WAL; only its text form is special.

Source: PostgreSQL documentation, "pg_lsn Type"; src/include/access/xlogdefs.h.
"""

from __future__ import annotations

import re
from operator import index
from typing import SupportsIndex, overload

from wal2lake.errors import ConfigError

LSN_MAX = (1 << 64) - 1
_TEXT = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


class LSN(int):
    """A position in the WAL, in bytes (0 … 2**64 − 1); prints as PostgreSQL does, ``16/B374D848``.

    LSN 0 means "invalid" or "unknown" wherever the protocol carries one.
    """

    def __new__(cls, value: SupportsIndex = 0) -> LSN:
        """Raise ConfigError when ``value`` is no integer, or does not fit in 64 unsigned bits."""
        if type(value) is not int and type(value) is not LSN:
            value = _integer(value)
        if not 0 <= value <= LSN_MAX:
            raise ConfigError(f"An LSN lies between 0 and 2^64 - 1; {value:d} does not.")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> LSN:
        """Read PostgreSQL's text form; raise ConfigError when it is not one."""
        if not isinstance(text, str) or not _TEXT.fullmatch(text):
            raise ConfigError(f"{text!r} is not an LSN.", hint="Write it as PostgreSQL does: 16/B374D848.")
        high, low = text.split("/")
        return cls((int(high, 16) << 32) | int(low, 16))

    def __add__(self, other: int) -> LSN:
        """So many bytes further."""
        return LSN(int(self) + index(other))

    __radd__ = __add__

    @overload
    def __sub__(self, other: LSN) -> int: ...

    @overload
    def __sub__(self, other: int) -> LSN | int: ...

    def __sub__(self, other: int) -> LSN | int:
        """The bytes between two positions, or the position so many bytes before."""
        difference = int(self) - index(other)
        return difference if isinstance(other, LSN) else LSN(difference)

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"LSN({str(self)!r})"

    def __format__(self, spec: str) -> str:
        return int(self).__format__(spec) if spec[-1:] in "dxX" and spec else format(str(self), spec)


def _integer(value: object) -> int:
    """What counts as one (NumPy's too); a bool is none, a float would be cut."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ConfigError(
            f"An LSN is an integer, not a {type(value).__name__}.", hint="LSN.parse reads PostgreSQL's text of one."
        )
    return index(value)
