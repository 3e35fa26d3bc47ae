"""Which server is the first to know a command, an option, a way to write it: refused one version before, to the number.

Source: PostgreSQL documentation, "Streaming Replication Protocol", of each version.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tests.vectors import SERVERS
from wal2lake.errors import ServerConfigError
from wal2lake.lsn import LSN
from wal2lake.wire.base_backup import BaseBackup
from wal2lake.wire.command_parser import COMMANDS
from wal2lake.wire.commands import (
    LATEST,
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
)

FIRST = 100000  # before which nobody asks

SINCE: list[tuple[Command, int, str]] = [
    (IdentifySystem(), FIRST, "IDENTIFY_SYSTEM"),
    (Show("a"), FIRST, "SHOW"),
    (TimelineHistory(1), FIRST, "TIMELINE_HISTORY"),
    (CreatePhysicalReplicationSlot("s", reserve_wal=True), FIRST, "CREATE_REPLICATION_SLOT"),
    (CreateLogicalReplicationSlot("s", "p", snapshot="use"), FIRST, "CREATE_REPLICATION_SLOT"),
    (CreateLogicalReplicationSlot("s", "p", two_phase=True), 150000, "the slot option TWO_PHASE"),
    (CreateLogicalReplicationSlot("s", "p", failover=True), 170000, "the slot option FAILOVER"),
    (ReadReplicationSlot("s"), 150000, "READ_REPLICATION_SLOT"),
    (AlterReplicationSlot("s", failover=False), 170000, "ALTER_REPLICATION_SLOT"),
    (AlterReplicationSlot("s", two_phase=False), 180000, "the option TWO_PHASE of ALTER_REPLICATION_SLOT"),
    (DropReplicationSlot("s"), FIRST, "DROP_REPLICATION_SLOT"),
    (StartPhysicalReplication(LSN(1)), FIRST, "START_REPLICATION"),
    (StartLogicalReplication("s", LSN(1)), FIRST, "START_REPLICATION"),
    (UploadManifest(), 170000, "UPLOAD_MANIFEST"),
    (BaseBackup(), FIRST, "BASE_BACKUP"),
]
OPTIONS: list[tuple[str, dict[str, Any], int]] = [
    ("LABEL", {"label": "x"}, FIRST),
    ("TARGET", {"target": "blackhole"}, 150000),
    ("PROGRESS", {"progress": True}, FIRST),
    ("CHECKPOINT", {"checkpoint": "fast"}, FIRST),
    ("WAL", {"wal": True}, FIRST),
    ("WAIT", {"wait": False}, FIRST),
    ("COMPRESSION", {"compression": "gzip"}, 150000),
    ("MAX_RATE", {"max_rate": 32}, FIRST),
    ("TABLESPACE_MAP", {"tablespace_map": True}, FIRST),
    ("VERIFY_CHECKSUMS", {"verify_checksums": False}, 110000),
    ("MANIFEST", {"manifest": "yes"}, 130000),
    ("INCREMENTAL", {"incremental": True}, 170000),
]
ALL = [*SINCE, *((BaseBackup(**given), since, f"the BASE_BACKUP option {name}") for name, given, since in OPTIONS)]


@pytest.mark.parametrize(("command", "since", "what"), ALL, ids=[f"{what} {since}" for _, since, what in ALL])
def test_the_first_server_that_knows_it(command: Command, since: int, what: str) -> None:
    assert command.build(since).startswith(command.keyword)
    knows = f"PostgreSQL {(since - 1) // 10000} does not know {what if since > FIRST else command.keyword}"
    with pytest.raises(ServerConfigError, match=rf"{knows}\. PostgreSQL {since // 10000} and later do\.$"):
        command.build(since - 1)


def test_every_command_and_every_option_is_asked_for() -> None:
    assert {type(command) for command, _, _ in SINCE} == set(COMMANDS)
    details = {"target_detail", "compression_detail", "manifest_checksums"}
    assert {name.lower() for name, _, _ in OPTIONS} | details == {field.name for field in fields(BaseBackup)}


def test_what_is_built_without_a_version_is_for_the_newest_server() -> None:
    assert max(SERVERS) * 10000 == LATEST


@pytest.mark.parametrize(
    ("command", "words", "listed"),
    [
        (
            CreatePhysicalReplicationSlot("s", reserve_wal=True),
            '"s" PHYSICAL RESERVE_WAL',
            '"s" PHYSICAL (RESERVE_WAL)',
        ),
        (
            CreateLogicalReplicationSlot("s", "p", snapshot="export"),
            '"s" LOGICAL "p" EXPORT_SNAPSHOT',
            '"s" LOGICAL "p" (SNAPSHOT \'export\')',
        ),
        (BaseBackup(max_rate=32), "MAX_RATE 32", "(MAX_RATE 32)"),
        (BaseBackup(checkpoint="fast"), "FAST", "(CHECKPOINT 'fast')"),
        (BaseBackup(progress=True), "PROGRESS", "(PROGRESS 'true')"),
        (BaseBackup("x"), "LABEL 'x'", "(LABEL 'x')"),
    ],
)
def test_options_stand_in_parentheses_since_15(command: Command, words: str, listed: str) -> None:
    assert [command.build(version) for version in (149999, 150000)] == [
        f"{command.keyword} {words}",
        f"{command.keyword} {listed}",
    ]
