"""wal2lake: PostgreSQL logical replication in Python, landed in lakehouse tables through Spark.

``from wal2lake import connect`` is all that a program needs; what is not asked for is not imported. Nor is anything
else: the command passes here before it hears signals.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs an import

if TYPE_CHECKING:
    from typing import Any

    from wal2lake.client import (
        UNCHANGED,
        Begin,
        Change,
        Commit,
        Delete,
        Event,
        Insert,
        Message,
        Origin,
        Relation,
        Truncate,
        Update,
        connect,
        connect_physical,
    )
    from wal2lake.errors import Wal2LakeError
    from wal2lake.lsn import LSN

__version__ = "0.1.0"
__all__ = [
    "LSN", "UNCHANGED", "Begin", "Change", "Commit", "Delete", "Event", "Insert", "Message", "Origin", "Relation",
    "Truncate", "Update", "Wal2LakeError", "connect", "connect_physical",
]  # fmt: skip
_ELSEWHERE = {"LSN": "wal2lake.lsn", "Wal2LakeError": "wal2lake.errors"}


def __getattr__(name: str) -> Any:
    """What is exported is imported when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'wal2lake' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_ELSEWHERE.get(name, "wal2lake.client")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
