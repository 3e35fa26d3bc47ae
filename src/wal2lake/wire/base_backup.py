"""BASE_BACKUP with all options of servers 13 to 18, in both syntaxes: build beside parse, from one table of options.

A value equal to the server's default is not sent, so a default asks nothing of a server.

Source: PostgreSQL documentation, "Streaming Replication Protocol", BASE_BACKUP; src/backend/backup/basebackup.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

from wal2lake.errors import ConfigError
from wal2lake.wire.command_text import (
    OptionValue,
    Tokens,
    boolean,
    option_list,
    quote_string,
    require,
    uint32,
)
from wal2lake.wire.commands import Command


class _Option(NamedTuple):
    """``legacy`` is the keyword before 15 (None: unknown there); a bool's keyword stands for not its default."""

    field: str
    legacy: str | None
    since: int = 100000


_OPTIONS: Final = (
    _Option("label", "LABEL"),
    _Option("target", None, 150000),
    _Option("target_detail", None, 150000),
    _Option("progress", "PROGRESS"),
    _Option("checkpoint", "FAST"),
    _Option("wal", "WAL"),
    _Option("wait", "NOWAIT"),
    _Option("compression", None, 150000),
    _Option("compression_detail", None, 150000),
    _Option("max_rate", "MAX_RATE"),
    _Option("tablespace_map", "TABLESPACE_MAP"),
    _Option("verify_checksums", "NOVERIFY_CHECKSUMS", 110000),
    _Option("manifest", "MANIFEST", 130000),
    _Option("manifest_checksums", "MANIFEST_CHECKSUMS", 130000),
    _Option("incremental", None, 170000),
)


@dataclass(frozen=True, slots=True)
class BaseBackup(Command):
    """Stream a copy of the cluster.

    ``max_rate`` is in kB/s, 32 to 1048576. ``incremental`` (17+) follows an UPLOAD_MANIFEST on the same connection;
    ``target``, ``compression`` and their details are known since 15.
    """

    keyword: ClassVar[str] = "BASE_BACKUP"
    label: str | None = None
    target: str | None = None
    target_detail: str | None = None
    progress: bool = False
    checkpoint: Literal["fast", "spread"] = "spread"
    wal: bool = False
    wait: bool = True
    compression: str | None = None
    compression_detail: str | None = None
    max_rate: int | None = None
    tablespace_map: bool = False
    verify_checksums: bool = True
    manifest: Literal["yes", "no", "force-encode"] = "no"
    manifest_checksums: str | None = None
    incremental: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError for what no server takes."""
        if self.max_rate is not None and not 32 <= self.max_rate <= 1 << 20:
            raise ConfigError(f"max_rate lies between 32 and 1048576 kB/s; {self.max_rate} does not.")
        for option, allowed in (("checkpoint", ("fast", "spread")), ("manifest", ("yes", "no", "force-encode"))):
            if getattr(self, option) not in allowed:
                raise ConfigError(f"{option} is one of {', '.join(allowed)}, not {getattr(self, option)!r}.")
        if self.manifest_checksums is not None and self.manifest == "no":
            raise ConfigError("manifest_checksums needs a manifest.", hint="Set manifest to yes or force-encode.")
        for detail, of in (("target_detail", "target"), ("compression_detail", "compression")):
            if getattr(self, detail) is not None and getattr(self, of) is None:
                raise ConfigError(f"{detail} needs {of}.")

    def _arguments(self, version: int) -> str:
        texts = []
        for option in _OPTIONS:
            value = getattr(self, option.field)
            if value == _DEFAULTS[option.field]:
                continue
            require(f"the BASE_BACKUP option {option.field.upper()}", version, option.since)
            if version >= 150000:
                texts.append(f"{option.field.upper()} {_literal(value)}")
            elif isinstance(value, bool) or option.field == "checkpoint":
                texts.append(str(option.legacy))
            else:
                texts.append(f"{option.legacy} {_literal(value)}")
        return option_list(texts).lstrip() if version >= 150000 else " ".join(texts)

    @classmethod
    def parse(cls, tokens: Tokens) -> Self:
        given = _parse_modern(tokens) if tokens.current.text == "(" else _parse_legacy(tokens)
        try:
            return cls(**given)
        except ConfigError as error:
            raise tokens.refuse(error.message) from None


_DEFAULTS: Final[dict[str, Any]] = {name: getattr(BaseBackup(), name) for name in BaseBackup.__dataclass_fields__}
_MODERN: Final = {option.field: option for option in _OPTIONS}
_LEGACY: Final = {option.legacy: option for option in _OPTIONS if option.legacy}


def _literal(value: str | int) -> str:
    """A string in quotes, a number as it is; booleans are strings here, as in defGetBoolean."""
    if isinstance(value, bool):
        return quote_string(str(value).lower())
    return quote_string(value) if isinstance(value, str) else str(value)


def _parse_modern(tokens: Tokens) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in tokens.options().items():
        if name not in _MODERN:
            raise tokens.refuse(f"BASE_BACKUP has no option {name}.")
        given[name] = _value(tokens, name, value)
    return given


def _value(tokens: Tokens, name: str, value: OptionValue) -> OptionValue:
    """The value in its field's type; MANIFEST also takes a boolean, MAX_RATE a number in quotes."""
    if isinstance(_DEFAULTS[name], bool):
        return boolean(tokens, name, value)
    if name == "max_rate":
        rate = uint32(str(value))
        if rate is None:
            raise tokens.refuse("Option max_rate needs a number.")
        return rate
    if name == "manifest" and value not in ("yes", "no", "force-encode"):
        return "yes" if boolean(tokens, name, value) else "no"
    if not isinstance(value, str):
        raise tokens.refuse(f"Option {name} needs a string.")
    return value


def _parse_legacy(tokens: Tokens) -> dict[str, Any]:
    given: dict[str, Any] = {}
    while word := tokens.accept(*_LEGACY):
        name = _LEGACY[word].field
        if name in given:
            raise tokens.refuse(f"Option {word} is given twice.")
        match _DEFAULTS[name]:
            case bool(default):
                given[name] = not default
            case _ if name == "checkpoint":
                given[name] = "fast"
            case _:
                given[name] = tokens.number() if name == "max_rate" else tokens.string()
    return given
