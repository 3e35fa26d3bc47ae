"""One place turns libpq's failures into ours: by SQLSTATE wherever there is one, never by message text.

A failure while connecting is the exception: libpq keeps the server's SQLSTATE to itself until a connection stands, so
there the primary message of the server (English, as most servers run) and libpq's own sentences are looked up in a
table, and libpq's password flags back it up. What is not recognised counts as transient: waiting is the safe guess.
A connection that stood once proves credentials and certificates good: what breaks it without a SQLSTATE is transient.

SQLSTATEs that PostgreSQL shares between unlike causes (55000, 42704, 58P01) are told apart by the source function that
reported them (field ``R``), which no locale translates. Of a slot, one function says that it is lost and that it is of
another database or kind; only a message that says so in English counts as lost, because that cure ends the slot.

Source: PostgreSQL documentation, Appendix A (Error Codes) and "Error and Notice Message Fields".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg import pq
from psycopg.errors import Diagnostic

from wal2lake.errors import (
    BEGIN_ANEW,
    AuthError,
    ConfigError,
    ConnectError,
    InterruptedByUser,
    LockedError,
    PublicationError,
    RightsError,
    ServerConfigError,
    ServerError,
    SlotExistsError,
    SlotInUseError,
    SlotLostError,
    SlotMissingError,
    Wal2LakeError,
)

Failure = psycopg.Error | pq.abc.PGresult

_Rule = tuple[type[Wal2LakeError], str]


class UnsendableError(ServerError):
    """A value that the server cannot send in the form that was asked for; what was asked for ends at it each time."""


class TooLargeError(UnsendableError):
    """The value, or the row, would be larger than PostgreSQL can send: 1 GB, which a bytea of 512 MB is as text."""


class NoUtf8Error(UnsendableError):
    """A text has bytes that have no form in UTF-8."""


_BY_SQLSTATE: dict[str, _Rule] = {
    "28P01": (AuthError, "Check the user and password: in the DSN, PGPASSWORD, or ~/.pgpass."),
    "28000": (AuthError, "Check the role (it must exist and have LOGIN) and the lines of pg_hba.conf."),
    "3D000": (ConfigError, "Name an existing database in the DSN or PGDATABASE."),
    "42501": (RightsError, "Grant the right; streaming and slots need ALTER ROLE … REPLICATION."),
    "53100": (ConnectError, "The server's disk is full: free space there; it is tried again."),
    "53200": (ConnectError, "The server is out of memory; it is tried again."),
    "53300": (ConnectError, "Raise max_connections or max_wal_senders, or end connections that idle."),
    "53400": (ServerConfigError, "Raise max_replication_slots and restart, or drop a slot that nobody uses."),
    "55P03": (LockedError, "It goes on when the ALTER, TRUNCATE or transaction that has or awaits the lock has ended."),
    "55006": (SlotInUseError, "Stop the other process, or choose another slot."),
    "57014": (ConnectError, "An administrator or a timeout of the server ended it; it is tried again."),
    "57P01": (ConnectError, "The server shuts down or an administrator ended the session."),
    "57P02": (ConnectError, "A server process crashed; the server recovers by itself."),
    "57P03": (ConnectError, "The server starts up or shuts down; it answers when that is over."),
    "42602": (ConfigError, "Slot names have 1 to 63 lower-case letters, digits and underscores."),
    "42710": (ServerError, "Drop the one that exists, or choose another name."),
    "0A000": (ServerConfigError, "The server's version or this kind of connection cannot do it."),
}

_LOST: _Rule = (
    SlotLostError,
    f"Drop the slot and begin again with a new snapshot (of a pipeline: {BEGIN_ANEW}); raise max_slot_wal_keep_size.",
)
MISSING_SLOT: Final = (
    "It was dropped, or never made. `wal2lake slots create` makes it, or create_slot=True of connect; what changed"
    f" before it is made must be read from the tables (of a pipeline: {BEGIN_ANEW})."
)
_MISSING: _Rule = (SlotMissingError, MISSING_SLOT)
_NOT_READY: _Rule = (ServerConfigError, "Bring the server to the state that it names, then try again.")
_WAL_LEVEL: _Rule = (
    ServerConfigError,
    "Run ALTER SYSTEM SET wal_level = 'logical' and restart PostgreSQL (on a standby: the primary too).",
)
_TAKEN: _Rule = (SlotExistsError, "Drop the one that exists, or choose another name.")
_NO_GRANT: _Rule = (
    RightsError,
    "GRANT it to the role (SELECT on tables, USAGE on schemas); `wal2lake check` lists all.",
)
_PUBLICATION: _Rule = (
    PublicationError,
    "It must be there when a row is changed, or the change cannot be streamed. If it was missing for a while, what"
    " changed meanwhile must be read from the tables: make it (CREATE PUBLICATION … FOR TABLE …), drop the slot, and"
    f" begin again with a new slot and snapshot (of a pipeline: {BEGIN_ANEW}).",
)

_NO_UTF8: _Rule = (
    NoUtf8Error,
    "Mend the text: its bytes are no characters of the database's encoding, or characters that UTF-8 has not.",
)
TOO_LARGE: _Rule = (
    TooLargeError,
    "Leave the column out of the publication (a column list, PostgreSQL 15 and later), or ask for binary form.",
)

_PUBLICATION_NAMES: _Rule = (
    ConfigError,
    "publication_names is a list with commas; a name with upper case, a blank, a comma or a quote in it stands in"
    ' double quotes ("My shop", with each quote in it doubled).',
)

_REMOVED: _Rule = (
    SlotLostError,
    f"WAL that is needed was removed: begin again with a new slot and snapshot (of a pipeline: {BEGIN_ANEW}).",
)
_NO_PLUGIN: _Rule = (ServerConfigError, "Install the output plugin on the server, or choose one that it has.")
_NOT_PHYSICAL: _Rule = (ServerConfigError, "Only physical slots can be read; `wal2lake slots list` shows the others.")

# (SQLSTATE, a pattern of the reporting function's name), in PostgreSQL 13 to 18.
BY_FUNCTION: tuple[tuple[str, re.Pattern[str], _Rule], ...] = (
    ("22021", re.compile(""), _NO_UTF8),
    ("22P05", re.compile(""), _NO_UTF8),
    ("54000", re.compile(r"StringInfo"), TOO_LARGE),
    ("55000", re.compile(r"CheckLogicalDecodingRequirements|CheckSlotRequirements"), _WAL_LEVEL),
    ("55000", re.compile(r"LoadPublications"), _PUBLICATION),  # a warning of 18: see notices.py
    ("55000", re.compile(""), _NOT_READY),
    ("58P01", re.compile(r"(?i)segment_?open"), _REMOVED),
    ("58P01", re.compile(r"internal_load_library"), _NO_PLUGIN),
    ("0A000", re.compile(r"ReadReplicationSlot"), _NOT_PHYSICAL),
    ("42501", re.compile(r"aclcheck_error"), _NO_GRANT),
    ("42602", re.compile(r"parse_output_parameters"), _PUBLICATION_NAMES),
    ("42710", re.compile(r"ReplicationSlotCreate"), _TAKEN),
    ("42704", re.compile(r"ReplicationSlot|copy_replication_slot"), _MISSING),
    ("42704", re.compile(r"(?i)publication"), _PUBLICATION),
)

_PGOUTPUT_OPTIONS = ("parse_output_parameters", "pgoutput_startup")
_OPTION_SAID = re.compile(r'option "[\w.-]+" is unknown\.?|could not parse the value for parameter "[\w.-]+"\.?')
_OPTION_HINT = (
    "The options are for the output plugin that the slot was made with; pg_replication_slots.plugin says which that is."
)

_TOO_MUCH = "invalid memory alloc request size"  # of elog, which no locale translates
_SLOT_LOST = re.compile(r"can no longer|cannot read from (?:logical )?replication slot|invalidated")

_DSN = "Write it as libpq does: keywords (host=… dbname=…) or a postgresql:// URI, with %40 for an @ in a password."
_FATAL = re.compile(r"(?:FATAL|ERROR|PANIC):  (.+)")
_UNREACHED = (
    ConnectError,
    "Check host and port in the DSN (PGHOST, PGPORT), and that the server listens there.",
)

_ATTEMPTS = re.compile(r"^- host: '?(.*?)'?, port: '?(.*?)'?, hostaddr: .*?: ", re.MULTILINE)  # psycopg's, host by host

_CUT_HINT = "See whether the server runs and the network holds; what waits for it goes on when it is back."

# Patterns of what connecting says, with the rule for each; the first that matches decides. OpenSSL's alerts are the
# peer's refusals; its other "SSL error"s tell of a handshake that was cut, as by a restart or a load balancer.
_CONNECTING: tuple[tuple[re.Pattern[str], _Rule], ...] = (
    (re.compile(r"password authentication failed|no password supplied"), _BY_SQLSTATE["28P01"]),
    (
        re.compile(r"role \".*\" does not exist|is not permitted to log in|pg_hba\.conf"),
        _BY_SQLSTATE["28000"],
    ),
    (re.compile(r"authentication failed|authentication method"), _BY_SQLSTATE["28000"]),
    (
        re.compile(r"database \".*\" does not exist|database \".*\" is not currently accepting"),
        _BY_SQLSTATE["3D000"],
    ),
    (
        re.compile(r"permission denied to start WAL sender|superuser or replication role"),
        (RightsError, "Run ALTER ROLE <role> REPLICATION; managed services grant a role instead."),
    ),
    (
        re.compile(r"permission denied for database"),
        (RightsError, "Run GRANT CONNECT ON DATABASE … TO <role>."),
    ),
    (re.compile(r"too many|remaining connection slots|max_wal_senders"), _BY_SQLSTATE["53300"]),
    (re.compile(r"the database system is|recovery|terminating connection"), _BY_SQLSTATE["57P03"]),
    (
        re.compile(r"session is (?:not )?read-only|server is (?:not )?in hot standby"),
        (
            ConnectError,
            "No server in the DSN is what its target_session_attrs asks for: promote a standby, or start the primary.",
        ),
    ),
    (
        re.compile(r"certificate|does not support SSL|sslmode|root\.crt|alert (?!internal|close)|unsupported protocol"),
        (AuthError, "Check sslmode and sslrootcert in the DSN against the server's certificate."),
    ),
    (re.compile(r"invalid .*value|definition of service|could not match"), (ConfigError, _DSN)),
)


def map_error(failure: Failure, *, connecting: bool = False) -> Wal2LakeError:
    """Return the error of our tree that ``failure`` stands for, its cure in ``hint``; the caller raises it.

    ``failure`` is a psycopg exception, or a result of status FATAL_ERROR; ``connecting``: no connection stands yet.
    """
    diag = failure.diag if isinstance(failure, psycopg.Error) else Diagnostic(failure, "utf-8")
    sqlstate = failure.sqlstate if isinstance(failure, psycopg.Error) else diag.sqlstate
    if sqlstate:
        further = (diag.message_detail or "", diag.message_hint or "")
        return reported(sqlstate, diag.message_primary or "", diag.source_function or "", further)
    if not isinstance(failure, psycopg.Error):
        return connection_lost(failure.get_error_message())
    if isinstance(failure, psycopg.errors.CancellationTimeout):
        return InterruptedByUser("The query was cancelled.")
    return connection_error(str(failure), failure.pgconn) if connecting else connection_lost(str(failure))


def reported(sqlstate: str, primary: str, source_function: str = "", further: Sequence[str] = ()) -> Wal2LakeError:
    """The error for an ErrorResponse of the server, by its fields C, M and R.

    ``further``: D and H, which are told where they name a state of the server, and no cell's value.
    """
    kind, hint = _rule_for(sqlstate, source_function)
    if sqlstate == "55000" and _SLOT_LOST.search(primary):
        kind, hint = _LOST
    if sqlstate == "XX000" and primary.startswith(_TOO_MUCH):
        kind, hint = TOO_LARGE
    if sqlstate == "22023" and (option := _of_an_option(primary, source_function)) is not None:
        return ConfigError(f"PostgreSQL says: {option} (SQLSTATE {sqlstate}).", hint=_OPTION_HINT)
    said = _harmless(sqlstate, primary)
    if sqlstate == "55000":
        said = ". ".join([said, *(text.rstrip(".") for text in further if text)])
    return kind(f"PostgreSQL says: {said} (SQLSTATE {sqlstate}).", hint=hint)


def _rule_for(sqlstate: str, source_function: str) -> tuple[type[Wal2LakeError], str | None]:
    for state, function, rule in BY_FUNCTION:
        if state == sqlstate and function.search(source_function):
            return rule
    if sqlstate in _BY_SQLSTATE:
        return _BY_SQLSTATE[sqlstate]
    # Connection, rollback (recovery conflicts), resources, intervention. On a server's full disk giving up would be the
    # worst answer: the slot's WAL is part of what fills it.
    passing = sqlstate.startswith(("08", "40", "53", "57"))
    return (ConnectError if passing else ServerError), None


def _harmless(sqlstate: str, primary: str) -> str:
    """Messages of classes 22 (data exception) and 23 (constraint) quote cell values; those stay on the server."""
    if sqlstate in ("22021", "22P05"):
        return "a text has bytes that have no form in UTF-8"
    if sqlstate[:2] in ("22", "23"):
        return "a value was refused; the server's own log has the details"
    return primary.rstrip(".")


def _of_an_option(primary: str, source_function: str) -> str | None:
    """What an output plugin says of its options: their names are nobody's secret. Of pgoutput's the values are not
    either; of another plugin's they stay unsaid, up to the last quote. None: it is not about options."""
    if source_function in _PGOUTPUT_OPTIONS:
        return primary.rstrip(".")
    if not re.search(r"\b(?:option|parameter) \"", primary):
        return None
    named = re.sub(r'(option ".*?") = .*"', r"\1", primary, flags=re.DOTALL)
    named = re.sub(r'value ".*" for', "the value for", named, flags=re.DOTALL)
    return named.rstrip(".") if _OPTION_SAID.fullmatch(named) else None


def connection_error(message: str, pgconn: pq.abc.PGconn | None) -> Wal2LakeError:
    """The error for a connection that could not be made; libpq gives no SQLSTATE here."""
    said = _FATAL.search(message)
    text = _said_by_hosts(message) or (said.group(1) if said else _last_line(message))
    for pattern, (kind, hint) in _CONNECTING:
        if pattern.search(text):
            return kind(f"The connection failed: {text.rstrip('.')}.", hint=hint)
    if said and pgconn is not None and (pgconn.needs_password or pgconn.used_password):
        return AuthError(f"The server refused the connection: {text}.", hint=_BY_SQLSTATE["28P01"][1])
    return _UNREACHED[0](f"The server cannot be reached: {text.rstrip('.?')}.", hint=_UNREACHED[1])


def _said_by_hosts(message: str) -> str:
    """Why each of several hosts did not do; "" where one alone was tried."""
    _, *tried = _ATTEMPTS.split(message)
    reasons = (_FATAL.search(text) or _last_line(text) for text in tried[2::3])
    return "; ".join(
        f"{host} port {port}: {reason if isinstance(reason, str) else reason.group(1)}"
        for host, port, reason in zip(tried[::3], tried[1::3], reasons, strict=True)
    )


def connection_lost(message: str) -> ConnectError:
    """The error for a connection that stood and broke, whatever broke it; libpq gives no SQLSTATE here."""
    said = _FATAL.search(message)
    text = said.group(1) if said else _last_line(message)
    return ConnectError(f"The connection to the server was lost: {text.rstrip('.?')}.", hint=_CUT_HINT)


def dsn_error(message: str, dsn: str = "") -> ConfigError:
    """The error for a DSN that libpq cannot read. libpq quotes what it stumbles over, which may be the password, or,
    behind one with a blank in it, the password's other half."""
    option = re.search(r'invalid connection option "(\w+)"', message)
    harmless = option is not None and "password" not in dsn.partition(option.group(1))[0]
    said = option.group(0) if option and harmless else re.sub(r'(?<!"=)\s*"(?!=").*', " …", message, flags=re.DOTALL)
    return ConfigError(f"The DSN cannot be read: {said.strip()}.", hint=_DSN)


def _last_line(message: str) -> str:
    """libpq's last sentence (it names the last host tried); its indented questions are left out."""
    lines = [line for line in message.splitlines() if line.strip() and not line.startswith("\t")]
    last = lines[-1].strip() if lines else "no reason was given"
    return last.removeprefix("connection failed: ").removeprefix("connection is bad: ")
