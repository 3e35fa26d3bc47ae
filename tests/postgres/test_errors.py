"""Each failure gives one sentence with its cure: first by table, then from real servers."""

from __future__ import annotations

import ast
import contextlib
import re
import threading
import traceback
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import psycopg
import pytest

import wal2lake
from tests.waiting import eventually
from wal2lake import errors
from wal2lake.config import Config
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import (
    connect,
    connect_replication,
    execute,
    mapped_errors,
    replication_connection,
    require_supported,
    start,
)
from wal2lake.postgres.errors import NoUtf8Error, TooLargeError, connection_error, map_error, reported
from wal2lake.postgres.preflight import preflight
from wal2lake.postgres.slots import create_slot, drop_slot, require_slot, slot_state
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.wire.commands import start_replication_logical


@pytest.mark.parametrize(
    ("sqlstate", "function", "kind"),
    [
        ("28P01", "auth_failed", errors.AuthError),
        ("28000", "InitializeSessionUserId", errors.AuthError),
        ("3D000", "InitPostgres", errors.ConfigError),
        ("42501", "", errors.RightsError),
        ("53300", "InitProcess", errors.ConnectError),
        ("53400", "ReplicationSlotCreate", errors.ServerConfigError),
        ("55000", "CheckLogicalDecodingRequirements", errors.ServerConfigError),
        ("55000", "CreateDecodingContext", errors.ServerConfigError),
        ("58P01", "WalSndSegmentOpen", errors.SlotLostError),
        ("58P01", "wal_segment_open", errors.SlotLostError),
        ("58P01", "internal_load_library", errors.ServerConfigError),
        ("58P01", "mdopenfork", errors.ServerError),
        ("0A000", "ReadReplicationSlot", errors.ServerConfigError),
        ("55000", "pg_current_wal_insert_lsn", errors.ServerConfigError),
        ("55006", "ReplicationSlotAcquire", errors.SlotInUseError),
        ("42704", "ReplicationSlotAcquire", errors.SlotMissingError),
        ("42704", "get_publication_oid", errors.PublicationError),
        ("42704", "typenameType", errors.ServerError),
        ("57P01", "ProcessInterrupts", errors.ConnectError),
        ("08P01", "", errors.ConnectError),
        ("57014", "ProcessInterrupts", errors.ConnectError),
        ("40001", "ProcessInterrupts", errors.ConnectError),
        ("57P05", "ProcessInterrupts", errors.ConnectError),
        ("53000", "BasicOpenFilePerm", errors.ConnectError),
        ("53100", "ReorderBufferSerializeChange", errors.ConnectError),
        ("53200", "AllocSetAlloc", errors.ConnectError),
        ("22021", "report_invalid_encoding", NoUtf8Error),
        ("22P05", "report_untranslatable_char", NoUtf8Error),
        ("54000", "enlargeStringInfo", TooLargeError),
        ("54000", "ExecTypeFromTLInternal", errors.ServerError),
        ("XX000", "MemoryContextSizeFailure", errors.ServerError),
    ],
)
def test_sqlstate_and_source_function_decide(sqlstate: str, function: str, kind: type[errors.Wal2LakeError]) -> None:
    error = reported(sqlstate, "was auch immer", function)
    assert type(error) is kind
    assert sqlstate in error.message


def test_of_a_state_of_the_server_detail_and_hint_are_told() -> None:
    further = ("This replication slot is being synchronized from the primary server.", "Use the primary.")
    said = 'cannot use replication slot "s" for logical decoding'
    told = reported("55000", said, "CreateDecodingContext", further).message
    synced = "This replication slot is being synchronized from the primary server. Use the primary"
    assert told == f"PostgreSQL says: {said}. {synced} (SQLSTATE 55000)."
    assert "4711" not in str(reported("23505", "duplicate key", "_bt_check_unique", ("Key (id)=(4711) exists.", "")))


def test_what_is_too_large_to_be_sent_is_known_by_words_that_no_locale_translates() -> None:
    assert type(reported("XX000", "invalid memory alloc request size 1258291203", "palloc")) is TooLargeError


def test_a_list_of_publications_has_a_hint_of_its_own() -> None:
    said = "invalid publication_names syntax"
    told = [
        reported("42602", said, function) for function in ("parse_output_parameters", "ReplicationSlotValidateName")
    ]
    assert {type(error) for error in told} == {errors.ConfigError}
    assert ["Slot names" in str(error) for error in told] == [False, True]


def test_a_data_exception_keeps_its_value_to_itself() -> None:
    assert "4711" not in str(reported("22P02", 'invalid input syntax for type integer: "4711x"'))


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('connection failed: FATAL:  password authentication failed for user "x"', errors.AuthError),
        ("connection failed: fe_sendauth: no password supplied", errors.AuthError),
        ('FATAL:  no pg_hba.conf entry for host "::1", user "x", database "y", no encryption', errors.AuthError),
        ('FATAL:  role "x" does not exist', errors.AuthError),
        ('FATAL:  database "x" does not exist', errors.ConfigError),
        ("FATAL:  permission denied to start WAL sender", errors.RightsError),
        ("FATAL:  must be superuser or replication role to start walsender", errors.RightsError),
        ("FATAL:  sorry, too many clients already", errors.ConnectError),
        ("FATAL:  the database system is starting up", errors.ConnectError),
        ("FATAL:  terminating connection due to administrator command", errors.ConnectError),
        ('server certificate for "a" does not match host name "b"', errors.AuthError),
        ("server does not support SSL, but SSL was required", errors.AuthError),
        ("SSL error: certificate verify failed", errors.AuthError),
        ("SSL error: tlsv1 alert unknown ca", errors.AuthError),
        ("SSL error: sslv3 alert handshake failure", errors.AuthError),
        ("SSL error: unsupported protocol", errors.AuthError),
        ("SSL error: tlsv1 alert internal error", errors.ConnectError),
        ("SSL error: unexpected eof while reading", errors.ConnectError),
        ("SSL connection has been closed unexpectedly", errors.ConnectError),
        ("SSL SYSCALL error: Connection reset by peer", errors.ConnectError),
        ("SSL SYSCALL error: EOF detected", errors.ConnectError),
        ('invalid integer value "x" for connection option "keepalives"', errors.ConfigError),
        ("failed to resolve host 'nowhere': [Errno -2] Name or service not known", errors.ConnectError),
        ("server closed the connection unexpectedly\n\tThis probably means …", errors.ConnectError),
        ("", errors.ConnectError),
    ],
)
def test_a_failed_connection_is_told_apart(message: str, kind: type[errors.Wal2LakeError]) -> None:
    error = connection_error(message, None)
    assert type(error) is kind
    assert error.hint


_HOSTS = """connection failed: Multiple connection attempts failed. All failures were:
- host: 'a', port: '5432', hostaddr: None: connection failed: connection to server at "10.0.0.1", port 5432 failed: \
Connection refused
	Is the server running on that host and accepting TCP/IP connections?
- host: 'b', port: '5433', hostaddr: None: connection failed: connection to server at "10.0.0.2", port 5433 failed: """


@pytest.mark.parametrize(
    ("last", "kind", "hint"),
    [
        ("session is read-only", errors.ConnectError, "promote a standby"),
        ('FATAL:  password authentication failed for user "u"', errors.AuthError, "Check the user"),
        ("timeout expired", errors.ConnectError, "Check host and port"),
    ],
)
def test_of_several_hosts_each_says_why(last: str, kind: type[errors.Wal2LakeError], hint: str) -> None:
    error = connection_error(_HOSTS + last, None)
    assert type(error) is kind
    assert "a port 5432: connection to server at" in error.message and "b port 5433: " in error.message
    assert "Connection refused" in error.message and last.removeprefix("FATAL:  ") in error.message
    assert "hostaddr" not in error.message
    assert hint in str(error.hint)


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ("hst=h password=hunter2", 'invalid connection option "hst"'),
        ("host=h password=hush hunter2", 'missing "=" after …'),
        ("host=h password='hunter2", "unterminated quoted string"),
        ("postgresql://u:hush hunter2@h/d", "unexpected spaces found in …"),
        ("postgresql://u:hunter2@[::1/d", "looking for matching …"),
        ("postgresql://u:hunter2%zz@h/d", "invalid percent-encoded token"),
        ("postgresql://u:hush@hunter2@h/d", "its host has an @"),
        ("postgresql://u:hush@h:hunter2@h/d", "its port is not a number"),
        ("postgresql://u:hunter2/hush@h/d", "its port is not a number"),
    ],
)
def test_a_dsn_that_cannot_be_read_shows_no_password(dsn: str, said: str) -> None:
    for opening in (connect, connect_replication):
        with pytest.raises(errors.ConfigError) as refused:
            opening(dsn)
        assert said in str(refused.value)
        assert "hunter2" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.server
def test_wrong_password_and_no_replication_right(server: EmbeddedPostgres) -> None:
    server.psql("CREATE ROLE scram LOGIN PASSWORD 'right'")
    hba = server.data_dir / "pg_hba.conf"
    hba.write_text("host all,replication scram 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
    server.psql("SELECT pg_reload_conf()")
    dsn = f"host=127.0.0.1 port={server.port} dbname=postgres user=scram"
    with pytest.raises(errors.AuthError) as wrong:
        connect(f"{dsn} password=wrong")
    assert "wrong" not in str(wrong.value)
    with pytest.raises(errors.AuthError):
        connect(dsn, application_name="no password at all")
    with pytest.raises(errors.RightsError, match="REPLICATION"), replication_connection(f"{dsn} password=right"):
        pass
    findings = {f.name: f for f in preflight(f"{dsn} password=right", "absent", "absent")}
    assert findings["replication"].sql == 'ALTER ROLE "scram" REPLICATION;'
    server.psql("CREATE TABLE IF NOT EXISTS private_table (id int)")
    refused_read = pytest.raises(errors.RightsError, match=r"table private_table.*SELECT on tables")
    with refused_read, connect(f"{dsn} password=right") as connection, mapped_errors():
        connection.execute("SELECT FROM public.private_table")


@pytest.mark.server
def test_missing_database_publication_and_slot(server: EmbeddedPostgres) -> None:
    with pytest.raises(errors.ConfigError, match="does not exist"):
        connect(server.dsn.replace("dbname=postgres", "dbname=absent"))
    with replication_connection(server.dsn) as pgconn:
        with pytest.raises(errors.SlotMissingError):
            start(pgconn, start_replication_logical("absent", LSN(), {"proto_version": 1, "publication_names": "p"}))
        with pytest.raises(errors.SlotMissingError):
            drop_slot(pgconn, "absent")
        assert execute(pgconn, "SELECT 1; SELECT 2, NULL") == [("2", None)]  # the connection goes on


@pytest.mark.server
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nosuch": "1"}, "unrecognized pgoutput option: nosuch"),
        ({"binary": "perhaps"}, "binary requires a Boolean value"),
        ({"proto_version": "x"}, "invalid proto_version"),
        ({"proto_version": "9"}, "proto_version=9"),
        ({"publication_names": "a b"}, r"invalid publication_names syntax.*list with commas"),
        ({"proto_version": "4", "origin": "foo"}, 'unrecognized origin value: "foo"'),
        ({"proto_version": "2", "streaming": "perhaps"}, "streaming requires a Boolean value"),
    ],
)
def test_what_a_server_refuses_of_options_is_said_in_full(
    server: EmbeddedPostgres, options: dict[str, str], said: str
) -> None:
    given = {"proto_version": "1", "publication_names": "p", **options}
    with replication_connection(server.dsn) as pgconn:
        create_slot(pgconn, "of_options", temporary=True)
        with pytest.raises(errors.Wal2LakeError, match=said) as refused:
            start(pgconn, start_replication_logical("of_options", LSN(), given))
    assert "a value was refused" not in str(refused.value) and "Slot names" not in str(refused.value)


@pytest.mark.server
def test_slot_in_use(server: EmbeddedPostgres) -> None:
    with replication_connection(server.dsn) as first, replication_connection(server.dsn) as second:
        create_slot(first, "in_use", temporary=True)
        with pytest.raises(errors.SlotInUseError):
            drop_slot(second, "in_use")
        with connect(server.dsn) as connection, pytest.raises(errors.SlotInUseError, match="process"):
            require_slot(connection, "in_use")


@pytest.mark.server
def test_no_server_there() -> None:
    with pytest.raises(errors.ConnectError, match="refused"):
        connect("host=127.0.0.1 port=1")
    with pytest.raises(errors.ConnectError), replication_connection("host=127.0.0.1 port=1"):
        pass


@pytest.fixture(scope="module")
def spare() -> Iterator[EmbeddedPostgres]:
    """A server to ill-treat: it keeps next to no WAL for slots."""
    with EmbeddedPostgres(settings={"max_slot_wal_keep_size": "1MB", "max_replication_slots": "1"}) as running:
        yield running


@pytest.mark.server
def test_slots_run_out_and_a_slot_is_lost(spare: EmbeddedPostgres) -> None:
    with replication_connection(spare.dsn) as pgconn, connect(spare.dsn) as connection:
        created = create_slot(pgconn, "left_behind")
        assert (created.plugin, created.snapshot_name) == ("pgoutput", None)
        with pytest.raises(errors.ServerConfigError, match="53400"):
            create_slot(pgconn, "one_too_many")
        state = require_slot(connection, "left_behind")
        assert state.confirmed_flush_lsn == created.consistent_point
        for _ in range(4):
            connection.execute("SELECT pg_switch_wal(), txid_current()")
        connection.execute("CHECKPOINT")
        with pytest.raises(errors.SlotLostError):
            require_slot(connection, "left_behind")
        with pytest.raises(errors.SlotLostError):
            start(pgconn, start_replication_logical("left_behind", LSN(), {"proto_version": 1}))
        assert [f.level for f in preflight(spare.dsn, "absent", "left_behind") if f.name == "slot"] == ["error"]
        drop_slot(pgconn, "left_behind")
        assert slot_state(connection, "left_behind") is None


@pytest.mark.server
def test_wal_level_replica(spare: EmbeddedPostgres) -> None:
    spare.restart({"wal_level": "replica"})
    with replication_connection(spare.dsn) as pgconn, pytest.raises(errors.ServerConfigError, match="wal_level"):
        create_slot(pgconn, "too_early")
    finding = next(f for f in preflight(spare.dsn, "absent", "absent") if f.name == "wal_level")
    assert (finding.level, finding.sql) == ("error", "ALTER SYSTEM SET wal_level = 'logical';")
    spare.restart({"wal_level": "logical"})


@pytest.mark.server
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_server_goes_away_in_mid_query(spare: EmbeddedPostgres, how: str) -> None:
    with replication_connection(spare.dsn) as pgconn:

        def end_it() -> None:
            eventually(lambda: spare.psql("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
            getattr(spare, how)()

        stopper = threading.Thread(target=end_it)
        stopper.start()
        with pytest.raises(errors.ConnectError) as gone:
            execute(pgconn, "SELECT pg_sleep(30)")
        stopper.join()
        assert gone.value.transient
    spare.start()


@pytest.mark.server
def test_waiting_has_a_deadline_and_tells_of_itself(server: EmbeddedPostgres) -> None:
    told: list[int] = []
    with replication_connection(server.dsn) as pgconn, pytest.raises(errors.ConnectError, match="within"):
        execute(pgconn, "SELECT pg_sleep(30)", timeout_s=1.1, while_waiting=lambda: told.append(1))
    assert told


def test_a_server_too_old() -> None:
    require_supported(130000)
    with pytest.raises(errors.ServerConfigError, match="PostgreSQL 12"):
        require_supported(120022)


@pytest.mark.parametrize(
    "said",
    [
        "server closed the connection unexpectedly",
        "SSL error: unexpected eof while reading",
        "SSL error: tlsv1 alert certificate revoked",
        "FATAL:  password authentication failed in the session's last moment",
    ],
)
def test_what_breaks_a_connection_that_stood_is_transient(said: str) -> None:
    with pytest.raises(errors.ConnectError), mapped_errors():
        raise psycopg.OperationalError(f"consuming input failed: {said}")


def test_psycopg_exceptions_map_too() -> None:
    with contextlib.suppress(psycopg.Error):
        assert isinstance(map_error(psycopg.errors.InvalidPassword("x")), errors.AuthError)


OF_OPTIONS = [
    ("parse_output_parameters", 'unrecognized origin value: "x"', 'unrecognized origin value: "x"'),
    ("parse_output_parameters", 'proto_version "99999999999" out of range', "out of range"),
    ("pgoutput_startup", "client sent proto_version=9 but server only supports protocol 4 or lower", "proto_version=9"),
    ("pg_decode_startup", 'option "proto_version" = "1" is unknown', 'says: option "proto_version" is unknown ('),
    ("pg_decode_startup", 'option "a" = "secret" = "secret" is unknown', 'says: option "a" is unknown ('),
    (
        "pg_decode_startup",
        'could not parse value "secret" for parameter "x" secret" for parameter "include-xids"',
        'says: could not parse the value for parameter "include-xids" (',
    ),
    ("exec_stmt", 'value "secret" for parameter "x" is out of range', "a value was refused"),
    ("exec_stmt", 'invalid value for parameter "secret": "secret"', "a value was refused"),
]


@pytest.mark.parametrize("function, said, told", OF_OPTIONS)
def test_an_option_that_is_refused_is_named_and_its_value_is_not(function: str, said: str, told: str) -> None:
    error = reported("22023", said, function)
    assert told in error.message and "secret" not in error.message
    if "a value" not in told:
        assert isinstance(error, errors.ConfigError) and "pg_replication_slots.plugin" in str(error)


def _keys(section: str) -> list[str]:
    """A section's settings."""
    settings = getattr(Config(), section)
    return [setting.name for setting in fields(settings)] if is_dataclass(settings) else ["[a-z]+"]


LIBRARY = ("client", "decoding", "pgoutput", "postgres", "wire")
OF_THE_COMMAND_LINE = re.compile(
    r"(?:^|[\s`(])--[a-z]|\b(?:"
    + "|".join(rf"{f.name}\.(?:{'|'.join(_keys(f.name))})" for f in fields(Config))
    + r")\b"
)


def test_errors_of_the_library_name_no_setting_and_no_flag() -> None:
    """Their readers may have neither a configuration nor a command line."""
    package = Path(wal2lake.__file__).parent
    found = []
    for path in (path for layer in LIBRARY for path in (package / layer).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
                found += [f"{path.name}: {node.value}" for _ in OF_THE_COMMAND_LINE.findall(node.value)]
    assert found == []
