"""What would stop or endanger a pipeline, found before it starts, each with the SQL that mends it.

Each check is one function from a Probe to its findings; the order of CHECKS is the order of the report. What can be
tried is tried (a walsender connection), because rights come in more shapes than the catalog shows.

Source: PostgreSQL documentation, "Logical Replication" (Restrictions, Security, Configuration Settings).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from wal2lake.errors import BEGIN_ANEW, ConfigError, LockedError, PublicationError, Wal2LakeError
from wal2lake.login import Dsn
from wal2lake.postgres import preflight_tables as tables
from wal2lake.postgres.catalog import published_tables
from wal2lake.postgres.connection import (
    PLAINTEXT,
    PLAINTEXT_CURE,
    Connection,
    connect,
    mapped_errors,
    plaintext_to,
    replication_connection,
)
from wal2lake.postgres.findings import Finding, Probe, sql_name
from wal2lake.postgres.one_server import require_one
from wal2lake.postgres.slots import slot_states
from wal2lake.wire.command_text import quote_string

_SHORT_TIMEOUT_MS = 5000
_WHOLE_ENCODINGS = ("UTF8", "LATIN1")  # whatever is in them has its UTF-8
LONG_TRANSACTION_S = 10
LOCK_TIMEOUT = "5s"


def preflight(dsn: Dsn, publication: str, slot: str) -> list[Finding]:
    """Check the server behind ``dsn`` for a pipeline on ``publication`` and ``slot``; changes nothing.

    Raises what map_error says when no ordinary connection can be made.
    """
    settings = {"lock_timeout": LOCK_TIMEOUT}
    opened = connect(dsn, application_name="wal2lake check", settings=settings)
    with contextlib.closing(opened) as connection, mapped_errors():
        probe = _probe(dsn, connection, publication, slot)
        return [finding for check in CHECKS for finding in check(probe)]


def published_bytes(dsn: Dsn, publication: str) -> int | None:
    """What the published tables take on the server, TOAST included; None where that cannot be told now."""
    settings = {"lock_timeout": LOCK_TIMEOUT}
    opened = connect(dsn, application_name="wal2lake check", settings=settings)
    with contextlib.closing(opened) as connection, contextlib.suppress(LockedError), mapped_errors():
        row = connection.execute(_BYTES, [publication]).fetchone()
        return None if row is None else int(row[0])
    return None


_BYTES = """
SELECT coalesce(sum(pg_table_size(coalesce(t.relid, c.oid))), 0)::bigint
  FROM pg_publication_tables p
  JOIN pg_namespace n ON n.nspname = p.schemaname
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
  LEFT JOIN LATERAL pg_partition_tree(c.oid) t ON true
 WHERE p.pubname = %s
"""


def _probe(dsn: Dsn, connection: Connection, publication: str, slot: str) -> Probe:
    probe = Probe(dsn, connection, publication, slot, slots=slot_states(connection))
    probe.role = probe.query("SELECT current_user::text")[0][0]
    probe.settings = dict(probe.query("SELECT name, setting FROM pg_settings"))
    try:
        probe.tables = published_tables(connection, publication)
    except LockedError as error:
        probe.locked = error
    except PublicationError:
        probe.tables = None  # the check of the publication says so
    return probe


def _server(probe: Probe) -> Iterator[Finding]:
    """connect has refused what is too old."""
    shown = probe.settings["server_version"]
    if probe.query("SELECT pg_is_in_recovery()")[0][0]:
        yield Finding(
            "server", "error", f"PostgreSQL {shown}, a standby: the snapshot can only be taken on the primary."
        )
    else:
        yield Finding("server", "ok", f"PostgreSQL {shown}.")


def _one_server(probe: Probe) -> Iterator[Finding]:
    """A DSN may name several, of which each connection may reach another."""
    try:
        require_one(probe.dsn, probe.connection.pgconn)
    except ConfigError as error:
        yield Finding("one_server", "error", str(error))
    else:
        yield Finding("one_server", "ok", "Every connection reaches the server that has the slot.")


def _encoding(probe: Probe) -> Iterator[Finding]:
    """Text travels as UTF-8, into which the server converts."""
    encoding = probe.settings["server_encoding"]
    if encoding in _WHOLE_ENCODINGS:
        yield Finding("server_encoding", "ok", f"server_encoding is {encoding}.")
    elif encoding == "SQL_ASCII":
        text = "server_encoding is SQL_ASCII: nobody checks text, and a table with one that is no UTF-8 is left out."
        yield Finding("server_encoding", "warning", text)
    else:
        text = f"server_encoding is {encoding}: a table with a character that has no counterpart in UTF-8 is left out."
        yield Finding("server_encoding", "warning", text)


def _wal_level(probe: Probe) -> Iterator[Finding]:
    level = probe.settings["wal_level"]
    if level == "logical":
        yield Finding("wal_level", "ok", "wal_level is logical.")
    else:
        text = f"wal_level is {level}: logical decoding needs logical. PostgreSQL must restart after the change."
        yield Finding("wal_level", "error", text, "ALTER SYSTEM SET wal_level = 'logical';")


def _replication(probe: Probe) -> Iterator[Finding]:
    """Open a walsender connection: the REPLICATION right, pg_hba.conf and max_wal_senders all have their say."""
    try:
        with replication_connection(probe.dsn, application_name="wal2lake check"):
            yield Finding("replication", "ok", f"Role {probe.role} can open a replication connection.")
    except Wal2LakeError as error:
        entitled = probe.query("SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user")[0][0]
        cure = None if entitled else f"ALTER ROLE {sql_name(probe.role)} REPLICATION;"
        yield Finding("replication", "error", f"No replication connection can be opened. {error}", cure)


def _encryption(probe: Probe) -> Iterator[Finding]:
    """libpq falls back to plaintext when the server has no TLS, unless the DSN forbids it."""
    host = plaintext_to(probe.connection.pgconn)
    if host is None or probe.query("SELECT encrypted FROM pg_stat_gssapi WHERE pid = pg_backend_pid()") == [(True,)]:
        yield Finding("encryption", "ok", "What goes over the network is encrypted, or stays on this machine.")
    else:
        yield Finding("encryption", "warning", f"{PLAINTEXT.format(host)} {PLAINTEXT_CURE}")


def _superuser(probe: Probe) -> Iterator[Finding]:
    """Owners of published tables can have code run when they are read; of a superuser nothing is out of its reach."""
    if probe.query("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")[0][0]:
        text = f"Role {probe.role} is a superuser: choose one that may just replicate, and read the published tables."
        cure = "CREATE ROLE wal2lake LOGIN REPLICATION;  -- then GRANT it SELECT on the tables, and name it in the DSN"
        yield Finding("superuser", "warning", text, cure, choice=True)
    else:
        yield Finding("superuser", "ok", f"Role {probe.role} is no superuser.")


def _slots_free(probe: Probe) -> Iterator[Finding]:
    allowed, used = int(probe.settings["max_replication_slots"]), len(probe.slots)
    text = f"{used} of {allowed} replication slots (max_replication_slots) are in use."
    if used < allowed or probe.slot is not None:
        yield Finding("max_replication_slots", "ok", text)
    else:
        cure = f"ALTER SYSTEM SET max_replication_slots = {allowed + 5};"
        yield Finding("max_replication_slots", "error", f"{text} PostgreSQL must restart after the change.", cure)


def _senders_free(probe: Probe) -> Iterator[Finding]:
    allowed = int(probe.settings["max_wal_senders"])
    used = probe.query("SELECT count(*) FROM pg_stat_replication")[0][0]
    text = f"{used} of {allowed} walsenders (max_wal_senders) are in use."
    if used < allowed:
        yield Finding("max_wal_senders", "ok", text)
    else:
        cure = f"ALTER SYSTEM SET max_wal_senders = {allowed + 5};"
        yield Finding("max_wal_senders", "error", f"{text} PostgreSQL must restart after the change.", cure)


def _slot(probe: Probe) -> Iterator[Finding]:
    slot, name = probe.slot, probe.slot_name
    if slot is None:
        yield Finding("slot", "ok", f"Slot {name} does not exist; the first run makes it.")
    elif not slot.is_of(probe.connection.info.dbname):
        text = f"Slot {name} is {slot.kind}, so it is somebody else's: choose another name."
        yield Finding("slot", "error", text)
    elif slot.lost:
        reason = slot.invalidation_reason or "WAL that it needs was removed"
        text = f"Slot {name} is lost ({reason}), so every table must be read again: {BEGIN_ANEW}."
        yield Finding("slot", "error", text)
    elif slot.unfinished:
        text = f"Slot {name} is being made by server process {slot.active_pid}, which waits for running transactions."
        yield Finding("slot", "warning", text)
    elif slot.active:
        yield Finding("slot", "warning", f"Slot {name} is in use by server process {slot.active_pid}.")
    elif slot.wal_status in ("unreserved", "extended"):
        text = f"Slot {name} holds more WAL than max_wal_size ({slot.wal_status}): let its consumer catch up."
        yield Finding("slot", "warning", text)
    else:
        yield Finding("slot", "ok", f"Slot {name} stands at {slot.confirmed_flush_lsn}.")


def _limits(probe: Probe) -> Iterator[Finding]:
    """Settings that let a stopped consumer fill the disk, or that end a healthy one."""
    if probe.settings["max_slot_wal_keep_size"] == "-1":
        text = "max_slot_wal_keep_size is unlimited: a consumer that is gone for long fills the server's disk."
        cure = "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();"
        yield Finding("max_slot_wal_keep_size", "warning", text, cure, choice=True)
    else:
        yield Finding("max_slot_wal_keep_size", "ok", "max_slot_wal_keep_size bounds the WAL that slots keep.")
    timeout = int(probe.settings["wal_sender_timeout"])
    if timeout and timeout >= _SHORT_TIMEOUT_MS:
        yield Finding("wal_sender_timeout", "ok", f"wal_sender_timeout is {timeout / 1000:g} s.")
    else:
        what = f"{timeout} ms: a short pause ends the stream" if timeout else "0: a dead consumer keeps its slot"
        cure = "ALTER SYSTEM SET wal_sender_timeout = '60s'; SELECT pg_reload_conf();"
        yield Finding("wal_sender_timeout", "warning", f"wal_sender_timeout is {what}.", cure)
    if probe.settings.get("idle_replication_slot_timeout", "0") != "0":
        text = "idle_replication_slot_timeout is set: a slot that nobody reads for so long is lost."
        yield Finding("idle_replication_slot_timeout", "warning", text)


def _long_transactions(probe: Probe) -> Iterator[Finding]:
    """Creating a slot waits for every transaction that has an xid, prepared ones included."""
    if probe.slot is not None and not probe.slot.unfinished:
        return
    waiting = 0
    for pid, seconds in probe.query(_RUNNING, LONG_TRANSACTION_S):
        waiting += 1
        text = f"Making the slot waits for the transaction of process {pid}, open for {seconds or '?'} s."
        yield Finding("long_transactions", "warning", text, f"SELECT pg_terminate_backend({pid});", choice=True)
    for (gid,) in probe.query("SELECT gid FROM pg_prepared_xacts"):
        waiting += 1
        text = f"Making the slot waits for the prepared transaction {gid}."
        cure = f"COMMIT PREPARED {quote_string(gid)};  -- or ROLLBACK PREPARED"
        yield Finding("long_transactions", "warning", text, cure, choice=True)
    if not waiting:
        yield Finding("long_transactions", "ok", "No long transaction holds up the making of the slot.")


_RUNNING = """
SELECT l.pid, extract(epoch FROM now() - a.xact_start)::bigint
  FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
   AND coalesce(a.xact_start < now() - make_interval(secs => %s), true)
"""

CHECKS: tuple[Callable[[Probe], Iterator[Finding]], ...] = (
    _server, _one_server, _encoding, _wal_level, _replication, _encryption, _superuser, tables.planned_code,
    _slots_free, _senders_free, tables.publication, tables.partitions, tables.select, tables.default_privileges,
    tables.replica_identity, tables.case_twins, _slot, _limits, _long_transactions,
)  # fmt: skip
