"""The bytes of a connection that libpq has made: libpq connects and authenticates, and is then asked for no more.

libpq gives one message for each call, whatever has come; a reader that frames whole buffers (columnar/framing.py) wants
the bytes. Without encryption they are the socket's. With TLS they are those of the session that libpq has negotiated
and verified (tls.py). With GSSAPI, or a libpq that does not say what it encrypts with, there is no way around libpq:
then there is no transport, and whoever asked reads by libpq (frames.py).

What libpq has read already would be lost, so a transport is for a connection on which no answer is awaited. What a
server says unasked may have begun to come even so; what follows is then no message, which is an error of its own.

Source: PostgreSQL documentation, "libpq: Connection Status Functions" (PQsocket, PQsslInUse, PQgssEncInUse).
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import socket
from typing import Final, Protocol

import psycopg
from psycopg import pq

from wal2lake.postgres.errors import connection_lost
from wal2lake.postgres.exchange import PGconn
from wal2lake.postgres.tls import Tls, tls_of

_IDLE: Final = (pq.TransactionStatus.IDLE, pq.TransactionStatus.INTRANS)
END = "the server closed the connection unexpectedly"


class Transport(Protocol):
    """A stream of bytes both ways that never waits."""

    def read_into(self, room: memoryview) -> int:
        """Read what has come, ``room`` at most; 0: nothing more has. Raises ConnectError at the connection's end."""

    def write(self, data: memoryview) -> int:
        """Send what can be sent now; 0: nothing can. What was not sent is to be given again, as it is."""

    def close(self) -> None:
        """Let go; the connection is libpq's to close."""


class Plain:
    """A socket without encryption."""

    def __init__(self, handle: int) -> None:
        self._socket = socket.socket(fileno=os.dup(handle))

    def read_into(self, room: memoryview) -> int:
        try:
            count = self._socket.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise connection_lost(f"could not receive data from server: {error.strerror}") from error
        if not count:
            raise connection_lost(END)
        return count

    def write(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise connection_lost(f"could not send data to server: {error.strerror}") from error

    def close(self) -> None:
        self._socket.close()


def transport_of(pgconn: PGconn) -> Transport | None:
    """Of a connection on which nothing is under way but perhaps a transaction, in libpq's non-blocking mode; None where
    only libpq can read it."""
    library = loaded_libpq()
    handle: int | None = getattr(pgconn, "pgconn_ptr", None)  # psycopg's protocol does not name it
    idle = pgconn.transaction_status in _IDLE and not pgconn.is_busy() and not pgconn.flush()
    if library is None or handle is None or not idle:
        return None
    if library.PQgssEncInUse(handle):
        return None
    if not pgconn.ssl_in_use:
        return Plain(pgconn.socket)
    session = tls_of(library, handle)
    return None if session is None else Tls(*session)


@functools.cache
def loaded_libpq() -> ctypes.CDLL | None:
    """The libpq that psycopg has loaded, and what that has loaded; None where it cannot be found."""
    modules = {"binary": "psycopg_binary.pq", "c": "psycopg_c.pq"}
    try:
        if pq.__impl__ in modules:
            library = ctypes.CDLL(importlib.import_module(modules[pq.__impl__]).__file__)
        else:
            library = importlib.import_module("psycopg.pq._pq_ctypes").pq
        library.PQgssEncInUse.argtypes = [ctypes.c_void_p]
        library.PQgssEncInUse.restype = ctypes.c_int
    except (ImportError, OSError, AttributeError, psycopg.Error):
        return None
    return library
