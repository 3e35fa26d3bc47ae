"""What people are shown first of many tables: totals, then the troubled, those that move, and the rest.

The rule: page and terminal are made of this, so they never tell two stories; it looks at nothing but a Progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wal2lake.monitor.progress import Progress, TableProgress

TROUBLED = ("damaged", "missing", "quarantined")
_ORDER = (*TROUBLED, "snapshot", "waiting", "catching_up", "streaming", "unpublished", "skipped")
_TELLING = 0.02  # of a copy; before that nobody can tell how long the rest takes
_COPIED = ("snapshot", "waiting")


@dataclass(frozen=True, slots=True)
class Copying:
    """The tables that are being copied: ``done`` of ``tables`` are read whole. ``share``: of all their bytes, 0 to 1.

    ``left_s``: about how long the rest takes, None while nobody can tell.
    """

    done: int
    tables: int
    rows: int
    share: float
    rows_per_s: float
    left_s: float | None


@dataclass(frozen=True, slots=True)
class Totals:
    """All tables together. ``states``: how many are in each state, the worst first.

    ``rows``: None while those of a table that the lake has are not known.
    """

    tables: int
    states: dict[str, int]
    rows: int | None
    changes: int
    changes_per_s: float
    copying: Copying | None


def totals(progress: Progress) -> Totals:
    """What the tables of ``progress`` amount to."""
    tables = progress.tables
    return Totals(
        tables=len(tables),
        states=count_states(tables),
        rows=_rows(tables),
        changes=progress.changes,
        changes_per_s=sum(table.changes_per_s for table in tables) if progress.pipeline_lives else 0.0,
        copying=_copying(progress),
    )


def _rows(tables: Iterable[TableProgress]) -> int | None:
    counts = [table.rows for table in tables if table.rows is not None or table.state not in ("missing", *_COPIED)]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) > 0 else None


def count_states(tables: Iterable[TableProgress]) -> dict[str, int]:
    """How many tables are in each state, the worst first."""
    states: dict[str, int] = {}
    for table in sorted(tables, key=lambda table: _ORDER.index(table.state)):
        states[table.state] = states.get(table.state, 0) + 1
    return states


def ranked(tables: Iterable[TableProgress]) -> list[TableProgress]:
    """The troubled first, then those that are copied or catch up, then by about how much they change, by name."""
    return sorted(tables, key=_rank)


def is_copied(table: TableProgress) -> bool:
    """It is being read, or is about to be."""
    return table.state in _COPIED


def copied_share(tables: Iterable[TableProgress]) -> float:
    """How much of ``tables`` is read, 0 to 1: of their bytes, or of their chunks where those are not known."""
    counted = list(tables)
    read, total = sum(table.bytes_read for table in counted), sum(table.bytes_total for table in counted)
    if not total:
        read, total = sum(table.chunks_done for table in counted), sum(table.chunks_total for table in counted)
    return read / total if total else 0.0


def _rank(table: TableProgress) -> tuple[int, float, str]:
    place = _ORDER.index(table.state)
    weight = float(len(str(int(table.changes_per_s))))  # by its digits alone, or rows would change places all the time
    if is_copied(table):
        share = copied_share([table])
        weight = share if share < 1 else -1.0  # what is read whole only waits for the others
    elif table.state == "streaming" and not (table.changes_per_s or table.behind):
        place = len(_ORDER)  # idle, and all is well
    return place, -weight, table.name


def _copying(progress: Progress) -> Copying | None:
    copied: Sequence[TableProgress] = [table for table in progress.tables if is_copied(table)]
    if not copied or not progress.pipeline_lives:
        return None
    share = copied_share(copied)
    left, rate = sum(table.bytes_total - table.bytes_read for table in copied), progress.bytes_read_per_s
    return Copying(
        done=sum(table.chunks_done == table.chunks_total > 0 for table in copied),
        tables=len(copied),
        rows=sum(table.rows_read for table in copied),
        share=share,
        rows_per_s=progress.rows_read_per_s,
        left_s=left / rate if rate > 0 and share >= _TELLING else None,
    )
