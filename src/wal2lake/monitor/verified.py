"""What `verify` found last, left in the log's folder for whoever shows it: ``status/verify.json``.

Like all that is said there it decides nothing, and one that cannot be read counts as absent. The bounds of key ranges
that differ are in it: they are as private as the log's rows beside it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from wal2lake.changelog.documents import parsing, read_document, write_document
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.places import STATUS, status_document
from wal2lake.changelog.status import reason_of
from wal2lake.errors import ConfigError, LogCorruptError, Wal2LakeError
from wal2lake.files import LockHeldError

if TYPE_CHECKING:
    from wal2lake.verify.report import VerifyReport

_MOST_RANGES = 20  # kept of a table
_ROLE = "verify"
_LOCK = f"{STATUS}/.verify"


@dataclass
class Verified:
    """``state`` of the last run and when that was (``ts``, Unix seconds; ``seconds`` it took), "died" where it said
    nothing of its end; ``said``: what it waits for, or why it failed. ``tables``: by name the newest result of each, in
    the words of `verify --json`, with ``ts`` and ``findings``."""

    state: Literal["running", "done", "failed", "died"] = "running"
    ts: float = 0.0
    seconds: float = 0.0
    said: str = ""
    ok: bool = False
    lsn: str = ""
    note: str | None = None
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)


def read_verified(log_path: str) -> Verified | None:
    """What was found last; None if nothing was."""
    storage, name = storage_at(log_path), status_document(_ROLE)
    try:
        document = read_document(storage.get(name), name)
        with parsing(name):
            found = Verified(**{f.name: document[f.name] for f in fields(Verified) if f.name in document})
        if found.state == "running" and not storage.is_locked(_LOCK):
            found.state = "died"
        return found
    except (OSError, ConfigError, LogCorruptError):
        return None


class VerifyRecord:
    """Writes it while a run goes on. Of several at once the first one is recorded."""

    def __init__(self, log_path: str) -> None:
        self._storage = storage_at(log_path)
        self._holds = False
        self._began = time.time()
        before = read_verified(log_path)
        self._now = Verified(ts=self._began, tables={} if before is None else before.tables)

    def said(self, text: str) -> None:
        """What it waits for."""
        self._now.said = text
        self._write()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """What the block raises ended the run."""
        with ExitStack() as stack:
            with suppress(LockHeldError, FileNotFoundError, Wal2LakeError):  # there is a first one, or no log
                stack.enter_context(self._storage.lock(_LOCK))
                self._holds = True
            self._write()
            try:
                yield
            except BaseException as error:
                self._now.state, self._now.said = "failed", reason_of(error)
                self._write()
                raise

    def found(self, report: VerifyReport, *, whole: bool) -> None:
        """``whole``: all tables were compared, so others are no more."""
        told = json.loads(report.to_json())
        now = time.time()
        results = {
            str(result): {
                **document,
                "bad_ranges": document["bad_ranges"][:_MOST_RANGES],
                "findings": result.findings()[:_MOST_RANGES],
                "ts": now,
            }
            for result, document in zip(report.tables, told["tables"], strict=True)
        }
        tables = results if whole else self._now.tables | results
        self._now = Verified("done", now, now - self._began, "", told["ok"], told["lsn"], told["note"], tables)
        self._write()

    def _write(self) -> None:
        if not self._holds:
            return
        with suppress(Wal2LakeError, OSError):  # a full disk is no reason to prove nothing
            self._storage.note(status_document(_ROLE), write_document(asdict(self._now)))
