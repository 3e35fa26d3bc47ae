"""Every connection is opened here, in one known state; what is said over it (exchange.py) is waited for here.

The state (UTF-8, ISO dates, UTC, shortest exact floats, hex bytea) makes PostgreSQL's text output one function of
the value, and every notice is heard (notices.py). It is set by SET after connecting, so it overrides role and database
defaults, leaves the ``options`` of a user's DSN or service file alone, and passes connection poolers.

Whoever may create objects in the database is not to run code as our role. So names are looked up in pg_catalog alone:
it is the first statement, for a better-matching overload elsewhere would win over PostgreSQL's own function or
operator. pg_temp is named, and last: unnamed, it would come first, and a pooler's session may hold tables of others.
No query goes through somebody's view in place of a table, and a session that is not to write cannot.

A password command (login.py) is asked here alone, and once more where what it printed before is refused (passwords.py).

Waiting happens in ``poll``, never inside libpq, so Ctrl-C works and a deadline holds. A command that is given up is
cancelled: a backend that waits for a lock does not see that its client is gone, and would keep its half-made slot.

Source: PostgreSQL documentation, "libpq: Connection Control Functions", "Asynchronous Command Processing", and
"Streaming Replication Protocol" (replication=database; simple query protocol only).
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from wal2lake.errors import AuthError, ConfigError, ConnectError, ServerConfigError
from wal2lake.login import Dsn, as_login
from wal2lake.postgres import exchange, passwords
from wal2lake.postgres.errors import dsn_error, map_error
from wal2lake.postgres.exchange import PGconn, Row
from wal2lake.postgres.notices import Notices, log_notice
from wal2lake.postgres.waiting import Exchange, wait, wait_async

logger = logging.getLogger("wal2lake.connection")

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

plaintext_hosts: set[str] = set()  # those that were warned of
_OLDEST_SERVER = 130000
_CONNECT_TIMEOUT_S = 10
_CANCEL_TIMEOUT_S = 2.0
_GONE_HOST = {  # is noticed within a minute: keepalives find it while nothing is sent, the user timeout while data is
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_AT_IN_PATH = re.compile(r"postgres(?:ql)?://[^/?]*/[^?]*@")
_SEARCH_PATH = "SET search_path = pg_catalog, pg_temp"
_SESSION = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "quote_all_identifiers": "off",  # names of types and functions are compared
    "standard_conforming_strings": "on",
    "client_min_messages": "notice",  # a role may have it at error, and hear no warning
}

# Roles and databases have timeouts by default, meant for queries. They would end the making of a slot that waits for
# transactions, the replaying of a large one, or a snapshot half way. Not every server knows all of them.
WITHOUT_TIMEOUTS = """
SELECT set_config(name, '0', false) FROM pg_settings
 WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',
                'idle_session_timeout', 'transaction_timeout')
"""

# A table's owner may put a view in its place just before it is read. Servers know how to refuse it from 13.16, 14.13,
# 15.8, 16.4 and 17 on.
_NO_VIEWS = """
SELECT set_config('restrict_nonsystem_relation_kind', 'view, foreign-table', false)
 WHERE current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL
"""


@contextlib.contextmanager
def mapped_errors(*, connecting: bool = False) -> Iterator[None]:
    """Let psycopg's exceptions leave the block as errors of our tree; ``connecting``: no connection stands yet."""
    try:
        yield
    except psycopg.Error as error:
        raise map_error(error, connecting=connecting) from error


def conninfo(dsn: Dsn, application_name: str, **overrides: str) -> str:
    """``dsn`` with our defaults below what the user chose and ``overrides`` above it, without a password that a command
    prints; raises ConfigError."""
    login = as_login(dsn)
    text = login.dsn
    try:
        given = conninfo_to_dict(text)
    except psycopg.Error as error:
        raise dsn_error(str(error), text) from None
    _refuse_torn_password(text, given)
    if login.password_command and "password" in given:
        raise ConfigError("There are a password in the DSN and a password command.", hint="Leave one of them out.")
    defaults = {name: value for name, value in _GONE_HOST.items() if name not in given}
    # a service file may have a timeout too, and only libpq reads it
    chosen = {"connect_timeout", "service"} & set(given) or {"PGCONNECT_TIMEOUT", "PGSERVICE"} & set(os.environ)
    if not chosen:
        defaults["connect_timeout"] = str(_CONNECT_TIMEOUT_S)
    return make_conninfo(text, **{"fallback_application_name": application_name, **defaults, **overrides})


def _refuse_torn_password(dsn: str, given: Mapping[str, Any]) -> None:
    """In a URI an @ or / of the password ends it; the rest is host, port or database, and would stand in errors."""
    if "@" in str(given.get("host", "")).lstrip("@"):  # the first @ may be that of an abstract socket
        raise dsn_error("its host has an @")
    if not re.fullmatch(r"[\d,]*", str(given.get("port", ""))):
        raise dsn_error("its port is not a number")
    if _AT_IN_PATH.match(dsn):
        raise dsn_error("its database has an @")


def connect(
    dsn: Dsn,
    *,
    application_name: str = "wal2lake",
    settings: Mapping[str, str] | None = None,
    writable: bool = False,
) -> Connection:
    """Open an ordinary connection in autocommit, read-only unless ``writable``; unqualified names are pg_catalog's.

    ``dsn`` '' means libpq's environment. Raises any of map_error's.
    """
    connection = _opened(
        dsn, application_name, lambda given: psycopg.connect(given, autocommit=True, prepare_threshold=None)
    )
    try:
        require_supported(connection.info.server_version)
        with mapped_errors():
            connection.execute(_prepare_session(settings, writable))
        connection.add_notice_handler(log_notice)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_replication(
    dsn: Dsn,
    *,
    application_name: str = "wal2lake",
    settings: Mapping[str, str] | None = None,
    physical: bool = False,
) -> PGconn:
    """Open a walsender connection (replication=database, which also takes plain SQL in the simple protocol).

    The timeouts that role or database set are off, unless ``settings`` has them.
    ``physical`` opens replication=true instead: no database, no SQL, and so no ``settings``.
    Raises any of map_error's; RightsError when the role lacks REPLICATION.
    """
    pgconn = _opened(dsn, application_name, _Opened.connect, **_walsender(physical)).pgconn
    pgconn.notice_handler = Notices()
    try:
        warn_of_plaintext(pgconn)
        run(pgconn, _begin_session(pgconn, settings, physical))
    except BaseException:
        pgconn.finish()
        raise
    return pgconn


async def connect_replication_async(
    dsn: Dsn,
    *,
    application_name: str = "wal2lake",
    settings: Mapping[str, str] | None = None,
    physical: bool = False,
) -> PGconn:
    """connect_replication for an event loop."""
    pgconn = (await _opened_async(dsn, application_name, _OpenedAsync.connect, **_walsender(physical))).pgconn
    pgconn.notice_handler = Notices()
    try:
        warn_of_plaintext(pgconn)
        await run_async(pgconn, _begin_session(pgconn, settings, physical))
    except BaseException:
        pgconn.finish()
        raise
    return pgconn


def plaintext_to(pgconn: PGconn | pq.abc.PGconn) -> str | None:
    """The other host to which ``pgconn`` talks without TLS, so that whoever is between them reads along; else None.

    Encryption by GSSAPI, of which libpq tells nothing here, counts as none unless ``gssencmode`` demands it.
    """
    demanded = any(option.keyword == b"gssencmode" and option.val == b"require" for option in pgconn.info)
    if pgconn.ssl_in_use or demanded or not is_other_host(pgconn.socket):
        return None
    return pgconn.host.decode()


def is_other_host(handle: int) -> bool:
    """Whether the other end of the socket with this file descriptor is on another machine."""
    with socket.socket(fileno=os.dup(handle)) as end:
        if end.family == socket.AF_UNIX:
            return False
        peer, own = end.getpeername()[0], end.getsockname()[0]
    return not (ipaddress.ip_address(peer.partition("%")[0]).is_loopback or peer == own)


PLAINTEXT = "The connection to {} is not encrypted: who is between can read rows and, but for SCRAM, the password."
PLAINTEXT_CURE = "Put sslmode=verify-full and sslrootcert into the DSN, or at least sslmode=require."


def warn_of_plaintext(pgconn: PGconn | pq.abc.PGconn) -> None:
    """Say it once in the log of this process for each host; `check` says it each time."""
    with contextlib.suppress(OSError):  # a connection that is lost already says so where it is used
        host = plaintext_to(pgconn)
        if host is not None and host not in plaintext_hosts:
            plaintext_hosts.add(host)
            logger.warning("%s %s", PLAINTEXT.format(host), PLAINTEXT_CURE)


def _opened(dsn: Dsn, application_name: str, how: Callable[[str], T], **overrides: str) -> T:
    """Connect by ``how``, which takes libpq's string, with the password of the command, if there is one."""
    login, given = as_login(dsn), conninfo(dsn, application_name, **overrides)
    while True:
        password = passwords.ask(login)
        try:
            with mapped_errors(connecting=True):
                return how(_with_password(given, password))
        except AuthError:
            if not passwords.refused(login, password):
                raise


async def _opened_async(dsn: Dsn, application_name: str, how: Callable[[str], Awaitable[T]], **overrides: str) -> T:
    """The same for an event loop."""
    login, given = as_login(dsn), conninfo(dsn, application_name, **overrides)
    while True:
        password = await passwords.ask_async(login)
        try:
            with mapped_errors(connecting=True):
                return await how(_with_password(given, password))
        except AuthError:
            if not passwords.refused(login, password):
                raise


def _with_password(given: str, password: passwords.Password | None) -> str:
    return given if password is None else make_conninfo(given, password=password.text)


def _walsender(physical: bool) -> dict[str, str]:
    return {"replication": "true" if physical else "database", "client_encoding": "UTF8"}


def _begin_session(pgconn: PGconn, settings: Mapping[str, str] | None, physical: bool) -> Exchange[None]:
    require_supported(pgconn.server_version)
    if not physical:
        yield from exchange.rows(pgconn, _prepare_session(settings, writable=False, first=WITHOUT_TIMEOUTS))


def require_supported(server_version: int) -> None:
    """Raise ServerConfigError for a server older than 13 (``server_version`` as in server_version_num)."""
    if server_version < _OLDEST_SERVER:
        raise ServerConfigError(
            f"The server is PostgreSQL {server_version // 10000}, which is too old.",
            hint=f"Upgrade it to {_OLDEST_SERVER // 10000} or later.",
        )


@contextlib.contextmanager
def replication_connection(dsn: Dsn, **options: Any) -> Iterator[PGconn]:
    """``with replication_connection(dsn) as pgconn``: connect_replication, finished at the end of the block."""
    pgconn = connect_replication(dsn, **options)
    try:
        yield pgconn
    finally:
        pgconn.finish()


def execute(
    pgconn: PGconn,
    command: str,
    *,
    timeout_s: float | None = None,
    while_waiting: Callable[[], None] | None = None,
) -> list[Row]:
    """Send one simple Query and return the rows of its last result, every value as text.

    ``while_waiting`` is called about once a second until the answer comes; it may raise to give up.
    Raises ConnectError when ``timeout_s`` passes or the connection breaks, else what map_error says.
    """
    return run(pgconn, exchange.rows(pgconn, command, timeout_s), while_waiting)


def start(
    pgconn: PGconn,
    command: str,
    *,
    timeout_s: float | None = None,
    while_waiting: Callable[[], None] | None = None,
) -> pq.abc.PGresult:
    """Send one simple Query and return its first result: rows, or the COPY state that it entered."""
    return run(pgconn, exchange.command(pgconn, command, timeout_s), while_waiting)


def next_result(
    pgconn: PGconn, timeout_s: float | None = None, while_waiting: Callable[[], None] | None = None
) -> pq.abc.PGresult | None:
    """Wait for the next result of the running command; None when it is complete. Raises what map_error says."""
    return run(pgconn, exchange.next_result(pgconn, timeout_s), while_waiting)


def run(pgconn: PGconn, command: Exchange[T], while_waiting: Callable[[], None] | None = None) -> T:
    """Wait for an exchange of ``pgconn``; one that is given up is cancelled."""
    try:
        return wait(command, exchange.fileno(pgconn), while_waiting)
    except BaseException:
        cancel(pgconn)
        raise


async def run_async(pgconn: PGconn, command: Exchange[T], while_waiting: Callable[[], None] | None = None) -> T:
    """Await an exchange of ``pgconn``; one that is given up is cancelled."""
    try:
        return await wait_async(command, exchange.fileno(pgconn), while_waiting)
    except BaseException:
        cancel(pgconn)
        raise


def cancel(pgconn: PGconn) -> None:
    """Have the server end the running command, and see it ended; best effort, since the server may be out of reach."""
    if pgconn.status != pq.ConnStatus.OK or pgconn.transaction_status != pq.TransactionStatus.ACTIVE:
        return
    with contextlib.suppress(psycopg.Error, ConnectError):
        _Opened(pgconn).cancel_safe(timeout=_CANCEL_TIMEOUT_S)
        wait(exchange.cancelled(pgconn, _CANCEL_TIMEOUT_S), pgconn.socket)


def cancel_unseen(pgconn: PGconn) -> None:
    """The same for a command that libpq has not seen (copy_frames.py); nobody sees it ended."""
    with contextlib.suppress(psycopg.Error, ConnectError):
        _Opened(pgconn).cancel_safe(timeout=_CANCEL_TIMEOUT_S)


class _Opened(psycopg.Connection[Any]):
    """Opened as psycopg does it: libpq by itself never leaves a host that does not answer. Its PGconn outlives it."""

    def __del__(self, *_: Any) -> None:
        """Left open on purpose."""


class _OpenedAsync(psycopg.AsyncConnection[Any]):
    """The same for an event loop."""

    def __del__(self, *_: Any) -> None:
        """Left open on purpose."""


def _prepare_session(settings: Mapping[str, str] | None, writable: bool, first: str = "") -> str:
    """The statements that bring a new session into the known state; the search path before anything that uses it."""
    given = {**_SESSION, "default_transaction_read_only": "off" if writable else "on", **(settings or {})}
    sets = (f"SET {name} = '{value}'" for name, value in ((n, v.replace("'", "''")) for n, v in given.items()))
    return ";".join(filter(None, [_SEARCH_PATH, first, _NO_VIEWS, *sets]))
