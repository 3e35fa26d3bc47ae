"""What has to be one server is one server, though a DSN may name several, and each connection may reach another.

A slot, the catalog that belongs to it, and a snapshot with all who import it are of one server each. So whoever goes
on from an open connection goes on at its host (``pinned``); and a pipeline's source is the one of several servers that
can be written to, or is refused (``require_one``): by any other rule a standby could be asked for the primary's slot,
or for tables as they were. Where something between distributes connections, ``instance`` still tells servers apart.

Source: PostgreSQL documentation, "Database Connection Control Functions" (Specifying Multiple Hosts,
target_session_attrs, load_balance_hosts); psycopg's conninfo_attempts, which tries each host by itself.
"""

from __future__ import annotations

import os
from typing import Final

from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from wal2lake.errors import ConfigError, ConnectError
from wal2lake.login import Dsn, Login, as_login
from wal2lake.postgres.connection import Connection, mapped_errors
from wal2lake.postgres.exchange import PGconn

_HOSTS = ("host", "hostaddr")
_ONE = ("read-write", "primary")


def pinned(dsn: Dsn, pgconn: PGconn | pq.abc.PGconn) -> Login:
    """``dsn``, with which ``pgconn`` was opened, for further connections to the same host."""
    login = as_login(dsn)
    place = {"host": pgconn.host.decode(), "port": pgconn.port.decode()}
    if _in_effect(pgconn).get("hostaddr"):
        place["hostaddr"] = pgconn.hostaddr.decode()
    return Login(make_conninfo(login.dsn, **place), login.password_command)


def require_one(dsn: Dsn, pgconn: PGconn | pq.abc.PGconn) -> None:
    """Raise ConfigError where ``dsn``, with which ``pgconn`` was opened, names several servers and not which one."""
    given, effective = conninfo_to_dict(as_login(dsn).dsn), _in_effect(pgconn)
    places = [str(source.get(name, "")) for source in (given, effective) for name in _HOSTS]
    if not any(given.get(name) for name in _HOSTS):
        places += [os.environ.get(f"PG{name.upper()}", "") for name in _HOSTS]
    if any("," in place for place in places) and effective.get("target_session_attrs") not in _ONE:
        raise ConfigError(
            "The DSN names several servers, and not which of them is the source: the slot is on one.",
            hint="Let it say target_session_attrs=read-write, or name one server.",
        )


STANDBY_CURE: Final = "Name the primary in the DSN, or all servers, with target_session_attrs=read-write."


def require_primary(pgconn: PGconn | pq.abc.PGconn) -> None:
    """Raise ConnectError on a standby, which may be promoted soon; before PostgreSQL 14 a server does not tell so."""
    if pgconn.parameter_status(b"in_hot_standby") == b"on":
        raise ConnectError("The server is a standby: tables are read on the primary.", hint=STANDBY_CURE)


def instance(connection: Connection) -> str:
    """What no two servers share, nor one before and after its restart."""
    with mapped_errors():
        row = connection.execute("SELECT extract(epoch FROM pg_postmaster_start_time())::text").fetchone()
    assert row is not None
    return str(row[0])


def _in_effect(pgconn: PGconn | pq.abc.PGconn) -> dict[str, str]:
    """The options of libpq, from wherever it has them."""
    return {option.keyword.decode(): option.val.decode() for option in pgconn.info if option.val}
