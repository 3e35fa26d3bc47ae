"""Server, change log and lake as they are at one moment, each looked at by itself: a broken one hides no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from wal2lake.changelog.format import segment_name
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.places import IDENTITY, TIMELINES
from wal2lake.changelog.storage import Storage
from wal2lake.config import Config
from wal2lake.errors import ConfigError, LockedError, PublicationError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.monitor.problem import Problem
from wal2lake.monitor.view import format_duration
from wal2lake.names import qualified
from wal2lake.postgres.catalog import SystemIdentity, identify, published_tables
from wal2lake.postgres.connection import Connection, connect, mapped_errors
from wal2lake.postgres.slots import SlotState, slot_state
from wal2lake.tables.target import Target

_OPEN_S = 600.0
_LOCK_TIMEOUT = "2s"  # the tables are not listed while somebody locks one; the rest is worth seeing


@dataclass(frozen=True)
class LogStatus:
    """The change log; LSNs in bytes, ``size`` in bytes. ``prepared``: xids of what is prepared and has not ended."""

    segments: int
    size: int
    start_lsn: LSN
    last_end_lsn: LSN
    durable_lsn: LSN
    timeline: int
    prepared: tuple[int, ...] = ()


@dataclass(frozen=True)
class Places:
    """Server, change log and lake at one moment; what cannot be read is None, with the reason in ``problems``.

    ``exists``: there is a log, if only a damaged one; without one neither capture nor pipeline has begun. ``ts``: when
    the look ended, in Unix seconds.
    """

    server_wal_lsn: LSN | None
    slot: SlotState | None
    log: LogStatus | None
    applied: dict[str, LSN | None]
    exists: bool
    problems: tuple[Problem, ...]
    ts: float = field(default_factory=time.time)


class PlacesReader:
    """Looks once or again and again: it keeps what it knows of the log, and asks the lake's tables, of which there may
    be hundreds, no more often than ``lake_share`` of the time allows (1: each time). For all threads."""

    def __init__(self, config: Config, lake_share: float = 1.0) -> None:
        self._config = config
        self._log = LogReader(config.log.path)
        self._lake_share = lake_share
        self._lake_due = 0.0
        self._lake: tuple[dict[str, LSN | None], list[Problem]] = {}, []
        self._one_at_a_time = threading.Lock()
        self._seen: Places | None = None
        self._seen_at = 0.0

    def read(self, max_age_s: float = 0.0) -> Places:
        """The places as they are now, or as they were seen less than ``max_age_s`` ago: who shares this looks once."""
        with self._one_at_a_time:
            if self._seen is None or time.monotonic() - self._seen_at >= max_age_s:
                self._seen, self._seen_at = self.look(), time.monotonic()
            return self._seen

    def look(self) -> Places:
        """The places as they are now, for the one who asks."""
        config, problems, of_log = self._config, list[Problem](), list[Problem]()
        exists, log = self._log_status(of_log)  # looked at first: the log follows the server
        system, slot, names = _server_status(config, problems)
        problems += of_log
        if log is not None and system is not None:
            problems += _history_problems(log, system)
        applied, of_lake = self._read_lake(names)
        return Places(system and system.wal_lsn, slot, log, applied, exists, (*problems, *of_lake))

    def _log_status(self, problems: list[Problem]) -> tuple[bool, LogStatus | None]:
        """Whether there is a log, and how it stands, where it can be read."""
        try:
            log = self._log.read()
            size = sum(segment.payload_bytes for segment in log.segments)
        except Wal2LakeError as error:
            problems.append(Problem("log", str(error)))
            return not isinstance(error, ConfigError), None
        problems += _open_transactions(log)
        lsns = LSN(log.start_lsn), LSN(log.last_end_lsn), log.durable_lsn()
        prepared = tuple(sorted(log.segments[-1].prepared)) if log.segments else ()
        return True, LogStatus(len(log.segments), size, *lsns, log.identity.timeline, prepared)

    def _read_lake(self, names: list[tuple[str, str]]) -> tuple[dict[str, LSN | None], list[Problem]]:
        began = time.monotonic()
        if self._lake_share == 1.0 or began >= self._lake_due:
            problems: list[Problem] = []
            self._lake = _applied_lsns(self._config, names, problems), problems
            self._lake_due = began + (time.monotonic() - began) / self._lake_share
        return self._lake


class LogReader:
    """The log as it is at each ``read``, of which only what is new is looked at; for one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._log: ChangeLog | None = None
        self._identity: tuple[str, ...] = ()

    def read(self) -> ChangeLog:
        """Raises what opening it raises."""
        storage, log, self._log = storage_at(self._path), self._log, None  # what fails is opened anew
        if log is not None and self._identity == _identity(storage):
            log.refresh()
        else:
            log = ChangeLog.open(self._path)
            self._identity = _identity(storage)
        self._log = log
        return log


def _open_transactions(log: ChangeLog) -> Iterator[Problem]:
    """They keep the log, as they keep WAL on the server. The gid of a prepared one may say what is nobody's business
    here: its xid finds it."""
    newest = log.segments[-1] if log.segments else None
    if newest is None:
        return
    prepared = log.prepared()
    for xid, one in sorted(prepared.items()):
        if (age_s := _age_s(log, one.seq)) > _OPEN_S:
            text = (
                f"Transaction {xid} has been prepared for {format_duration(age_s)}, and keeps the change log from"
                f" segment {one.first_seq} on, and the server's WAL: COMMIT PREPARED or ROLLBACK PREPARED it, by the"
                " gid that pg_prepared_xacts has of it."
            )
            yield Problem("open_transaction", text)
    since = newest.open_after
    if since < min((one.first_seq for one in prepared.values()), default=newest.seq):
        if (age_s := _age_s(log, since)) <= _OPEN_S:
            return
        text = (
            f"A transaction that is streamed has not ended for {format_duration(age_s)}, and keeps the change"
            f" log from segment {since} on: pg_stat_activity or pg_prepared_xacts shows which."
        )
        yield Problem("open_transaction", text)


def _age_s(log: ChangeLog, seq: int) -> float:
    """Of a segment, in seconds; 0 where retention has removed it meanwhile."""
    try:
        return time.time() - log.storage.modified(segment_name(seq))
    except FileNotFoundError:
        return 0.0


def _identity(storage: Storage) -> tuple[str, ...]:
    """Another log, or one that was cut back for another timeline, has another."""
    try:
        return (storage.read(IDENTITY).version, *storage.names(TIMELINES))
    except FileNotFoundError:
        return ()


def _server_status(
    config: Config, problems: list[Problem]
) -> tuple[SystemIdentity | None, SlotState | None, list[tuple[str, str]]]:
    settings = {"lock_timeout": _LOCK_TIMEOUT}
    try:
        with (
            connect(config.source.login, application_name="wal2lake status", settings=settings) as connection,
            mapped_errors(),
        ):
            slot = slot_state(connection, config.source.slot)
            problems += _slot_problems(config.source.slot, slot)
            return identify(connection), slot, _published_names(connection, config, problems)
    except Wal2LakeError as error:
        problems.append(Problem("server", str(error)))
        return None, None, []


def _history_problems(log: LogStatus, system: SystemIdentity) -> Iterator[Problem]:
    """Why the log and the server's WAL cannot be of one history."""
    if system.timeline < log.timeline:
        text = (
            f"The server is on timeline {system.timeline}, and the change log has gone on to timeline {log.timeline}:"
            " this is a server that was left behind by a promotion. `wal2lake check` says what to do."
        )
        yield Problem("history", text)
    elif system.wal_lsn < log.durable_lsn:
        why = "was taken back to an earlier state"
        if system.timeline > log.timeline:
            why = f"was promoted to timeline {system.timeline}, without what the log has of timeline {log.timeline}"
        text = (
            f"The server's WAL ends at {system.wal_lsn}, before the change log, which ends at {log.durable_lsn}: the"
            f" server {why}. `wal2lake check` says what to do."
        )
        yield Problem("history", text)


def _slot_problems(name: str, slot: SlotState | None) -> Iterator[Problem]:
    if slot is None:
        yield Problem("slot_missing", f"There is no replication slot {name} on the server.")
    elif slot.lost:
        yield Problem("slot_lost", f"The replication slot {name} is lost: `wal2lake check` says why.")
    elif slot.unfinished:
        text = (
            f"The replication slot {name} is being made, which waits for running transactions to end: `wal2lake check`"
            " names them."
        )
        yield Problem("slot_unfinished", text)
    elif slot.wal_status == "unreserved":
        text = f"The replication slot {name} is about to be lost: it is farther behind than max_slot_wal_keep_size."
        yield Problem("slot_unreserved", text)


def _published_names(connection: Connection, config: Config, problems: list[Problem]) -> list[tuple[str, str]]:
    try:
        return [(table.namespace, table.name) for table in published_tables(connection, config.source.publication)]
    except PublicationError as error:
        problems.append(Problem("publication", str(error)))
    except LockedError as error:
        problems.append(Problem("locked", f"The published tables cannot be listed now. {error}"))
    return []


def _applied_lsns(config: Config, names: list[tuple[str, str]], problems: list[Problem]) -> dict[str, LSN | None]:
    applied: dict[str, LSN | None] = {}
    for namespace, name in names:
        try:
            state = Target.of(config, namespace, name).sink().state()
        except Wal2LakeError as error:
            problems.append(Problem("lake", str(error), qualified(namespace, name)))
            continue
        applied[qualified(namespace, name)] = None if state is None else LSN(state.applied_lsn)
    return applied
