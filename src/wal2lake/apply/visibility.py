"""A change is skipped for a snapshot's rows exactly when its transaction is visible in that snapshot.

Visibility is by xid, never by LSN: a commit record's LSN precedes the moment the commit becomes visible, so no LSN
says what a snapshot saw. The LSN only says when to stop asking: nothing that commits at or after the snapshot's
``bound_lsn`` is visible in it.

Source: PostgreSQL documentation, "Transaction ID and Snapshot Information Functions"; XidInMVCCSnapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.apply.row_index import Ids, Mask

if TYPE_CHECKING:
    from wal2lake.columnar.changes import Changes


class Snapshot(Protocol):
    """What pg_current_snapshot() told (64-bit xids)."""

    @property
    def xmin(self) -> int: ...
    @property
    def xmax(self) -> int: ...
    @property
    def xip(self) -> Sequence[int]: ...


def widen(xid: npt.NDArray[np.uint32], near: int) -> npt.NDArray[np.uint64]:
    """The 64-bit xids that end in ``xid`` and lie within 2**31 of ``near`` (a 64-bit xid)."""
    # int32[N]: xids are a circle of 2**32; the signed difference is the shorter way round
    distance = (xid - np.uint32(near & 0xFFFFFFFF)).view(np.int32)
    return (distance + np.int64(near)).astype(np.uint64)


def visible(xid: npt.NDArray[np.uint32], snapshot: Snapshot) -> Mask:
    """bool[N]: the snapshot sees what these (committed, top-level) transactions did."""
    wide = widen(xid, snapshot.xmax)
    running = np.isin(wide, np.asarray(snapshot.xip, np.uint64))
    seen: Mask = (wide < snapshot.xmin) | ((wide < snapshot.xmax) & ~running)
    return seen


def select(changes: Changes, rows: Ids) -> Changes:
    """The changes at these positions, in this order."""
    if len(rows) == len(changes.kind) and np.array_equal(rows, np.arange(len(rows))):
        return changes
    take = pa.array(rows)
    return replace(
        changes,
        kind=changes.kind[rows],
        row=changes.row[rows],
        lsn=changes.lsn[rows],
        xid=changes.xid[rows],
        new=[column.take(take) for column in changes.new],
        unchanged=[None if mask is None else mask[rows] for mask in changes.unchanged],
        old_kind=changes.old_kind[rows],
        old=None if changes.old is None else [column.take(take) for column in changes.old],
    )
