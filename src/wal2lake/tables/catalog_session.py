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
from wal2lake.postgres.one_server import require_one, require_primary

_PATIENCE = "1s"  # a lock_timeout


@contextmanager
def catalog_session(dsn: Dsn) -> Iterator[Connection]:
    """A session for the block. Raises ConfigError where ``dsn`` leaves open which of several servers it is,
    ConnectError on a standby."""
    settings = {"lock_timeout": _PATIENCE}
    with closing(connect(dsn, application_name="wal2lake pipeline", settings=settings)) as connection:
        require_one(dsn, connection.pgconn)
        require_primary(connection.pgconn)
        yield connection
