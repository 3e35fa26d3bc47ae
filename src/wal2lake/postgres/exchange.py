"""What is said over one libpq connection, as exchanges (waiting.py): commands, their results, and COPY in its parts.

A connection is in libpq's non-blocking mode: what cannot be sent yet waits in libpq, and is flushed by an exchange.
What breaks a connection leaves as ConnectError, what the server refuses as map_error says.

Source: PostgreSQL documentation, "libpq: Asynchronous Command Processing", "Functions Associated with the COPY
Command"; "Streaming Replication Protocol" (a COPY BOTH that either side may end, and the result after it).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final

import psycopg
from psycopg import pq
from psycopg.waiting import Ready, Wait

from wal2lake.errors import ConfigError, ConnectError, ProtocolError
from wal2lake.postgres.errors import connection_lost, map_error
from wal2lake.postgres.waiting import Exchange, Waiting

PGconn = pq.abc.PGconn
PGresult = pq.abc.PGresult
Row = tuple[str | None, ...]

_OK: Final = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)
COPYING: Final = (pq.ExecStatus.COPY_BOTH, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_IN)
_DRAIN_S = 5.0


@contextlib.contextmanager
def _as_connection_lost() -> Iterator[None]:
    """What psycopg raises over a connection that stood is its loss."""
    try:
        yield
    except psycopg.Error as error:
        raise connection_lost(str(error)) from error


def fileno(pgconn: PGconn) -> int:
    """The socket to wait for. Raises ConnectError when the connection has been lost before."""
    with _as_connection_lost():
        return pgconn.socket


def flush(pgconn: PGconn) -> Exchange[None]:
    """Until all that libpq holds is with the kernel. It reads meanwhile, for the server may do nothing else either."""
    with _as_connection_lost():
        while pgconn.flush():
            if (yield Waiting(Wait.RW)) & Ready.R:
                pgconn.consume_input()


def command(pgconn: PGconn, text: str, timeout_s: float | None = None) -> Exchange[PGresult]:
    """Send one simple Query; its first result: rows, or the COPY state that it entered."""
    with _as_connection_lost():
        pgconn.send_query(text.encode())
    yield from flush(pgconn)
    result = yield from next_result(pgconn, timeout_s)
    if result is None:
        raise ConnectError("The connection to the server was lost: no answer came.")
    return result


def rows(pgconn: PGconn, text: str, timeout_s: float | None = None) -> Exchange[list[Row]]:
    """Send one simple Query; the rows of its last result, every value as text."""
    result = yield from command(pgconn, text, timeout_s)
    found = text_rows(result)
    while (following := (yield from next_result(pgconn, timeout_s))) is not None:
        found = text_rows(following)
    return found


def next_result(pgconn: PGconn, timeout_s: float | None = None) -> Exchange[PGresult | None]:
    """The next result of the running command; None when it is complete. ConnectError when ``timeout_s`` passes."""
    result = yield from _any_result(pgconn, timeout_s)
    if result is None or result.status in _OK or result.status in COPYING:
        return result
    error = map_error(result)
    with contextlib.suppress(ConnectError):  # read to the end, so that the connection can take the next command
        while pgconn.status == pq.ConnStatus.OK and (yield from _any_result(pgconn, _DRAIN_S)) is not None:
            pass
    raise error


def _any_result(pgconn: PGconn, timeout_s: float | None) -> Exchange[PGresult | None]:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with _as_connection_lost():
        while pgconn.is_busy():
            if (yield Waiting(Wait.R, deadline)):
                pgconn.consume_input()
            elif deadline is not None and time.monotonic() >= deadline:
                raise ConnectError(f"The server did not answer within {timeout_s:g} s.")
        return pgconn.get_result()


def cancelled(pgconn: PGconn, timeout_s: float) -> Exchange[None]:
    """See a command ended that is being cancelled."""
    while (result := (yield from _any_result(pgconn, timeout_s))) is not None and result.status not in COPYING:
        pass


def text_rows(result: PGresult) -> list[Row]:
    """All rows of ``result``, as text; NULL is None."""
    columns = range(result.nfields)
    with reading_answer("a command"):
        return [
            tuple(None if (v := result.get_value(row, column)) is None else v.decode() for column in columns)
            for row in range(result.ntuples)
        ]


@contextlib.contextmanager
def reading_answer(command: str) -> Iterator[None]:
    """Whatever the block cannot make of the server's answer to ``command`` is a ProtocolError: it is not as
    documented."""
    try:
        yield
    except (ValueError, TypeError, LookupError, ConfigError) as error:
        raise ProtocolError(f"The server's answer to {command} is not as documented.") from error


def put_copy_data(pgconn: PGconn, payload: bytes) -> Exchange[None]:
    """Send one CopyData, now: libpq itself would keep it until 8 kB have gathered."""
    with _as_connection_lost():
        pgconn.put_copy_data(payload)
    yield from flush(pgconn)


def put_copy_end(pgconn: PGconn) -> Exchange[None]:
    """Send our CopyDone."""
    with _as_connection_lost():
        pgconn.put_copy_end()
    yield from flush(pgconn)
