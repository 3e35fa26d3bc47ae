"""What the pipeline itself says of its tables: which it knows, and which of them it leaves out.

It is believed in nothing else: a table that it says is fine is compared all the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.tables import TableDocuments
from wal2lake.verify.report import Outcome


class LeftOut(NamedTuple):
    """``outcome``: quarantined, or skipped where somebody wants it so; ``reason``: a sentence."""

    outcome: Outcome
    reason: str


def left_out(log: ChangeLog, pipeline: str, namespace: str, name: str) -> LeftOut | None:
    """Why the pipeline leaves the table out by now, if it does. Raises LogCorruptError."""
    return TableDocuments(log.storage, pipeline, namespace, name).read_state(_left_out)


def _left_out(document: dict[str, Any]) -> LeftOut | None:
    quarantine = document["quarantine"]
    if quarantine is None:
        return None
    return LeftOut("skipped" if quarantine["skipped"] else "quarantined", quarantine["reason"])
