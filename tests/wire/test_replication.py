"""The four messages inside CopyData, from both ends."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import values
from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN
from wal2lake.wire.replication import (
    LAYOUTS,
    HotStandbyFeedback,
    PrimaryKeepalive,
    StandbyStatusUpdate,
    XLogData,
    read_from_client,
    read_from_server,
    write_hot_standby_feedback,
    write_primary_keepalive,
    write_standby_status_update,
    write_xlog_data,
)


@given(values(LAYOUTS[XLogData]), values(LAYOUTS[PrimaryKeepalive]))
def test_server_messages(data: XLogData, keepalive: PrimaryKeepalive) -> None:
    assert read_from_server(write_xlog_data(data)) == data
    assert read_from_server(memoryview(write_primary_keepalive(keepalive))) == keepalive


@given(values(LAYOUTS[StandbyStatusUpdate]), values(LAYOUTS[HotStandbyFeedback]))
def test_client_messages(status: StandbyStatusUpdate, feedback: HotStandbyFeedback) -> None:
    assert read_from_client(write_standby_status_update(status)) == status
    assert read_from_client(write_hot_standby_feedback(feedback)) == feedback


def test_the_documented_layout() -> None:
    assert write_standby_status_update(StandbyStatusUpdate(LSN(3), LSN(2), LSN(1), 0, True)) == (
        b"r" + bytes(7) + b"\3" + bytes(7) + b"\2" + bytes(7) + b"\1" + bytes(8) + b"\1"
    )


@given(st.binary(max_size=60), st.sampled_from([read_from_server, read_from_client]))
def test_any_bytes_are_a_message_or_an_error_with_offset(payload: bytes, read: Any) -> None:
    try:
        read(payload)
    except ProtocolError as error:
        assert error.offset is not None
