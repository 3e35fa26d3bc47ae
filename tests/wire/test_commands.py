"""Commands as the documentation writes them, for each server's syntax."""

from __future__ import annotations

import pytest

from wal2lake.errors import ConfigError, ServerConfigError
from wal2lake.lsn import LSN
from wal2lake.wire.commands import (
    AlterReplicationSlot,
    Command,
    CreateLogicalReplicationSlot,
    CreatePhysicalReplicationSlot,
    DropReplicationSlot,
    IdentifySystem,
    ReadReplicationSlot,
    Show,
    StartLogicalReplication,
    StartPhysicalReplication,
    TimelineHistory,
    UploadManifest,
    start_replication_logical,
)


@pytest.mark.parametrize(
    ("command", "version", "text"),
    [
        (IdentifySystem(), 130000, "IDENTIFY_SYSTEM"),
        (Show("my.setting"), 130000, 'SHOW "my"."setting"'),
        (Show("my..setting."), 130000, 'SHOW "my".".setting."'),
        (TimelineHistory(2), 130000, "TIMELINE_HISTORY 2"),
        (CreatePhysicalReplicationSlot("s", True, True), 140000,
         'CREATE_REPLICATION_SLOT "s" TEMPORARY PHYSICAL RESERVE_WAL'),
        (CreatePhysicalReplicationSlot("s", False, True), 150000, 'CREATE_REPLICATION_SLOT "s" PHYSICAL (RESERVE_WAL)'),
        (CreateLogicalReplicationSlot("s", "pgoutput", snapshot="nothing"), 140000,
         'CREATE_REPLICATION_SLOT "s" LOGICAL "pgoutput" NOEXPORT_SNAPSHOT'),
        (CreateLogicalReplicationSlot("s", "pgoutput", True, "export", True, True), 170000,
         'CREATE_REPLICATION_SLOT "s" TEMPORARY LOGICAL "pgoutput" (SNAPSHOT \'export\', TWO_PHASE, FAILOVER)'),
        (ReadReplicationSlot("s"), 150000, 'READ_REPLICATION_SLOT "s"'),
        (AlterReplicationSlot("s", failover=False, two_phase=True), 180000,
         'ALTER_REPLICATION_SLOT "s" (FAILOVER false, TWO_PHASE true)'),
        (DropReplicationSlot("s", wait=True), 130000, 'DROP_REPLICATION_SLOT "s" WAIT'),
        (StartPhysicalReplication(LSN(16), "s", 3), 130000, 'START_REPLICATION SLOT "s" PHYSICAL 0/10 TIMELINE 3'),
        (StartLogicalReplication('a"b', LSN(16), (("o", "it's"), ("x", None))), 130000,
         'START_REPLICATION SLOT "a""b" LOGICAL 0/10 ("o" \'it\'\'s\', "x")'),
        (UploadManifest(), 170000, "UPLOAD_MANIFEST"),
    ],
)  # fmt: skip
def test_the_text_for_a_server(command: Command, version: int, text: str) -> None:
    assert command.build(version) == text


@pytest.mark.parametrize(
    ("command", "version", "knows"),
    [
        (ReadReplicationSlot("s"), 140000, 15),
        (UploadManifest(), 160000, 17),
        (AlterReplicationSlot("s", failover=True), 160000, 17),
        (AlterReplicationSlot("s", two_phase=True), 170000, 18),
        (CreateLogicalReplicationSlot("s", "p", two_phase=True), 140000, 15),
        (CreateLogicalReplicationSlot("s", "p", failover=True), 160000, 17),
    ],
)
def test_what_a_server_does_not_know_is_refused_with_the_version_that_does(
    command: Command, version: int, knows: int
) -> None:
    with pytest.raises(ServerConfigError, match=f"PostgreSQL {knows} and later do"):
        command.build(version)


@pytest.mark.parametrize("slot", ["", "a" * 64, "a\0b"])
def test_names_that_the_server_would_truncate_or_misread_are_refused(slot: str) -> None:
    with pytest.raises(ConfigError):
        DropReplicationSlot(slot).build()


def test_plugin_options_from_a_mapping() -> None:
    assert start_replication_logical("s", 0, {"proto_version": 1, "binary": True}).endswith(
        "0/0 (\"proto_version\" '1', \"binary\" 'true')"
    )
