"""How far a lake table is, told from its own commits and the change log, and which of its versions is the source's.

A wal2lake commit carries the end LSN that it brings the table to. The version that stands for LSN P is the last one
before the first commit beyond P, so what somebody else did to the table behind wal2lake's back is in it, and is found.
That version is whole when the log, durable up to P, has no change of the table between the version's LSN and P. This
decides only whether to wait: a wrong answer costs a false alarm, never a false proof, for rows are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from deltalake import DeltaTable

from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.status import seconds_since_heard
from wal2lake.errors import LogMismatchError, VerifyError
from wal2lake.lakes import Place
from wal2lake.lsn import LSN
from wal2lake.verify.lake_place import commits_back_from, has_table, open_table

LSN_KEY = "wal2lake.lsn"
_STATUS_SECONDS = 10.0  # a running process writes its status about once a second
_POLL_SECONDS = 0.5  # each look reads the newest commits of every table that is behind

Say = Callable[[str], None]
L = TypeVar("L", bound="Located")


@dataclass(frozen=True, slots=True)
class TableLocation:
    """A published table and where it lies in the lake."""

    name: str
    relation_id: int
    place: Place

    def exists(self) -> bool:
        """The lake has such a table."""
        return has_table(self.place)

    def position(self, lsn: LSN) -> LakePosition | None:
        """None when the lake has no such table."""
        table = open_table(self.place)
        return None if table is None else lake_position(self.place, table.version(), lsn)

    def at(self, position: LakePosition) -> DeltaTable:
        """The version that ``position`` names."""
        table = open_table(self.place, position.version)
        if table is None:
            raise VerifyError(f"The Delta table at {self.place.uri} is gone.")
        return table


@dataclass(frozen=True, slots=True)
class LakePosition:
    """The version of a table for one LSN; ``lsn`` is what it was brought to (0: no commit says so).

    ``passed``: there is a later commit beyond the LSN, so this version is final. ``version`` −1: none is that old.
    """

    version: int
    lsn: LSN
    passed: bool


class Located(Protocol):
    """A published table, and how far it is in the lake; a TableLocation is one."""

    @property
    def name(self) -> str:
        """As schema.name."""

    @property
    def relation_id(self) -> int:
        """Its OID in the source."""

    def exists(self) -> bool:
        """The lake has such a table."""

    def position(self, lsn: LSN) -> LakePosition | None:
        """None when the lake has no such table."""


# Which of some tables still come to where they should be: not one that is left out meanwhile.
Expected = Callable[[Sequence[L]], list[L]]


def lake_position(place: Place, version: int, lsn: LSN) -> LakePosition:
    """The last version before the first wal2lake commit beyond ``lsn``, of a table whose newest is ``version``."""
    passed = False
    for number, said in commits_back_from(place, version):
        applied = LSN.parse(said[LSN_KEY]) if LSN_KEY in said else None
        if applied is not None and applied <= lsn:
            return LakePosition(version, applied, passed)
        if applied is not None:
            version, passed = number - 1, True
    return LakePosition(version, LSN(0), passed)


def log_touches(log: ChangeLog, relation_id: int, start: int, end: int) -> bool:
    """Whether a committed transaction in (start, end] changed the relation, as far as the log still goes back.

    Retention only removes what every consumer is done with. When it does so right now, the answer is yes until the
    next look.
    """
    try:
        start = max(start, log.beginning())
        return start < end and any(relation_id in log.counts(extent) for extent in log.plan(start, end))
    except LogMismatchError:
        return True


def await_snapshots(
    log: ChangeLog, tables: Sequence[L], timeout_s: float, say: Say, expected: Expected[L] = list
) -> None:
    """Wait until the lake has all tables that are expected, as long as something runs and one more comes within
    ``timeout_s``.

    A table's first version shows its own snapshot, which may be later than one taken before it.
    """
    since, fewest = time.monotonic(), len(tables)
    while missing := expected([table for table in tables if not table.exists()]):
        if len(missing) < fewest:
            since, fewest = time.monotonic(), len(missing)
        if time.monotonic() - since > timeout_s or not running(log):
            return
        say(f"Waiting for the snapshot of {_names(missing)}.")
        time.sleep(_POLL_SECONDS)


def await_tables(
    log: ChangeLog,
    tables: Sequence[L],
    lsn: LSN,
    timeout_s: float,
    say: Say,
    expected: Expected[L] = list,
) -> tuple[bool, str | None]:
    """Wait until every table that is expected stands at ``lsn``, as long as something runs and moves within
    ``timeout_s``.

    Returns whether ``lsn`` fits the lake (False: a batch went across it), and what is behind, if anything.
    """
    behind, seen, since = list(tables), None, time.monotonic()
    while True:
        positions = [(table, table.position(lsn)) for table in behind]
        log.refresh()  # after the lake was looked at, so the log is never behind what the lake has
        durable = log.durable_lsn()
        unfinished = [
            (table, at)
            for table, at in positions
            if durable < lsn or at is None or at.version < 0 or log_touches(log, table.relation_id, at.lsn, lsn)
        ]
        if any(position is not None and position.passed for _, position in unfinished):
            return False, None
        behind = expected([table for table, _ in unfinished])
        if not behind:
            return True, None
        if (durable, unfinished) != seen:
            seen, since = (durable, unfinished), time.monotonic()
        if time.monotonic() - since > timeout_s or not running(log):
            return True, _explanation(behind, durable, lsn)
        say(f"Waiting for {'the change log' if durable < lsn else _names(behind)} to reach {lsn}.")
        time.sleep(_POLL_SECONDS)


def _explanation(behind: Sequence[Located], durable: LSN, lsn: LSN) -> str:
    where = (
        f"the change log is durable up to {durable} only" if durable < lsn else f"{_names(behind)} did not get there"
    )
    return f"The source was read at {lsn}, but {where}: `wal2lake run` until it has drained, then verify again."


def _names(tables: Sequence[Located]) -> str:
    names = [table.name for table in tables]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def running(log: ChangeLog) -> bool:
    """Whether capture or a pipeline gave a sign of life just now."""
    heard = seconds_since_heard(log.storage)
    return heard is not None and heard < _STATUS_SECONDS
