"""Hot standby feedback: what a physical stream says of the transactions that are still needed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.test_interruptions import fake
from tests.waiting import eventually
from wal2lake import connect_physical
from wal2lake.client.readers import LogicalOptions, LogicalReader
from wal2lake.client.stream import Behaviour, Stream
from wal2lake.errors import ConfigError
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.walsender import FakeWalsender, Session
from wal2lake.wire.messages import CopyData
from wal2lake.wire.replication import HotStandbyFeedback, read_from_client

pytestmark = [pytest.mark.server, pytest.mark.timeout(30)]


def test_hot_standby_feedback_is_told_at_once_and_again_after_a_lost_connection() -> None:
    heard: list[HotStandbyFeedback] = []

    def hear(session: Session) -> None:
        while not isinstance(update := read_from_client(_copy_data(session)), HotStandbyFeedback):
            pass
        heard.append(update)
        if len(heard) == 1:
            session.cut()
        session.xlog_data(0x1000000, b"a")
        session.await_copy_done()

    with (
        fake(hear, hear) as server,
        connect_physical(server.dsn, start_lsn=0x1000000, on_wait=lambda *_: None) as stream,
    ):
        stream.feed_back((3 << 32) + 7, 5)
        assert next(iter(stream)).payload == b"a"
    assert [(f.xmin, f.xmin_epoch, f.catalog_xmin, f.catalog_xmin_epoch) for f in heard] == [(7, 3, 5, 0)] * 2


def _copy_data(session: Session) -> bytes:
    message = session.receive()
    assert isinstance(message, CopyData)
    return message.data


def test_a_server_keeps_what_the_feedback_says(server: EmbeddedPostgres) -> None:
    server.psql("SELECT pg_create_physical_replication_slot('fed')")
    query = "SELECT xmin, catalog_xmin FROM pg_replication_slots WHERE slot_name = 'fed'"
    xmin = server.psql("SELECT pg_snapshot_xmin(pg_current_snapshot())")
    with connect_physical(server.dsn, slot="fed") as stream:
        stream.feed_back(int(xmin))
        eventually(lambda: server.psql(query) == f"{xmin}|")
        stream.feed_back(0)
        eventually(lambda: server.psql(query) == "|")
    server.psql("SELECT pg_drop_replication_slot('fed')")


@pytest.mark.parametrize("wrong", [-1, 1 << 64, True, "7", None])
def test_what_is_no_feedback(wrong: Any) -> None:
    with FakeWalsender(lambda session: None) as server, connect_physical(server.dsn, start_lsn=0x1000000) as stream:
        for arguments in ((wrong,), (0, wrong)):
            with pytest.raises(ConfigError):
                stream.feed_back(*arguments)


def test_feedback_is_for_physical_streams() -> None:
    stream = Stream("", LogicalReader(LogicalOptions("s", PgoutputOptions(("p",)))), Behaviour(1, False, None))
    with pytest.raises(ConfigError, match="physical"):
        stream.feed_back(1)
