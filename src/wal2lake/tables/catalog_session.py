"""Asking the source about its tables, never behind somebody's lock for long.

PostgreSQL opens each published table to tell of it, and so stands behind an ALTER or a LOCK, also behind one that only
waits for its own turn. Whoever asks here may hold up all tables, so it gives up after a second (LockedError), and
asks again where a stop is heard.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from wal2lake.login import Dsn
from wal2lake.postgres.connection import Connection, connect

_PATIENCE = "1s"  # a lock_timeout


@contextmanager
def catalog_session(dsn: Dsn) -> Iterator[Connection]:
    """A session for the block."""
    settings = {"lock_timeout": _PATIENCE}
    with closing(connect(dsn, application_name="wal2lake pipeline", settings=settings)) as connection:
        yield connection
