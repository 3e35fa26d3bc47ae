"""What makes a copy of a cluster a standby of the server it came from: standby.signal and primary_conninfo.

primary_conninfo is what libpq connected with, so that it holds on the standby too, without this process's environment
or service file. A secret is in it only where the DSN itself has it.

Source: PostgreSQL documentation, "pg_basebackup" (--write-recovery-conf); src/fe_utils/recovery_gen.c.
"""

from __future__ import annotations

from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from wal2lake.files import flush_file
from wal2lake.postgres.exchange import PGconn

_ALWAYS = {"host", "hostaddr", "port", "user"}
_OVERRIDDEN = {"replication", "fallback_application_name", "client_encoding", "service", "servicefile"}
_ONLY_IF_GIVEN = {
    *("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"),
    *("dbname", "connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
}
_DBNAME_SINCE = 170000  # there the synchronisation of slots needs it


def primary_conninfo(pgconn: PGconn, dsn: str) -> str:
    """What a standby reaches the server of ``pgconn`` by, which was opened with ``dsn``."""
    given = conninfo_to_dict(dsn)
    names = {}
    for option in pgconn.info:
        name = option.keyword.decode()
        if name in _ALWAYS or (option.val != option.compiled and name not in _OVERRIDDEN | _ONLY_IF_GIVEN):
            names[name] = (option.val or b"").decode()
    names.update({name: str(given[name]) for name in _ONLY_IF_GIVEN & given.keys()})
    if pgconn.server_version < _DBNAME_SINCE:
        names.pop("dbname", None)
    if not Path(names.get("passfile", "")).is_file():
        names.pop("passfile", None)
    return make_conninfo("", **{name: value for name, value in names.items() if value})


def write_recovery_conf(data: Path, conninfo: str, mode: int) -> None:
    """Have the server that starts from ``data`` (files of ``mode``) follow the one that ``conninfo`` names."""
    quoted = conninfo.replace("\\", "\\\\").replace("'", "''")
    with (data / "postgresql.auto.conf").open("ab") as settings:
        settings.write(f"primary_conninfo = '{quoted}'\n".encode())
        flush_file(settings)
    signal = data / "standby.signal"
    signal.touch(mode=0o600)
    signal.chmod(mode)
