"""What verify found: one result per table, and every key range that differs. Nothing here compares anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from wal2lake import html
from wal2lake.lsn import LSN
from wal2lake.names import qualified

Key = int | str
Outcome = Literal["equal", "different", "not compared", "quarantined", "skipped", "not published"]
FINE = ("equal", "skipped", "not published")  # what somebody wants left out is no failure

_SHOWN = 50  # of the findings, in a notebook
HEADINGS = ("table", "result", "rows in source", "rows in lake", "ranges", "LSN", "version", "seconds")


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows whose ``column`` lies in [lower, upper); None is an open end, where NULL belongs too.

    ``columns`` names what differs when the keys on both sides agree; it is empty when rows are missing or too many.
    Text is ordered by its UTF-8 bytes (COLLATE "C").
    """

    column: str
    lower: Key | None
    upper: Key | None
    rows_source: int
    rows_lake: int
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        ends = [
            f"{self.column} {sign} {end!r}" for sign, end in ((">=", self.lower), ("<", self.upper)) if end is not None
        ]
        what = f", differing in {', '.join(self.columns)}" if self.columns else ""
        where = " and ".join(ends) or "all rows"
        return f"{where}: {self.rows_source} rows in the source, {self.rows_lake} in the lake{what}"


@dataclass(frozen=True, slots=True)
class TableResult:
    """One table at one LSN: the source under a snapshot, the lake at one Delta version.

    ``problem`` is a sentence when the tables could not be compared in full (no lake table, a column missing, no right
    to read it). ``ranges`` counts the key ranges compared; ``bad_ranges`` are those that differ, the first few narrowed
    down. ``left_out``: why nothing was compared, if that is as the pipeline or the publication has it.
    """

    namespace: str
    name: str
    lsn: LSN
    version: int | None
    rows_source: int
    rows_lake: int
    ranges: int
    bad_ranges: tuple[KeyRange, ...]
    seconds: float
    problem: str | None = None
    left_out: Outcome | None = None

    @property
    def outcome(self) -> Outcome:
        if self.left_out is not None:
            return self.left_out
        if self.bad_ranges:
            return "different"
        return "equal" if self.problem is None else "not compared"

    @property
    def ok(self) -> bool:
        return self.outcome in FINE

    def __str__(self) -> str:
        return qualified(self.namespace, self.name)

    def row(self) -> tuple[str, ...]:
        """The result as text, under HEADINGS."""
        verdict = f"{len(self.bad_ranges)} ranges differ" if self.bad_ranges else self.outcome
        version = "-" if self.version is None else str(self.version)
        counts = (f"{self.rows_source:,}", f"{self.rows_lake:,}", str(self.ranges)) if self.ranges else ("-",) * 3
        return (str(self), verdict, *counts, str(self.lsn), version, f"{self.seconds:.1f}")

    def findings(self) -> list[str]:
        """A line for everything that is wrong, or was not compared."""
        return [f"{self}: {what}" for what in ([self.problem] if self.problem else []) + [*map(str, self.bad_ranges)]]


def uncompared(namespace: str, name: str, lsn: LSN, problem: str, left_out: Outcome | None = None) -> TableResult:
    """The result for a table of which nothing was compared."""
    return TableResult(namespace, name, lsn, None, 0, 0, 0, (), 0.0, problem, left_out)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All tables at the same LSN; those of the publication, and those that the lake still has of it.

    ``note`` says what weakens a difference, such as a lake known to be behind."""

    lsn: LSN
    tables: Sequence[TableResult]
    note: str | None = None

    @property
    def ok(self) -> bool:
        """Every table is equal, or left out because somebody wants it so; and one at least is equal."""
        return all(table.ok for table in self.tables) and any(table.outcome == "equal" for table in self.tables)

    def to_json(self) -> str:
        """One JSON object; LSNs as PostgreSQL writes them."""
        tables = [
            asdict(table) | {"outcome": table.outcome, "ok": table.ok, "lsn": str(table.lsn)} for table in self.tables
        ]
        document: dict[str, Any] = {"ok": self.ok, "lsn": str(self.lsn), "note": self.note, "tables": tables}
        return json.dumps(document)

    def _repr_html_(self) -> str:
        """For notebooks: a row a table, then what differs."""
        rows, bad = [table.row() for table in self.tables], [not table.ok for table in self.tables]
        findings = [finding for table in self.tables for finding in table.findings()]
        more = [f"… and {len(findings) - _SHOWN} more"] if len(findings) > _SHOWN else []
        notes = [self.note] if self.note is not None else []
        return html.table(HEADINGS, rows, marked=bad) + html.bullets([*findings[:_SHOWN], *more, *notes])
