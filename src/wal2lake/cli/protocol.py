"""The protocol's own commands: thin shells over wal2lake.postgres, named and behaving as PostgreSQL's programs.

Errors leave as Wal2LakeError; whoever runs the application prints them and exits with their code.
"""

from __future__ import annotations

import typer

from wal2lake.cli import basebackup, receivewal, recv, slots
from wal2lake.cli.options import with_dsn
from wal2lake.cli.shared import PANEL, Json, show
from wal2lake.login import Dsn
from wal2lake.postgres import system
from wal2lake.postgres.catalog import identify as identify_system
from wal2lake.postgres.connection import replication_connection

app = typer.Typer(help="PostgreSQL's replication protocol, command by command.", no_args_is_help=True)
for command, example in (
    (recv.recv, recv.EXAMPLE),
    (basebackup.basebackup, basebackup.EXAMPLE),
    (receivewal.receivewal, receivewal.EXAMPLE),
):
    app.command(rich_help_panel=PANEL, epilog=example)(command)
app.add_typer(slots.app, name="slots", rich_help_panel=PANEL)


@app.command(rich_help_panel=PANEL, epilog="Example: wal2lake identify -d 'host=db.example.com user=rep'")
@with_dsn
def identify(dsn: Dsn, as_json: Json = False) -> None:
    """Say which cluster this is: system identifier, timeline and its history, WAL position, version."""
    with replication_connection(dsn, application_name="wal2lake identify") as pgconn:
        identity = identify_system(pgconn)
        switches = system.timeline_history(pgconn, identity.timeline).switches if identity.timeline > 1 else ()
        facts = {
            "system_id": identity.system_id,
            "timeline": identity.timeline,
            "timeline_history": [f"{s.timeline} until {s.lsn}: {s.reason}" for s in switches],
            "wal_lsn": identity.wal_lsn,
            "dbname": identity.dbname,
            "server_version": system.show(pgconn, "server_version"),
            "wal_segment_size": system.wal_segment_size(pgconn),
        }
    show(facts, as_json)
