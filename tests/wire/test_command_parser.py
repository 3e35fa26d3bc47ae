"""Parsing what was built for any server gives the value back; whatever else comes is an error with its offset."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.errors import ConfigError, ProtocolError, ServerConfigError
from wal2lake.lsn import LSN
from wal2lake.wire.base_backup import BaseBackup
from wal2lake.wire.command_parser import COMMANDS, is_replication_command, parse_command
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
)

VERSIONS = (130000, 140000, 150000, 160000, 170000, 180000)
characters = st.characters(codec="utf-8", exclude_characters="\0")
names = st.text(characters, min_size=1, max_size=15)
texts = st.text(characters, max_size=30)
flags = st.booleans()
lsns = st.integers(0, 2**64 - 1).map(LSN)
timelines = st.integers(1, 2**32 - 1)
snapshots = st.sampled_from([None, "export", "use", "nothing"])


def base_backup(**given: Any) -> BaseBackup:
    """Details only with what they detail."""
    for detail, of in (("target_detail", "target"), ("compression_detail", "compression")):
        given[detail] = None if given[of] is None else given[detail]
    if given["manifest"] == "no":
        given["manifest_checksums"] = None
    return BaseBackup(**given)


base_backups = st.builds(
    base_backup,
    label=st.none() | texts,
    target=st.none() | texts,
    target_detail=st.none() | texts,
    progress=flags,
    checkpoint=st.sampled_from(["fast", "spread"]),
    wal=flags,
    wait=flags,
    compression=st.none() | texts,
    compression_detail=st.none() | texts,
    max_rate=st.none() | st.integers(32, 1 << 20),
    tablespace_map=flags,
    verify_checksums=flags,
    manifest=st.sampled_from(["yes", "no", "force-encode"]),
    manifest_checksums=st.none() | texts,
    incremental=flags,
)
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(IdentifySystem),
    st.builds(Show, st.text("abZ_$ \"'é.", min_size=1, max_size=27)),
    st.builds(TimelineHistory, timelines),
    st.builds(CreatePhysicalReplicationSlot, names, flags, flags),
    st.builds(CreateLogicalReplicationSlot, names, names, flags, snapshots, flags, flags),
    st.builds(ReadReplicationSlot, names),
    st.builds(AlterReplicationSlot, names, st.none() | flags, flags),
    st.builds(DropReplicationSlot, names, flags),
    st.builds(StartPhysicalReplication, lsns, st.none() | names, st.none() | timelines),
    st.builds(StartLogicalReplication, names, lsns, st.lists(st.tuples(names, st.none() | texts)).map(tuple)),
    base_backups,
    st.builds(UploadManifest),
)


@given(commands, st.sampled_from(VERSIONS))
def test_parsing_is_the_inverse_of_building(command: Command, version: int) -> None:
    try:
        text = command.build(version)
    except ServerConfigError:
        return
    assert is_replication_command(text)
    assert parse_command(text) == command


@given(commands, st.data())
def test_a_cut_command_is_an_error_or_another_command(command: Command, data: st.DataObject) -> None:
    text = command.build()
    cut = text[: data.draw(st.integers(0, len(text)))]
    try:
        parse_command(cut)
    except ProtocolError as error:
        assert error.offset is not None
        assert 0 <= error.offset <= len(cut)


def test_every_command_is_in_the_table() -> None:
    assert {cls.__name__ for cls in Command.__subclasses__()} == {cls.__name__ for cls in COMMANDS}


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("IDENTIFY_SYSTEM;", IdentifySystem()),
        (" SHOW data_directory_mode ;", Show("data_directory_mode")),
        ('DROP_REPLICATION_SLOT Slot1', DropReplicationSlot("slot1")),
        ("START_REPLICATION 0/1", StartPhysicalReplication(LSN(1))),
        ("START_REPLICATION SLOT s 0/0300 TIMELINE 2", StartPhysicalReplication(LSN(0x300), "s", 2)),
        ("CREATE_REPLICATION_SLOT s LOGICAL p USE_SNAPSHOT TWO_PHASE",
         CreateLogicalReplicationSlot("s", "p", snapshot="use", two_phase=True)),
        ("CREATE_REPLICATION_SLOT s LOGICAL p (TWO_PHASE 'off', SNAPSHOT nothing)",
         CreateLogicalReplicationSlot("s", "p", snapshot="nothing")),
        ("CREATE_REPLICATION_SLOT s TEMPORARY PHYSICAL (RESERVE_WAL 1)",
         CreatePhysicalReplicationSlot("s", True, True)),
        ("BASE_BACKUP LABEL 'it''s' PROGRESS FAST NOWAIT MAX_RATE 32 NOVERIFY_CHECKSUMS MANIFEST 'yes'",
         BaseBackup("it's", progress=True, checkpoint="fast", wait=False, max_rate=32, verify_checksums=False,
                    manifest="yes")),
        ("BASE_BACKUP (WAIT 0, CHECKPOINT 'fast', MANIFEST, MAX_RATE '64', COMPRESSION 'gzip', COMPRESSION_DETAIL '9')",
         BaseBackup(wait=False, checkpoint="fast", manifest="yes", max_rate=64, compression="gzip",
                    compression_detail="9")),
    ],
)  # fmt: skip
def test_what_other_clients_write(text: str, command: Command) -> None:
    assert parse_command(text) == command


@pytest.mark.parametrize(
    ("command", "version", "text"),
    [
        (BaseBackup(), 180000, "BASE_BACKUP"),
        (BaseBackup("b", checkpoint="fast", wait=False, manifest="yes"), 140000,
         "BASE_BACKUP LABEL 'b' FAST NOWAIT MANIFEST 'yes'"),
        (BaseBackup("b", checkpoint="fast", wait=False, incremental=True), 170000,
         "BASE_BACKUP (LABEL 'b', CHECKPOINT 'fast', WAIT 'false', INCREMENTAL 'true')"),
    ],
)  # fmt: skip
def test_base_backup_for_a_server(command: BaseBackup, version: int, text: str) -> None:
    assert command.build(version) == text


@pytest.mark.parametrize("field", ["target", "compression"])
def test_base_backup_options_of_a_newer_server(field: str) -> None:
    with pytest.raises(ServerConfigError, match="PostgreSQL 15 and later do"):
        BaseBackup(**{field: "x"}).build(140000)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"max_rate": 31}, {"manifest": "maybe"}, {"compression_detail": "9"}])
def test_base_backup_options_that_no_server_takes(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        BaseBackup(**given)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("SELECT 1", 0),
        ("identify_system", 0),
        ("IDENTIFY_SYSTEM now", 16),
        ("TIMELINE_HISTORY 0", 18),
        (f"TIMELINE_HISTORY {'9' * 5000}", 17),
        (f"BASE_BACKUP (MAX_RATE '{'9' * 5000}')", 5025),
        ("START_REPLICATION 0/123456789", 18),
        ("START_REPLICATION SLOT s LOGICAL 0/0 (a 'b', )", 45),
        ("DROP_REPLICATION_SLOT 'x'", 22),
        ('DROP_REPLICATION_SLOT "x\0"', 21),
        (f"DROP_REPLICATION_SLOT {'x' * 64}", 22),
        ("DROP_REPLICATION_SLOT \"x", 21),
        ("CREATE_REPLICATION_SLOT s LOGICAL p (RESERVE_WAL)", 49),
        ("ALTER_REPLICATION_SLOT s (FAILOVER maybe)", 41),
        ("BASE_BACKUP (LABEL 'a', LABEL 'b')", 30),
        ("BASE_BACKUP FAST FAST", 21),
        ("CREATE_REPLICATION_SLOT s LOGICAL p USE_SNAPSHOT EXPORT_SNAPSHOT", 64),
    ],
)  # fmt: skip
def test_errors_say_where(text: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_command(text)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("command", "found"),
    [("DROP_REPLICATION_SLOT", "'the end of the command'"), ("DROP_REPLICATION_SLOT 5", "'5'")],
)
def test_an_error_says_what_was_found(command: str, found: str) -> None:
    with pytest.raises(ProtocolError, match=f"Expected a name, found {found}"):
        parse_command(command)
