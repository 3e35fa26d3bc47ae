"""`python -m tests.vectors.make [MAJOR …]` captures the vectors anew from real servers of PostgreSQL 13 to 18.

Every server is made fresh, so OIDs, LSNs and times differ from run to run, and nothing else does.
"""

from __future__ import annotations

import sys
import time

from tests.vectors import SERVERS, Capture, Server, save
from tests.vectors.client import RawClient
from tests.vectors.conversations import CONVERSATIONS
from tests.vectors.scenarios import PUBLICATION, SCENARIOS, SETTINGS, SETUP, WAIT, Scenario
from tests.vectors.standby import capture_standby
from wal2lake.lsn import LSN
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import versioned_server
from wal2lake.wire.commands import StartLogicalReplication
from wal2lake.wire.messages import CopyBothResponse, CopyData, CopyDone, Query
from wal2lake.wire.replication import (
    PrimaryKeepalive,
    StandbyStatusUpdate,
    read_from_server,
    write_standby_status_update,
)


def capture_stream(server: EmbeddedPostgres, scenario: Scenario) -> Capture:
    """Run a scenario while its slot is streamed, and keep every CopyData."""
    with RawClient(server.port) as session, RawClient(server.port, replication="database") as stream:
        two_phase = ", false, true" if scenario.two_phase else ""
        session.query(f"SELECT pg_create_logical_replication_slot('vectors', 'pgoutput'{two_phase})")
        options = {**scenario.options, "publication_names": PUBLICATION}
        stream.send(Query(StartLogicalReplication("vectors", LSN(0), tuple(options.items())).build()))
        stream.until(CopyBothResponse)
        payloads: list[bytes] = []
        for statement in (*scenario.sql, WAIT):
            if statement == WAIT:
                payloads += catch_up(stream, flushed(server))
            else:
                session.query(statement)
        stream.send(CopyDone())
        stream.until_ready()
        session.query("SELECT pg_drop_replication_slot('vectors')")
    return Capture(scenario.name, "stream", scenario.sql, options, [payload.hex() for payload in payloads])


def flushed(server: EmbeddedPostgres) -> LSN:
    """Where the WAL ends now, all of it flushed: a walsender sees no more than that of an open transaction."""
    with RawClient(server.port, synchronous_commit="on") as other:
        target = LSN.parse(other.scalar("SELECT pg_current_wal_insert_lsn()"))
        other.query("SELECT txid_current()")
        return target


def catch_up(stream: RawClient, target: LSN) -> list[bytes]:
    """What the walsender sends up to ``target``: it is asked for keepalives until one has passed it."""
    payloads: list[bytes] = []
    while True:
        ask = StandbyStatusUpdate(LSN(0), LSN(0), LSN(0), 0, reply_requested=True)
        stream.send(CopyData(write_standby_status_update(ask)))
        deadline = time.monotonic() + 0.2
        while (payload := stream.payload(max(0.0, deadline - time.monotonic()))) is not None:
            message = read_from_server(payload)
            if not isinstance(message, PrimaryKeepalive):
                payloads.append(payload)
            elif message.wal_end >= target:
                return [*payloads, payload]


def make(major: int) -> Server:
    """All captures of one server."""
    with versioned_server(major, SETTINGS) as server:
        _trust_loopback(server)
        with RawClient(server.port) as session:
            version = int(session.scalar("SHOW server_version_num"))
            for statement in SETUP:
                session.query(statement)
        captures = [capture_stream(server, scenario) for scenario in SCENARIOS if scenario.since <= major]
        captures += [converse(server, major) for since, converse in CONVERSATIONS if since <= major]
        return Server(version, [*captures, capture_standby(server, major)])


def _trust_loopback(server: EmbeddedPostgres) -> None:
    """The conversations are about something else than passwords, and the raw client has none."""
    hba = server.data_dir / "pg_hba.conf"
    server.stop()
    hba.write_text("host all,replication all 127.0.0.1/32 trust\n" + hba.read_text())
    server.start()


def main(majors: list[int]) -> None:
    for major in majors or SERVERS:
        server = make(major)
        save(server)
        print(f"{server.version}: {sum(len(capture.hex) for capture in server.captures)} messages")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
