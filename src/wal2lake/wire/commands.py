"""The replication commands: each is a value with ``build`` beside ``parse``, and parsing what was built gives it back.

``version`` is ``server_version_num`` (150004). It chooses the syntax: since PostgreSQL 15 options stand in
parentheses, before as bare keywords; parse reads both. What that version does not know is refused before it is sent,
with the version that does (ServerConfigError). Names are always quoted: none can end its command early.

Source: PostgreSQL documentation, "Streaming Replication Protocol"; src/backend/replication/repl_gram.y.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self, cast

from wal2lake.errors import ConfigError
from wal2lake.lsn import LSN
from wal2lake.wire.command_text import (
    Tokens,
    boolean,
    option_list,
    quote_identifier,
    quote_string,
    require,
)

LATEST: Final = 180000
SnapshotAction = Literal["export", "use", "nothing"]
_LEGACY_SNAPSHOT: Final = {
    "export": "EXPORT_SNAPSHOT",
    "use": "USE_SNAPSHOT",
    "nothing": "NOEXPORT_SNAPSHOT",
}
_DOT_BETWEEN: Final = re.compile(r"(?<=[^.])\.(?=.)", re.DOTALL)  # a quoted name may begin or end with a dot


class Command(ABC):
    """A replication command; ``keyword`` is its first word, ``since`` the first server that knows it."""

    __slots__ = ()
    keyword: ClassVar[str]
    since: ClassVar[int] = 100000

    def build(self, version: int = LATEST) -> str:
        """The command's text for a server; raise ServerConfigError when that server does not know it."""
        require(self.keyword, version, self.since)
        return f"{self.keyword} {self._arguments(version)}".rstrip()

    def _arguments(self, version: int) -> str:
        return ""

    @classmethod
    @abstractmethod
    def parse(cls, tokens: Tokens) -> Command:
        """Read what follows the keyword; raise ProtocolError with the offset in characters."""


@dataclass(frozen=True, slots=True)
class IdentifySystem(Command):
    """Answers systemid text, timeline int8, xlogpos text, dbname text or NULL."""

    keyword: ClassVar[str] = "IDENTIFY_SYSTEM"

    @classmethod
    def parse(cls, tokens: Tokens) -> Self:
        return cls()


@dataclass(frozen=True, slots=True)
class Show(Command):
    """The current setting of a run-time parameter; ``name`` may have an extension's prefix and a dot."""

    keyword: ClassVar[str] = "SHOW"
    name: str

    def _arguments(self, version: int) -> str:
        return ".".join(map(quote_identifier, _DOT_BETWEEN.split(self.name)))

    @classmethod
    def parse(cls, tokens: Tokens) -> Self:
        names = [tokens.identifier()]
        while tokens.accept("."):
            names.append(tokens.identifier())
        return cls(".".join(names))


@dataclass(frozen=True, slots=True)
class TimelineHistory(Command):
    """Answers filename and content of a timeline's history file; content is bytea before 14, text since."""

    keyword: ClassVar[str] = "TIMELINE_HISTORY"
    timeline: int

    def _arguments(self, version: int) -> str:
        return _timeline(self.timeline)

    @classmethod
    def parse(cls, tokens: Tokens) -> Self:
        return cls(tokens.timeline())


@dataclass(frozen=True, slots=True)
class CreatePhysicalReplicationSlot(Command):
    """Answers slot_name, consistent_point (0/0), snapshot_name and output_plugin (both NULL)."""

    keyword: ClassVar[str] = "CREATE_REPLICATION_SLOT"
    slot: str
    temporary: bool = False
    reserve_wal: bool = False

    def _arguments(self, version: int) -> str:
        head = f"{quote_identifier(self.slot)}{' TEMPORARY' * self.temporary} PHYSICAL"
        options = ["RESERVE_WAL"] * self.reserve_wal
        return head + (option_list(options) if version >= 150000 else "".join(f" {o}" for o in options))

    @classmethod
    def parse(cls, tokens: Tokens) -> Command:
        slot, temporary = tokens.identifier(), tokens.accept("TEMPORARY") is not None
        if tokens.accept("LOGICAL"):
            return CreateLogicalReplicationSlot.parse_after(tokens, slot, temporary)
        tokens.expect("PHYSICAL")
        options = _create_slot_options(tokens, ("reserve_wal",))
        return cls(slot, temporary, options.get("reserve_wal") is True)


@dataclass(frozen=True, slots=True)
class CreateLogicalReplicationSlot(Command):
    """Answers slot_name, consistent_point, snapshot_name, output_plugin.

    ``snapshot`` None is the server's default, which is export. two_phase since 15 (14 knows it only in the SQL
    function pg_create_logical_replication_slot), failover since 17.
    """

    keyword: ClassVar[str] = "CREATE_REPLICATION_SLOT"
    slot: str
    plugin: str
    temporary: bool = False
    snapshot: SnapshotAction | None = None
    two_phase: bool = False
    failover: bool = False

    def _arguments(self, version: int) -> str:
        temporary = " TEMPORARY" * self.temporary
        head = f"{quote_identifier(self.slot)}{temporary} LOGICAL {quote_identifier(self.plugin)}"
        if self.two_phase:
            require("the slot option TWO_PHASE", version, 150000)
        if self.failover:
            require("the slot option FAILOVER", version, 170000)
        if version < 150000:
            words = [_LEGACY_SNAPSHOT[self.snapshot]] if self.snapshot else []
            return " ".join([head, *words])
        options = [f"SNAPSHOT {quote_string(self.snapshot)}"] if self.snapshot else []
        options += ["TWO_PHASE"] * self.two_phase + ["FAILOVER"] * self.failover
        return head + option_list(options)

    @classmethod
    def parse(cls, tokens: Tokens) -> Command:
        return CreatePhysicalReplicationSlot.parse(tokens)

    @classmethod
    def parse_after(cls, tokens: Tokens, slot: str, temporary: bool) -> Self:
        """Read what follows LOGICAL."""
        plugin = tokens.identifier()
        options = _create_slot_options(tokens, ("snapshot", "two_phase", "failover"))
        return cls(
            slot,
            plugin,
            temporary,
            cast(SnapshotAction | None, options.get("snapshot")),
            options.get("two_phase") is True,
            options.get("failover") is True,
        )


@dataclass(frozen=True, slots=True)
class ReadReplicationSlot(Command):
    """Answers slot_type, restart_lsn, restart_tli of a physical slot; all NULL when it does not exist."""

    keyword: ClassVar[str] = "READ_REPLICATION_SLOT"
    since: ClassVar[int] = 150000
    slot: str

    def _arguments(self, version: int) -> str:
        return quote_identifier(self.slot)

    @classmethod
    def parse(cls, tokens: Tokens) -> Self:
        return cls(tokens.identifier())


@dataclass(frozen=True, slots=True)
class AlterReplicationSlot(Command):
    """Change a logical slot; None leaves an option as it is. two_phase since 18."""

    keyword: ClassVar[str] = "ALTER_REPLICATION_SLOT"
    since: ClassVar[int] = 170000
    slot: str
    failover: bool | None = None
    two_phase: bool | None = None

    def _arguments(self, version: int) -> str:
        if self.two_phase is not None:
            require("the option TWO_PHASE of ALTER_REPLICATION_SLOT", version, 180000)
        given = (("FAILOVER", self.failover), ("TWO_PHASE", self.two_phase))
        options = [f"{name} {str(value).lower()}" for name, value in given if value is not None]
        if not options:
            raise ConfigError("ALTER_REPLICATION_SLOT needs at least one option: FAILOVER or TWO_PHASE.")
        return quote_identifier(self.slot) + option_list(options)

    @classmethod
    def parse(cls, tokens: Tokens) -> Self:
        slot = tokens.identifier()
        options = {name: boolean(tokens, name, value) for name, value in tokens.options().items()}
        _refuse_unknown(tokens, options, ("failover", "two_phase"))
        return cls(slot, options.get("failover"), options.get("two_phase"))


@dataclass(frozen=True, slots=True)
class DropReplicationSlot(Command):
    """Drop a slot; ``wait`` until it is inactive instead of failing."""

    keyword: ClassVar[str] = "DROP_REPLICATION_SLOT"
    slot: str
    wait: bool = False

    def _arguments(self, version: int) -> str:
        return quote_identifier(self.slot) + " WAIT" * self.wait

    @classmethod
    def parse(cls, tokens: Tokens) -> Self:
        return cls(tokens.identifier(), tokens.accept("WAIT") is not None)


@dataclass(frozen=True, slots=True)
class StartPhysicalReplication(Command):
    """Stream WAL from ``lsn``; an old timeline ends by a row next_tli int8, next_tli_startpos text."""

    keyword: ClassVar[str] = "START_REPLICATION"
    lsn: LSN
    slot: str | None = None
    timeline: int | None = None

    def _arguments(self, version: int) -> str:
        slot = "" if self.slot is None else f"SLOT {quote_identifier(self.slot)} "
        timeline = "" if self.timeline is None else f" TIMELINE {_timeline(self.timeline)}"
        return f"{slot}PHYSICAL {self.lsn}{timeline}"

    @classmethod
    def parse(cls, tokens: Tokens) -> Command:
        slot = tokens.identifier() if tokens.accept("SLOT") else None
        if slot is not None and tokens.accept("LOGICAL"):
            return StartLogicalReplication.parse_after(tokens, slot)
        tokens.accept("PHYSICAL")
        return cls(tokens.lsn(), slot, tokens.timeline() if tokens.accept("TIMELINE") else None)


@dataclass(frozen=True, slots=True)
class StartLogicalReplication(Command):
    """Stream what the slot's plugin makes of the WAL from ``lsn`` on; ``options`` go to the plugin, in order."""

    keyword: ClassVar[str] = "START_REPLICATION"
    slot: str
    lsn: LSN
    options: tuple[tuple[str, str | None], ...] = ()

    def _arguments(self, version: int) -> str:
        options = [
            quote_identifier(name) + ("" if value is None else f" {quote_string(value)}")
            for name, value in self.options
        ]
        return f"SLOT {quote_identifier(self.slot)} LOGICAL {self.lsn}{option_list(options)}"

    @classmethod
    def parse(cls, tokens: Tokens) -> Command:
        return StartPhysicalReplication.parse(tokens)

    @classmethod
    def parse_after(cls, tokens: Tokens, slot: str) -> Self:
        """Read what follows LOGICAL; a plugin's options are names with a string or nothing."""
        lsn, options = tokens.lsn(), list[tuple[str, str | None]]()
        if tokens.accept("("):
            while not options or tokens.accept(","):
                name = tokens.identifier()
                options.append((name, tokens.string() if tokens.current.kind == "string" else None))
            tokens.expect(")")
        return cls(slot, lsn, tuple(options))


@dataclass(frozen=True, slots=True)
class UploadManifest(Command):
    """Send the manifest of an earlier backup by COPY; an incremental BASE_BACKUP on this connection builds on it."""

    keyword: ClassVar[str] = "UPLOAD_MANIFEST"
    since: ClassVar[int] = 170000

    @classmethod
    def parse(cls, tokens: Tokens) -> Self:
        return cls()


def _timeline(timeline: int) -> str:
    if not 0 < timeline < 1 << 32:
        raise ConfigError(f"A timeline lies between 1 and 4294967295; {timeline} does not.")
    return str(timeline)


def _create_slot_options(tokens: Tokens, known: tuple[str, ...]) -> dict[str, str | bool]:
    """Both syntaxes of CREATE_REPLICATION_SLOT's options, booleans as bool, ``snapshot`` as its action."""
    options: dict[str, str | bool] = {}
    if tokens.current.text == "(":
        for name, value in tokens.options().items():
            if name != "snapshot":
                options[name] = boolean(tokens, name, value)
            elif value in _LEGACY_SNAPSHOT:
                options[name] = str(value)
            else:
                raise tokens.refuse("Option snapshot is export, use or nothing.")
    else:
        legacy = {word: action for action, word in _LEGACY_SNAPSHOT.items()}
        while word := tokens.accept(*legacy, "RESERVE_WAL", "TWO_PHASE"):
            name = "snapshot" if word in legacy else word.lower()
            if name in options:
                raise tokens.refuse(f"Option {name} is given twice.")
            options[name] = legacy.get(word, True)
    _refuse_unknown(tokens, options, known)
    return options


def _refuse_unknown(tokens: Tokens, options: Mapping[str, object], known: tuple[str, ...]) -> None:
    if unknown := options.keys() - set(known):
        raise tokens.refuse(f"No such option here: {', '.join(sorted(unknown))}.")


def start_replication_logical(slot: str, lsn: int, options: Mapping[str, str | bool | int | None]) -> str:
    """START_REPLICATION … LOGICAL for any server; a bool goes as ``true`` or ``false``."""
    pairs = tuple((name, str(value).lower() if isinstance(value, int) else value) for name, value in options.items())
    return StartLogicalReplication(slot, LSN(lsn), pairs).build()
