"""What would stop or endanger a pipeline, found before it starts, each with the SQL that mends it.

Each check is one function from a Probe to its findings; the order of CHECKS is the order of the report. What can be
tried is tried (a walsender connection), because rights come in more shapes than the catalog shows.

Source: PostgreSQL documentation, "Logical Replication" (Restrictions, Security, Configuration Settings).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from wal2lake.errors import LockedError, PublicationError, Wal2LakeError
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.connection import (
    PLAINTEXT,
    PLAINTEXT_CURE,
    Connection,
    connect,
    mapped_errors,
    plaintext_to,
    replication_connection,
)
from wal2lake.postgres.slots import SlotState, slot_states
from wal2lake.wire.command_text import quote_identifier, quote_string

Level = Literal["ok", "warning", "error"]

_SHORT_TIMEOUT_MS = 5000
LONG_TRANSACTION_S = 10
LOCK_TIMEOUT = "5s"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer. ``name`` is stable; ``text`` a sentence; ``sql`` what mends it, where SQL can."""

    name: str
    level: Level
    text: str
    sql: str | None = None

    @property
    def ok(self) -> bool:
        """True unless something should be done."""
        return self.level == "ok"


@dataclass
class Probe:
    """What the checks look at, read once."""

    dsn: str
    connection: Connection
    publication: str
    slot_name: str
    role: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    slots: list[SlotState] = field(default_factory=list)
    tables: list[PublishedTable] | None = None
    locked: LockedError | None = None

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql.encode(), parameters).fetchall()

    @property
    def slot(self) -> SlotState | None:
        return next((slot for slot in self.slots if slot.slot_name == self.slot_name), None)


def preflight(dsn: str, publication: str, slot: str) -> list[Finding]:
    """Check the server behind ``dsn`` for a pipeline on ``publication`` and ``slot``; changes nothing.

    Raises what map_error says when no ordinary connection can be made.
    """
    settings = {"lock_timeout": LOCK_TIMEOUT}
    opened = connect(dsn, application_name="wal2lake check", settings=settings)
    with contextlib.closing(opened) as connection, mapped_errors():
        probe = _probe(dsn, connection, publication, slot)
        return [finding for check in CHECKS for finding in check(probe)]


def _probe(dsn: str, connection: Connection, publication: str, slot: str) -> Probe:
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
        cure = None if entitled else f"ALTER ROLE {quote_identifier(probe.role)} REPLICATION;"
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
        yield Finding("superuser", "warning", text, cure)
    else:
        yield Finding("superuser", "ok", f"Role {probe.role} is no superuser.")


def _planned_code(probe: Probe) -> Iterator[Finding]:
    """The planner runs the constant parts of a table's index and statistics expressions, as whoever reads the table."""
    oids = [table.relation_id for table in probe.tables or ()]
    for (table,) in probe.query(_EXPRESSIONS_OF_USERS, oids):
        text = (
            f"Indexes or statistics of {table} call functions that are not PostgreSQL's: their owner can have code run"
        )
        yield Finding("planned_code", "warning", f"{text} as the role {probe.role}, whenever the table is read.")


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


def _publication(probe: Probe) -> Iterator[Finding]:
    name = quote_identifier(probe.publication)
    if probe.locked is not None:
        text = f"The tables of publication {probe.publication} cannot be looked at now. {probe.locked}"
        yield Finding("publication", "error", text)
        return
    if probe.tables is None:
        text = f"There is no publication {probe.publication} in database {probe.connection.info.dbname}."
        cure = f"CREATE PUBLICATION {name} FOR TABLE …;  -- or FOR ALL TABLES, as superuser"
        yield Finding("publication", "error", text, cure)
        return
    if not probe.tables:
        yield Finding("publication", "warning", f"Publication {probe.publication} has no tables.",
                      f"ALTER PUBLICATION {name} ADD TABLE …;")  # fmt: skip
    sql = "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s"
    flags = probe.query(sql, probe.publication)[0]
    kinds = dict(zip(("insert", "update", "delete", "truncate"), flags, strict=True))
    missing = [kind for kind, published in kinds.items() if not published]
    if missing:
        text = f"Publication {probe.publication} leaves out {', '.join(missing)}: the lake will not see them."
        yield Finding("publication", "warning", text, f"ALTER PUBLICATION {name} SET (publish = '{', '.join(kinds)}');")
    elif probe.tables:
        count = len(probe.tables)
        yield Finding(
            "publication", "ok", f"Publication {probe.publication} has {count} table{'' if count == 1 else 's'}."
        )


def _select(probe: Probe) -> Iterator[Finding]:
    """The snapshot reads the tables: USAGE on the schema, SELECT on the whole table, no row security."""
    role = quote_identifier(probe.role)
    found = False
    for table in probe.tables or []:
        usage, select, filtered = probe.query(_RIGHTS, table.namespace, *[table.relation_id] * 2)[0]
        refusals = (
            (not usage, f"may not use schema {table.namespace}",
             f"GRANT USAGE ON SCHEMA {quote_identifier(table.namespace)} TO {role};"),
            (not select, f"may not read {table}", f"GRANT SELECT ON {table.quoted} TO {role};"),
            (filtered, f"sees {table} through row security, which replication does not know",
             f"ALTER ROLE {role} BYPASSRLS;"),
        )  # fmt: skip
        for refused, what, cure in refusals:
            if refused:
                found = True
                yield Finding("select", "error", f"Role {probe.role} {what}.", cure)
    if probe.tables and not found:
        yield Finding("select", "ok", f"Role {probe.role} may read every published table.")


_RIGHTS = """
SELECT has_schema_privilege(%s, 'USAGE'), has_table_privilege(%s::oid, 'SELECT'), row_security_active(%s::oid)
"""


def _replica_identity(probe: Probe) -> Iterator[Finding]:
    """Without a replica identity PostgreSQL refuses UPDATE and DELETE on a table that publishes them."""
    without = 0
    for table in probe.tables or []:
        if any(column.key for column in table.columns):
            continue
        without += 1
        reason = "REPLICA IDENTITY NOTHING" if table.replica_identity == "n" else "no primary key"
        text = f"{table} has {reason}: only inserts replicate; its updates and deletes fail on the source."
        cure = f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL;  -- or ADD PRIMARY KEY (…)"
        yield Finding("replica_identity", "warning", text, cure)
    if probe.tables and not without:
        yield Finding("replica_identity", "ok", "Every published table has a replica identity.")


def _slot(probe: Probe) -> Iterator[Finding]:
    slot, name = probe.slot, probe.slot_name
    drop = f"SELECT pg_drop_replication_slot({quote_string(name)});"
    if slot is None:
        yield Finding("slot", "ok", f"Slot {name} does not exist; the first run makes it.")
    elif slot.lost:
        reason = slot.invalidation_reason or "WAL that it needs was removed"
        yield Finding("slot", "error", f"Slot {name} is lost ({reason}): begin again with a new snapshot.", drop)
    elif slot.plugin != "pgoutput" or slot.database != probe.connection.info.dbname:
        text = f"Slot {name} belongs to plugin {slot.plugin}, database {slot.database}: choose another name."
        yield Finding("slot", "error", text, drop)
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
        yield Finding("max_slot_wal_keep_size", "warning", text, cure)
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
        yield Finding("long_transactions", "warning", text, f"SELECT pg_terminate_backend({pid});")
    for (gid,) in probe.query("SELECT gid FROM pg_prepared_xacts"):
        waiting += 1
        text = f"Making the slot waits for the prepared transaction {gid}."
        yield Finding("long_transactions", "warning", text, f"COMMIT PREPARED {quote_string(gid)};  -- or ROLLBACK")
    if not waiting:
        yield Finding("long_transactions", "ok", "No long transaction holds up the making of the slot.")


_RUNNING = """
SELECT l.pid, extract(epoch FROM now() - a.xact_start)::bigint
  FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
   AND coalesce(a.xact_start < now() - make_interval(secs => %s), true)
"""

# Objects from OID 16384 on are made by users.
_EXPRESSIONS_OF_USERS = """
WITH expression(relation, class, object) AS (
    SELECT indrelid, 'pg_class'::regclass, indexrelid FROM pg_index
    UNION ALL SELECT stxrelid, 'pg_statistic_ext'::regclass, oid FROM pg_statistic_ext)
SELECT DISTINCT e.relation::regclass::text FROM expression e
  JOIN pg_depend d ON d.classid = e.class AND d.objid = e.object
 WHERE e.relation = ANY (%s) AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) AND d.refobjid >= 16384
 ORDER BY 1
"""

CHECKS: tuple[Callable[[Probe], Iterator[Finding]], ...] = (
    _server, _wal_level, _replication, _encryption, _superuser, _planned_code, _slots_free, _senders_free, _publication,
    _select, _replica_identity, _slot, _limits, _long_transactions,
)  # fmt: skip
