"""A replication command's text back to its value, as a walsender reads it; what is none of them is SQL.

Source: src/backend/replication/repl_gram.y, repl_scanner.l (replication_scanner_is_replication_command).
"""

from __future__ import annotations

from typing import Final

from wal2lake.errors import ProtocolError
from wal2lake.wire.base_backup import BaseBackup
from wal2lake.wire.command_text import Tokens, first_word
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

COMMANDS: Final[tuple[type[Command], ...]] = (
    IdentifySystem, Show, TimelineHistory, CreatePhysicalReplicationSlot, CreateLogicalReplicationSlot,
    ReadReplicationSlot, AlterReplicationSlot, DropReplicationSlot, StartPhysicalReplication,
    StartLogicalReplication, BaseBackup, UploadManifest,
)  # fmt: skip
_BY_KEYWORD: Final = {command.keyword: command for command in COMMANDS}


def is_replication_command(text: str) -> bool:
    """Whether a walsender parses ``text`` by the replication grammar; anything else it runs as SQL."""
    return first_word(text) in _BY_KEYWORD


def parse_command(text: str) -> Command:
    """The command that ``text`` is; raise ProtocolError with the offset (in characters) where it stops to be one."""
    if not is_replication_command(text):
        raise ProtocolError("The text is no replication command.", offset=0)
    tokens = Tokens(text)
    command = _BY_KEYWORD[tokens.take("word", "a replication command")].parse(tokens)
    tokens.finish()
    return command
