"""PostgreSQL counts time in µs from 2000-01-01 00:00 UTC, and days from that one; Unix and Arrow from 1970-01-01.

Source: src/include/datatype/timestamp.h, POSTGRES_EPOCH_JDATE and UNIX_EPOCH_JDATE.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
EPOCH_DAYS: Final = 10_957  # from Unix's epoch to PostgreSQL's
EPOCH_S: Final = EPOCH_DAYS * 86_400
EPOCH_US: Final = EPOCH_S * 1_000_000


def moment(micros: int) -> datetime:
    """µs since PostgreSQL's epoch as datetime in UTC; raises OverflowError beyond the years that datetime has."""
    return EPOCH + timedelta(microseconds=micros)
