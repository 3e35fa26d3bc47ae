"""The change log: raw pgoutput messages in immutable segments, with an index of committed transactions.

Capture appends through LogWriter; everybody else reads ranges (start, end] of commit end LSNs through ChangeLog.
"""

from wal2lake.changelog.format import SEGMENT_SCHEMA, TRANSACTIONS_SCHEMA, LogIdentity, SegmentInfo
from wal2lake.changelog.log import ChangeLog, RelationRun
from wal2lake.changelog.plan import Extent
from wal2lake.changelog.writer import LogWriter

__all__ = [
    "SEGMENT_SCHEMA",
    "TRANSACTIONS_SCHEMA",
    "ChangeLog",
    "Extent",
    "LogIdentity",
    "LogWriter",
    "RelationRun",
    "SegmentInfo",
]
