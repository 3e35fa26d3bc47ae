"""What capture and pipeline say of themselves, about once a second, for people and monitors: one schema of each.

The rule: nothing is ever decided by it. What is done stands in the log and in the tables' commits. So documents are
replaced in one step, but not forced to disk, and one that cannot be read counts as absent; a field that another version
did not write has its default.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from wal2lake.changelog.documents import parsing, read_document, write_document
from wal2lake.changelog.places import STATUS, status_document
from wal2lake.changelog.storage import Storage
from wal2lake.errors import Wal2LakeError
from wal2lake.lsn import LSN

TableStage = Literal["snapshot", "catching_up", "streaming", "quarantined", "skipped", "unpublished", "missing"]
_NOWHERE = LSN(0)
_LSNS = {"received_lsn", "durable_lsn", "confirmed_lsn", "server_wal_end", "start_lsn", "end_lsn", "applied_lsn"}


@dataclass(kw_only=True)
class _Status:
    """``ts``: when it was said, in Unix seconds; whoever waits says beforehand until when. ``lock``: what its process
    holds as long as it lives; empty when it holds nothing yet. ``reason``: what ended it, or
    keeps it from its work, if something does."""

    role: ClassVar[str]
    pid: int = 0
    ts: float = 0.0
    state: str = "starting"
    lock: str = ""
    reason: str | None = None

    def write(self, storage: Storage) -> None:
        """Publish it."""
        storage.note(status_document(self.role), write_document(_to_document(asdict(self))))

    @classmethod
    def read(cls, storage: Storage) -> Self | None:
        """What was said last; None if nothing was, or it cannot be read: not ours to read, torn by a power cut,
        or where nobody answers."""
        name = status_document(cls.role)
        try:
            document = read_document(storage.get(name), name)
            with parsing(name):
                return cls(**_known(cls, document))
        except (OSError, Wal2LakeError):
            return None


@dataclass(kw_only=True)
class CaptureStatus(_Status):
    """Capture: LSNs of the stream, ``messages`` and ``bytes`` of this session, ``changes`` of this process.

    ``start_lsn``, ``end_lsn``: where the log begins, and the end of its last transaction. ``open_streams``: how many
    transactions have a part in the log, and no end yet; ``prepared``: how many are there whole, and may still go either
    way.
    """

    role: ClassVar[str] = "capture"
    received_lsn: LSN = _NOWHERE
    durable_lsn: LSN = _NOWHERE
    confirmed_lsn: LSN = _NOWHERE
    server_wal_end: LSN = _NOWHERE
    start_lsn: LSN = _NOWHERE
    end_lsn: LSN = _NOWHERE
    messages: int = 0
    bytes: int = 0
    changes: int = 0
    open_streams: int = 0
    prepared: int = 0


@dataclass(kw_only=True)
class TableStatus:
    """One table. ``rows``: of the lake table; ``changes``: applied since the pipeline's process began; ``behind``: the
    log has, or may have, changes of it that are not applied.

    While it is copied: ``rows_read`` of it so far, and ``bytes_read`` of the ``bytes_total`` of its heap, a chunk at a
    time.

    ``confirmed_lsn``: up to there a look at the catalog has confirmed that nothing was kept from the stream;
    ``unconfirmed_since`` (Unix seconds): when that was, if more is applied by now.

    ``tried``: why it was left out, while it is tried again and has not come to where the stream is.
    """

    state: TableStage | Literal["waiting"] = "waiting"
    rows: int | None = None
    chunks_done: int = 0
    chunks_total: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    bytes_total: int = 0
    applied_lsn: LSN = _NOWHERE
    changes: int = 0
    changes_per_s: float = 0.0
    reason: str | None = None
    behind: bool = True
    confirmed_lsn: LSN = _NOWHERE
    unconfirmed_since: float | None = None
    tried: str | None = None


@dataclass(kw_only=True)
class PipelineStatus(_Status):
    """The whole pipeline. ``doing``: what it is at, where its state does not tell; ``waiting_for``: what others must do
    before it goes on. ``lag_bytes``: WAL in the log and not in the lake; ``lag_s``: age of the oldest commit not yet
    applied; both 0 when level with the log. ``rows_read_per_s``, ``bytes_read_per_s``: of all tables that are copied.
    ``batch``: the last one's number in Spark; ``batches``: how many there were since the process began, in
    ``batch_seconds``.
    """

    role: ClassVar[str] = "pipeline"
    doing: str | None = None
    waiting_for: str | None = None
    batch: int = -1
    batches: int = 0
    batch_seconds: float = 0.0
    applied_lsn: LSN = _NOWHERE
    durable_lsn: LSN = _NOWHERE
    lag_bytes: int = 0
    lag_s: float = 0.0
    changes: int = 0
    changes_per_s: float = 0.0
    rows_read_per_s: float = 0.0
    bytes_read_per_s: float = 0.0
    tables: dict[str, TableStatus] = field(default_factory=dict)

    def table(self, name: str) -> TableStatus:
        return self.tables.setdefault(name, TableStatus())


def reason_of(error: BaseException) -> str:
    """What to say of an error that ended a process: what we did not write may hold anything."""
    if isinstance(error, Wal2LakeError):
        return str(error)
    return f"{type(error).__name__}; its log (`run` keeps one in {STATUS}/ of the change log) says more."


def seconds_since_heard(storage: Storage) -> float | None:
    """How long ago capture or a pipeline last said anything; None: never."""
    moments = [storage.modified(f"{STATUS}/{name}") for name in storage.names(STATUS)]
    return time.time() - max(moments) if moments else None


def _to_document(values: Any) -> Any:
    """LSNs as PostgreSQL's text."""
    if isinstance(values, dict):
        return {name: _to_document(value) for name, value in values.items()}
    return str(values) if isinstance(values, LSN) else values


def _known(cls: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``cls`` that the document has."""
    found = {f.name: document[f.name] for f in fields(cls) if f.name in document}
    for name in found.keys() & _LSNS:
        found[name] = LSN.parse(found[name])
    if "tables" in found:
        found["tables"] = {name: TableStatus(**_known(TableStatus, table)) for name, table in found["tables"].items()}
    return found
