"""What `verify` found last, left in the log's folder for whoever shows it: ``status/verify.json``.

Like all that is said there it decides nothing, and one that cannot be read counts as absent. The bounds of key ranges
that differ are in it: they are as private as the log's rows beside it.

A difference that was found is a finding of `status`, and doubt does not wear off: it stays, whatever is applied
meanwhile, until a later verify finds that table equal, or what the lake holds was read anew as a whole. A verify that
could not compare the table says nothing of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from wal2lake.changelog.documents import parsing, read_document, write_document
from wal2lake.changelog.events import Events, Level
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.places import STATUS, status_document
from wal2lake.changelog.status import reason_of
from wal2lake.changelog.storage import Storage, Version
from wal2lake.errors import RESYNC, ConfigError, Wal2LakeError
from wal2lake.files import LockHeldError
from wal2lake.monitor.problem import Problem
from wal2lake.monitor.view import format_duration
from wal2lake.tables.table_folder import TableFolder

if TYPE_CHECKING:
    from wal2lake.config import Config
    from wal2lake.tables.state import TableState
    from wal2lake.verify.report import VerifyReport

_MOST_RANGES = 20  # kept of a table
_NAMED = 5  # of the tables that are not equal
_ROLE = "verify"
_LOCK = f"{STATUS}/.verify"


@dataclass
class Difference:
    """A table that was not equal to its source at ``lsn`` (text) and the moment ``ts`` (Unix seconds), with so many
    rows on either side. ``plan_id``: of the snapshot that the lake's rows began with; None: not known. ``note``: what
    weakens the difference, such as a lake known to be behind."""

    namespace: str
    name: str
    ts: float
    lsn: str
    rows_source: int
    rows_lake: int
    plan_id: str | None = None
    note: str | None = None


@dataclass
class Verified:
    """``state`` of the last run and when that was (``ts``, Unix seconds; ``seconds`` it took), "died" where it said
    nothing of its end; ``said``: what it waits for, or why it failed. ``tables``: by name the newest result of each, in
    the words of `verify --json`, with ``ts`` and ``findings``. ``differences``: by name, of each table that differed
    and was not found equal since."""

    state: Literal["running", "done", "failed", "died"] = "running"
    ts: float = 0.0
    seconds: float = 0.0
    said: str = ""
    ok: bool = False
    lsn: str = ""
    note: str | None = None
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    differences: dict[str, Difference] = field(default_factory=dict)


def read_verified(log_path: str) -> Verified | None:
    """What was found last; None if nothing was."""
    return _read(storage_at(log_path))[0]


def _read(storage: Storage) -> tuple[Verified | None, Version | None]:
    """What was found last, and the document's version; None for what is not there, or cannot be read."""
    name = status_document(_ROLE)
    version: Version | None = None
    try:
        stored = storage.read(name)
        version = stored.version
        document = read_document(stored.data, name)
        with parsing(name):
            differed = document.get("differences", {}).items()
            known = {name: Difference(**_known(Difference, values)) for name, values in differed}
            found = Verified(**_known(Verified, document) | {"differences": known})
        if found.state == "running" and not storage.is_locked(_LOCK):
            found.state = "died"
        return found, version
    except (OSError, Wal2LakeError):
        return None, version


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: document[f.name] for f in fields(kind) if f.name in document}


def differences(config: Config) -> Iterator[Problem]:
    """A finding for each table that differed when it was last compared, and that was not read anew since."""
    found = read_verified(config.log.path)
    for name, difference in sorted(found.differences.items() if found else ()):
        state = _state(config, difference.namespace, difference.name)
        if state is not None and _is_over(difference, state):
            continue
        counts = f"{difference.rows_source:,} rows in the source, {difference.rows_lake:,} in the lake"
        ago = format_duration(max(0.0, time.time() - difference.ts))
        note = f" {difference.note}" if difference.note else ""
        text = (
            f"{name} differs from its source: verify found so at {difference.lsn}, {ago} ago ({counts}).{note}"
            f" `wal2lake verify` with its name compares it again. {RESYNC}"
        )
        yield Problem("table_different", text, name)


def _is_over(difference: Difference, state: TableState) -> bool:
    """Nobody wants the table any more, or other rows are in the lake than those that were compared."""
    if state.quarantine is not None and state.quarantine.skipped:
        return True
    landed = _plan_id(state)
    return difference.plan_id is not None and landed is not None and landed != difference.plan_id


def _plan_id(state: TableState | None) -> str | None:
    return state.landed.plan_id if state is not None and state.landed is not None else None


def _state(config: Config, namespace: str, name: str) -> TableState | None:
    try:
        return TableFolder(storage_at(config.log.path), config.pipeline.name, namespace, name).read()
    except (OSError, Wal2LakeError):  # a damaged document is no proof of anything
        return None


class VerifyRecord:
    """Writes it while a run goes on. Of several at once the first one is recorded; of the others that they differed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._storage = storage_at(config.log.path)
        self._holds = False
        self._began = time.time()
        self._before = read_verified(config.log.path)
        self._now = Verified(ts=self._began, tables=self._before.tables if self._before else {})

    def said(self, text: str) -> None:
        """What it waits for."""
        self._now.said = text
        self._write()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """What the block raises ended the run; but a slip, as a table that is not published, is none."""
        with ExitStack() as stack:
            with suppress(LockHeldError, FileNotFoundError, Wal2LakeError):  # there is a first one, or no log
                stack.enter_context(self._storage.lock(_LOCK))
                self._holds = True
            self._write()
            try:
                yield
            except BaseException as error:
                if isinstance(error, ConfigError) and self._before is not None:
                    self._now = self._before
                    self._write()
                    raise
                self._now.state, self._now.said = "failed", reason_of(error)
                self._write()
                raise

    def found(self, report: VerifyReport, *, whole: bool) -> None:
        """Keep it, and tell of it as an event. ``whole``: all tables were compared, so others are no more."""
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
        told_of = told["ok"], told["lsn"], told["note"]
        self._now = Verified("done", now, now - self._began, "", *told_of, tables)
        self._write(lambda before: self._differences(before, report, now, whole=whole))
        _tell(self._config, report)

    def _differences(
        self, before: Mapping[str, Difference], report: VerifyReport, now: float, *, whole: bool
    ) -> dict[str, Difference]:
        """What is known after ``report`` and was known ``before``. Which rows were compared is looked up behind the
        comparison: if they were exchanged meanwhile, the finding stays until somebody compares again."""
        names = {str(result) for result in report.tables}
        kept = {name: found for name, found in before.items() if not whole or name in names}
        for result in report.tables:
            if result.outcome == "different":
                plan_id = _plan_id(_state(self._config, result.namespace, result.name))
                counts = result.rows_source, result.rows_lake
                kept[str(result)] = Difference(
                    result.namespace, result.name, now, str(result.lsn), *counts, plan_id, report.note
                )
            elif result.ok:
                kept.pop(str(result), None)
        return kept

    def _write(self, change: Callable[[dict[str, Difference]], dict[str, Difference]] | None = None) -> None:
        """Say how it stands, beside the differences that are known by now, to which others may have added."""
        if not self._holds and change is None:
            return
        with suppress(Wal2LakeError, OSError):  # a full disk is no reason to prove nothing
            while not self._put(change):
                pass  # another run wrote meanwhile

    def _put(self, change: Callable[[dict[str, Difference]], dict[str, Difference]] | None) -> bool:
        """Whether nobody else wrote since it was read."""
        found, version = _read(self._storage)
        there = found or self._now
        known = there.differences if change is None else change(there.differences)
        said = replace(self._now if self._holds else there, differences=known)
        return self._storage.swap(status_document(_ROLE), write_document(asdict(said)), version) is not None


def _tell(config: Config, report: VerifyReport) -> None:
    """What verify found is an event."""
    bad = [str(table) for table in report.tables if not table.ok]
    equal = sum(table.outcome == "equal" for table in report.tables)
    text = f"At {report.lsn}, {equal} of {len(report.tables)} tables are equal to their source."
    if bad:
        more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        text += f" Not so: {', '.join(bad[:_NAMED])}{more}."
    level: Level = "info" if report.ok else "error"
    events = Events(config.log.path, "verify", config.pipeline.name)
    events.record("verified", text, level=level, lsn=report.lsn, equal=equal, not_equal=len(bad))
