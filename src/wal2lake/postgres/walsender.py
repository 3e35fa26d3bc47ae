"""COPY BOTH with a walsender over libpq: CopyData payloads in, CopyData payloads out, and an orderly end.

Either side may end the copy. What the server says after it (a row at the end of a timeline, an error) is a result
like any other. Nothing here knows what the payloads mean.

Source: PostgreSQL documentation, "Streaming Replication Protocol", START_REPLICATION; "COPY Operations".
"""

from __future__ import annotations

import time
from typing import Final

import psycopg
from psycopg import pq

from wal2lake.errors import ConnectError, InterruptedByUser
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import PGconn, Row, next_result, refusal, start, text_rows, wait_readable
from wal2lake.postgres.errors import connection_lost

_FINISH_S: Final = 10.0
_POSTGRES_EPOCH: Final = 946_684_800  # 2000-01-01 00:00 UTC in seconds since 1970


def now_timestamptz() -> int:
    """Now, as the protocol counts: µs since 2000-01-01 00:00 UTC."""
    return int((time.time() - _POSTGRES_EPOCH) * 1_000_000)


def stopped_before(until: LSN) -> InterruptedByUser:
    """The error for a stream that was told to stop before it had reached what it was to reach."""
    return InterruptedByUser(f"Stopped before {until} was reached.", hint="Run it again: it goes on where it stopped.")


class CopyBoth:
    """A running COPY BOTH; ``ended`` is True once the server has sent its CopyDone or an error."""

    def __init__(self, pgconn: PGconn, command: str) -> None:
        """Send ``command`` (START_REPLICATION …). Raises what map_error says."""
        self.pgconn = pgconn
        self.ended = False
        self._before: list[Row] = []
        result = start(pgconn, command)
        if result.status != pq.ExecStatus.COPY_BOTH:  # the timeline ends where streaming should begin
            self.ended = True
            self._before = text_rows(result)

    def receive(self, timeout_s: float) -> list[bytes]:
        """The CopyData payloads that have come, waiting up to ``timeout_s`` for a first one; [] if none or ended.

        A warning that the server goes on without what was asked for is raised when all before it has been returned.
        """
        payloads = self._drain()
        if not payloads and not self.ended and wait_readable(self.pgconn, timeout_s):
            try:
                self.pgconn.consume_input()
            except psycopg.Error as error:
                raise connection_lost(str(error)) from error
            payloads = self._drain()
        if not payloads and (refused := refusal(self.pgconn)) is not None:
            raise refused
        return payloads

    def send(self, payload: bytes) -> None:
        """Send one CopyData, now: libpq itself would keep it until 8 kB have gathered."""
        try:
            self.pgconn.put_copy_data(payload)
            self.pgconn.flush()
        except psycopg.Error as error:
            raise connection_lost(str(error)) from error

    def finish(self) -> list[Row]:
        """Send our CopyDone, discard what still comes, and return the rows of the result after the copy.

        Raises what map_error says about an error that ended the copy, ConnectError when no end comes.
        """
        rows = self._before
        self.pgconn.notice_handler = None  # what is discarded may be as it likes
        if not self.ended:
            self._end_copy()
            self._discard()
        while (result := next_result(self.pgconn, _FINISH_S)) is not None:
            if result.status == pq.ExecStatus.COPY_IN:  # the server ended first, our half is still open
                self._end_copy()
            rows = text_rows(result) or rows
        return rows

    def _end_copy(self) -> None:
        try:
            self.pgconn.put_copy_end()
        except psycopg.Error as error:
            raise connection_lost(str(error)) from error

    def _discard(self) -> None:
        while not self.ended:
            if not self.receive(_FINISH_S) and not self.ended:
                raise ConnectError("The walsender did not end its stream when asked to.")

    def _drain(self) -> list[bytes]:
        payloads: list[bytes] = []
        while not self.ended:
            try:
                length, payload = self.pgconn.get_copy_data(1)
            except psycopg.Error as error:
                raise connection_lost(str(error)) from error
            if length == 0 or refusal(self.pgconn) is not None:
                break
            if length < 0:
                self.ended = True
                break
            payloads.append(bytes(payload))
        return payloads
