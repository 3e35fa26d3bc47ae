"""What `check` says: findings, and the server as its checks look at it.

SQL in a finding can be run as it stands: names in it are quoted, and what a terminal would act upon is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wal2lake.errors import LockedError
from wal2lake.login import Dsn
from wal2lake.names import printable, quoted_printable
from wal2lake.postgres.catalog import PublishedTable
from wal2lake.postgres.connection import Connection
from wal2lake.postgres.slots import SlotState

Level = Literal["ok", "warning", "error"]
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer. ``name`` is stable; ``text`` a sentence; ``sql`` what mends it, where SQL can.

    ``choice``: somebody has to decide about that SQL, or to fill it in, before it is run.
    """

    name: str
    level: Level
    text: str
    sql: str | None = None
    choice: bool = False

    @property
    def ok(self) -> bool:
        """True unless something should be done."""
        return self.level == "ok"


@dataclass
class Probe:
    """What the checks look at, read once."""

    dsn: Dsn
    connection: Connection
    publication: str
    slot_name: str
    role: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    slots: list[SlotState] = field(default_factory=list)
    tables: list[PublishedTable] | None = None
    locked: LockedError | None = None

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql.encode(), parameters).fetchall()

    @property
    def slot(self) -> SlotState | None:
        return next((slot for slot in self.slots if slot.slot_name == self.slot_name), None)

    @property
    def oids(self) -> list[int]:
        """The published tables'."""
        return [table.relation_id for table in self.tables or ()]


def sql_name(*parts: str) -> str:
    """A name, quoted for SQL and printable: U&"…" where it has characters that are not."""
    return ".".join(map(quoted_printable, parts))


def some(names: Sequence[object]) -> str:
    """The first few names, and how many more there are."""
    named = ", ".join(map(str, names[:_MOST_NAMES]))
    return named + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


def as_script(findings: Sequence[Finding]) -> str:
    """The SQL of ``findings`` as psql reads it: each below a comment that says why, choices as comments too."""
    lines = []
    for finding in findings:
        if finding.sql is not None and not finding.ok:
            lines.append(f"-- {finding.name}: {printable(finding.text)}")
            lines.append(re.sub("^", "-- your choice: ", finding.sql, flags=re.M) if finding.choice else finding.sql)
    return "\n".join(lines)
