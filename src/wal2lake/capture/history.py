"""Whether the server's history is still the log's: a server can be taken back, and then goes on differently.

A disk or VM snapshot, or a cold backup, that is put back has the log's system identifier and timeline. Its WAL ends
where it ended then; what it writes from there on gets LSNs that the log knows already, and would be dropped as known.

Shorter than the log, it shows by its WAL's end: what the log has was sent, and only flushed WAL is sent.

Grown past the log's end meanwhile, it shows by its slot, which was put back with it. Where the slot stands, the server
had been when it was copied; so all that it has from the log's history lies before the slot's position or comes again.
Therefore a stream begins where the slot stands, not where the log ends, and what comes again is compared with the
log's index, transaction by transaction: end LSN, xid and commit time. What only one side has is another history as
well. Until the log's end is passed nothing is acknowledged, for that would move the evidence. A slot that stands at
the log's end proves it by that: only acknowledgements move it there, and they follow the comparison.

After a crash of either side, too, the slot stands before the log's end (PostgreSQL does not write every move of a slot
to disk), and the same comparison then finds nothing wrong.

Source: SnapBuildXactNeedsSkip in snapbuild.c: a transaction is sent exactly when its commit record starts at or above
the position of the start.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wal2lake.changelog.log import ChangeLog
from wal2lake.columnar.headers import (
    BEGIN,
    BEGIN_PREPARE,
    COMMIT,
    COMMIT_PREPARED,
    DELETE,
    INSERT,
    PREPARE,
    STREAM_COMMIT,
    TRUNCATE,
    UPDATE,
    MessageColumns,
)
from wal2lake.errors import BEGIN_ANEW, ConnectError, LogMismatchError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Begin, Commit, CommitPrepared, StreamCommit
from wal2lake.postgres.connection import Connection, mapped_errors

_CHANGES = (INSERT, UPDATE, DELETE, TRUNCATE)
_CURE = (
    f"If the newer data directory is at hand, put it back. Otherwise every table must be read again:{{}} {BEGIN_ANEW}."
)
_AHEAD = " move the lake's tables away, which are ahead of the server;"  # landing refuses to replace such a table


class _Transaction(NamedTuple):
    end_lsn: int
    xid: int
    commit_ts: int

    def __str__(self) -> str:
        return f"transaction {self.xid}, which ends at {LSN(self.end_lsn)}"


def check_wal_end(connection: Connection, wal_lsn: LSN, durable: LSN) -> None:
    """Raise LogMismatchError when the server's WAL, which ends at ``wal_lsn``, is shorter than the log, at ``durable``.

    A standby replays what it has again after a restart; it gets a ConnectError, for time may mend it.
    """
    if wal_lsn >= durable:
        return
    with mapped_errors():
        row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    where = f"at {wal_lsn}, before the change log, which ends at {durable}"
    if row is not None and row[0]:
        raise ConnectError(f"The standby's WAL is replayed up to {wal_lsn} only, {where}.")
    raise LogMismatchError(
        f"The server's WAL ends {where}: the server was taken back to an earlier state, and what the log has from"
        " there on did not happen to it.",
        hint=_CURE.format(_AHEAD),
    )


class Resent:
    """What comes again of ``log``, durable up to ``durable``, from a slot that stands at ``confirmed``.

    ``over``: all of it came, and is the log's; what comes now is new, and may be acknowledged.
    """

    def __init__(self, log: ChangeLog, durable: LSN, confirmed: LSN) -> None:
        log.refresh()
        first = log.segments[0] if log.segments else None
        self._held = first.previous_end_lsn if first is not None and first.seq > 0 else int(log.start_lsn)
        self._durable = durable
        self._began: Begin | None = None
        self._preparing = 0  # transactions that are cut amid what is prepared of them: one, or none
        known = log.transactions(max(confirmed, self._held), log.last_end_lsn)
        columns = (known[name].to_pylist() for name in ("end_lsn", "xid", "commit_ts", "final_lsn"))
        self._expected = deque(_Transaction(*of) for *of, final in zip(*columns, strict=True) if final >= confirmed)
        self.over = confirmed >= durable

    def pass_over(self, messages: MessageColumns, keepalive: LSN) -> MessageColumns:
        """``messages`` without the changes that the log has.

        The transactions around them stay, empty, and so do Relation and Type messages: they are announced only once.
        So does what is streamed or prepared: whether the log has its transaction will be known at its end.
        ``keepalive`` as ReplicationStream.keepalive_lsn. Raises LogMismatchError when the log is of another history.
        """
        if self.over:
            return messages
        known = np.isin(messages.tag, _CHANGES) & (messages.subxid == 0) & ~self._in_prepared(messages)
        for row in messages.rows_of(BEGIN, COMMIT, STREAM_COMMIT, COMMIT_PREPARED).tolist():
            self._read_boundary(messages.message(row))
            if self.over:
                known[row:] = False
                break
        else:
            if keepalive >= self._durable:
                self._finish()
        return messages.where(~known)

    def _in_prepared(self, messages: MessageColumns) -> npt.NDArray[np.bool_]:
        """Which of them stand between a Begin Prepare and its Prepare."""
        begins = messages.tag == BEGIN_PREPARE
        depth = self._preparing + np.cumsum(begins.astype(np.int64) - (messages.tag == PREPARE))
        self._preparing = int(depth[-1]) if len(depth) else self._preparing
        inside: npt.NDArray[np.bool_] = depth > 0
        return inside

    def _read_boundary(self, message: object) -> None:
        if isinstance(message, Begin):
            self._began = message
            if message.final_lsn >= self._durable:
                self._finish()
        elif isinstance(message, Commit) and self._began is not None:
            self._compare(_Transaction(message.end_lsn, self._began.xid, message.commit_ts))
        elif isinstance(message, StreamCommit | CommitPrepared):
            if message.commit_lsn >= self._durable:
                self._finish()
            else:
                self._compare(_Transaction(message.end_lsn, message.xid, message.commit_ts))

    def _compare(self, sent: _Transaction) -> None:
        if sent.end_lsn > self._held:
            expected = self._expected.popleft() if self._expected else None
            if expected != sent:
                raise _other_history(f"the server has {sent}, where the log has {expected or 'none'}")

    def _finish(self) -> None:
        if self._expected:
            raise _other_history(f"the log has {self._expected[0]}, which the server does not have")
        self.over = True


def _other_history(what: str) -> LogMismatchError:
    return LogMismatchError(
        f"The change log is of another history than the server's: {what}. The server was taken back to an earlier state"
        " and has gone on from there.",
        hint=_CURE.format(""),
    )
