"""A promotion begins a timeline: whether the log goes on there, or has what the new server never heard of.

The server's history file says where each timeline was left for the next. Up to there both are one WAL, byte for byte.
So a log that ends at or before that place goes on, however many promotions lie between; what the old server did behind
it, and the log has, did not happen. That log is refused, with what it has of it, until it is cut back and the tables
are read again that may hold it (tables/forked.py).

A position beyond the place where no segment reaches does not count: an idle log hears how far the server's WAL goes,
though nothing in it was for it. It is put back to that place; what commits behind it on the new timeline comes anew.
Segments are never taken away here: readers that run know them by their numbers.

Source: PostgreSQL documentation, "Timelines", and "Streaming Replication Protocol" (TIMELINE_HISTORY); "Logical
Replication Failover" (slots that standbys keep in step).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wal2lake.changelog.events import Events
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.timelines import Switches, Timeline, newest_timeline
from wal2lake.changelog.writer import LogWriter
from wal2lake.errors import BEGIN_ANEW, ConnectError, LogMismatchError
from wal2lake.login import Dsn
from wal2lake.lsn import LSN, LSN_MAX
from wal2lake.names import qualified
from wal2lake.postgres.catalog import SystemIdentity, identify
from wal2lake.postgres.connection import replication_connection
from wal2lake.postgres.exchange import PGconn
from wal2lake.postgres.system import timeline_history

_NAMED = 20  # tables in a sentence


@dataclass(frozen=True, slots=True)
class Step:
    """From the log's timeline to the server's. ``fork``: where the server's history leaves the log's timeline; None
    where it is on it still. ``timeline``: what is to be recorded of the server's; None: that is known."""

    fork: LSN | None = None
    timeline: Timeline | None = None

    def bounded(self, lsn: LSN) -> LSN:
        """``lsn``, or the fork if that comes first."""
        return lsn if self.fork is None else min(lsn, self.fork)

    def take(self, writer: LogWriter) -> None:
        """Let ``writer``'s log go on on the server's timeline; durable when it returns."""
        if self.timeline is None:
            return
        if self.fork is not None:
            old, new = writer.log.identity.timeline, self.timeline.number
            text = (
                f"The server was promoted: timeline {new} goes on where timeline {old} was left, at {self.fork}, and so"
                " does the log."
            )
            Events(writer.log.storage, "capture").record("promoted", text, level="warning", timeline=new, lsn=self.fork)
            if writer.durable_lsn > self.fork:
                writer.cut(self.fork)
        writer.follow(self.timeline)


def step_to(dsn: Dsn, log: ChangeLog, system: SystemIdentity) -> Step:
    """The step from where ``log`` is to the server; raises LogMismatchError where it cannot be taken."""
    step = find_step(dsn, log, system)
    if step.fork is not None and reaches_beyond(log, step.fork):
        raise _forked(log, system, step.fork)
    return step


def find_step(dsn: Dsn, log: ChangeLog, system: SystemIdentity) -> Step:
    """The same, also where the log has transactions behind the fork.

    Raises LogMismatchError for a server whose history is not the log's, ConnectError for one promoted meanwhile.
    """
    mine = log.identity.timeline
    if system.timeline < mine:
        raise LogMismatchError(
            f"The server is on timeline {system.timeline}, and the change log has gone on to timeline {mine}: this is a"
            " server that was left behind by a promotion.",
            hint="Point source.dsn at the server that was promoted; stop the old one, or make it a standby.",
        )
    if system.timeline == 1:
        return Step()
    with replication_connection(dsn, application_name="wal2lake capture") as pgconn:
        require_same(pgconn, system)
        file = timeline_history(pgconn, system.timeline)
    theirs = Timeline(system.timeline, tuple((switch.timeline, switch.lsn) for switch in file.switches))
    known = newest_timeline(log.storage)
    fork = theirs.left_at(mine)
    if (fork is None and theirs.number != mine) or (known is not None and not theirs.continues(known)):
        raise _other_history(theirs, known or Timeline(mine, ()))
    return Step(fork, None if known is not None and known.number == theirs.number else theirs)


def reaches_beyond(log: ChangeLog, fork: LSN) -> bool:
    """A segment of the log is of WAL behind ``fork``, be it a transaction that never ended."""
    return _reach(log) > fork


def _reach(log: ChangeLog) -> LSN:
    return LSN(log.segments[-1].durable_lsn) if log.segments else log.start_lsn


def require_same(pgconn: PGconn, system: SystemIdentity) -> None:
    """Raise ConnectError unless the connection's server is ``system``, on its timeline: a DSN may name several, and
    each connection may reach another."""
    found = identify(pgconn)
    if (found.system_id, found.timeline) != (system.system_id, system.timeline):
        raise ConnectError(
            "Another server answers than a moment ago, or it was promoted meanwhile.",
            hint="Where source.dsn names several hosts, let it say target_session_attrs=read-write.",
        )


def _other_history(theirs: Timeline, known: Timeline) -> LogMismatchError:
    return LogMismatchError(
        f"The server's timeline {theirs.number} does not continue the change log's timeline {known.number}"
        f" ({_told(known.switches)}): its history is {_told(theirs.switches)}.",
        hint="Point source.dsn at a server that continues it. If there is none, every table must be read again:"
        f" {BEGIN_ANEW}.",
    )


def _told(switches: Switches) -> str:
    return ", ".join(f"{timeline} until {lsn}" for timeline, lsn in switches) or "its first"


def _forked(log: ChangeLog, system: SystemIdentity, fork: LSN) -> LogMismatchError:
    mine = log.identity.timeline
    moved = moved_on(log, fork)
    named = [f"{table} ({count} {'change' if count == 1 else 'changes'})" for table, count in sorted(moved.items())]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return LogMismatchError(
        f"The server was promoted: its timeline {system.timeline} comes from timeline {mine} at {fork}, and the change"
        f" log goes on there until {_reach(log)}. What it has behind {fork} happened to the old server alone, and"
        f" may be in the lake: {', '.join(named[:_NAMED]) or 'no table'}{more}.",
        hint="Stop wal2lake, and call `wal2lake resync --forked`: it cuts the log back to where the timelines part, and"
        " has these tables read anew by the next `wal2lake run`; the others go on.",
    )


def moved_on(log: ChangeLog, fork: LSN) -> Mapping[str, int]:
    """The tables that transactions in the log behind ``fork`` changed, by name, and how many changes of each."""
    found: dict[str, int] = {}
    for extent in log.plan(max(fork, log.beginning()), LSN_MAX):
        for relation_id, kinds in log.counts(extent).items():
            for run in log.relation_runs(extent, relation_id)[-1:]:
                name = qualified(run.relation.namespace, run.relation.name)
                found[name] = found.get(name, 0) + sum(kinds.values())
    return found
