"""What START_REPLICATION asks of pgoutput; whatever the server's version does not know is refused before it is sent.

Source: PostgreSQL documentation, "Logical Streaming Replication Parameters"; pgoutput.c.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from wal2lake.arguments import as_flag, as_name
from wal2lake.errors import ConfigError, ProtocolError
from wal2lake.wire.command_text import quote_identifier, require

Streaming = Literal["off", "on", "parallel"]
Origin = Literal["any", "none"]

PROTO_VERSION_SINCE: Final = {1: 100000, 2: 140000, 3: 150000, 4: 160000}
STREAMING_PROTO_VERSION: Final = {"off": 1, "on": 2, "parallel": 4}
TWO_PHASE_PROTO_VERSION: Final = 3
OPTION_SINCE: Final = {"binary": 140000, "messages": 140000, "two_phase": 150000, "origin": 160000}
_BOOLEANS: Final = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
# Blanks are the scanner's (scanner_isspace); whatever else stands in an unquoted name is part of it, a quote too.
_BLANK: Final = r" \t\n\r\f"
_PUBLICATION = re.compile(
    rf'[{_BLANK}]*(?:"((?:[^"]|"")+)"|([^{_BLANK}",][^{_BLANK},]*))[{_BLANK}]*(?:,(?![{_BLANK}]*\Z)|\Z)'
)
_STRTOUL: Final = re.compile(r"[ \t-\r]*\+?[0-9]+")
_ASCII_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@dataclass(frozen=True, slots=True)
class PgoutputOptions:
    """pgoutput's options; a default is not sent. ``origin`` None is the server's default, which is any."""

    publication_names: tuple[str, ...]
    proto_version: int = 1
    binary: bool = False
    messages: bool = False
    streaming: Streaming = "off"
    two_phase: bool = False
    origin: Origin | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for what no server takes."""
        if isinstance(self.publication_names, str):
            hint = f"Write ({self.publication_names!r},)."
            raise ConfigError("publication_names is a tuple of names, not a text.", hint=hint)
        if not isinstance(self.publication_names, tuple | list):
            raise ConfigError(f"publication_names is a tuple of names, not a {type(self.publication_names).__name__}.")
        if not self.publication_names:
            raise ConfigError("pgoutput needs at least one publication.")
        names = tuple(as_name(name, "A publication's name") for name in self.publication_names)
        object.__setattr__(self, "publication_names", names)
        if type(self.proto_version) is not int or self.proto_version not in PROTO_VERSION_SINCE:
            raise ConfigError(f"pgoutput's protocol versions are 1 to 4, not {self.proto_version!r}.")
        for flag in ("binary", "messages", "two_phase"):
            as_flag(getattr(self, flag), f"pgoutput's option {flag}")
        if not isinstance(self.streaming, str) or self.streaming not in STREAMING_PROTO_VERSION:
            raise ConfigError(f"pgoutput's option streaming is off, on or parallel, not {self.streaming!r}.")
        if self.origin not in (None, "any", "none"):
            raise ConfigError(f"pgoutput's option origin is any or none, not {self.origin!r}.")
        self._needs(f"streaming = {self.streaming}", STREAMING_PROTO_VERSION[self.streaming])
        self._needs("two_phase", TWO_PHASE_PROTO_VERSION if self.two_phase else 1)

    @property
    def least_proto_version(self) -> int:
        """The lowest protocol version that has all that is asked."""
        return max(STREAMING_PROTO_VERSION[self.streaming], TWO_PHASE_PROTO_VERSION if self.two_phase else 1)

    def _needs(self, what: str, proto_version: int) -> None:
        if self.proto_version < proto_version:
            raise ConfigError(
                f"{what} needs protocol version {proto_version}, not {self.proto_version}.",
                hint=f"Set proto_version to {proto_version} or more.",
            )

    def check(self, version: int) -> None:
        """Raise ServerConfigError unless a server of ``version`` (server_version_num) knows all that is asked."""
        for option, since in OPTION_SINCE.items():
            if getattr(self, option):
                require(f"pgoutput's option {option}", version, since)
        since = PROTO_VERSION_SINCE[STREAMING_PROTO_VERSION[self.streaming]]
        require(f"pgoutput's streaming = {self.streaming}", version, since)
        what = f"protocol version {self.proto_version} of pgoutput"
        require(what, version, PROTO_VERSION_SINCE[self.proto_version])

    def build(self, version: int) -> tuple[tuple[str, str | None], ...]:
        """The options of StartLogicalReplication for a server; raise ServerConfigError for what it does not know."""
        self.check(version)
        options: dict[str, str | None] = {
            "proto_version": str(self.proto_version),
            "publication_names": quote_publication_names(self.publication_names),
        }
        for name in ("binary", "messages", "two_phase"):
            if getattr(self, name):
                options[name] = "true"
        if self.streaming != "off":
            options["streaming"] = self.streaming
        if self.origin is not None:
            options["origin"] = self.origin
        return tuple(options.items())

    @classmethod
    def parse(cls, options: Iterable[tuple[str, str | None]]) -> PgoutputOptions:
        """The inverse of ``build``, for a walsender; raise ProtocolError for what pgoutput would refuse."""
        pairs = tuple(options)
        given = dict(pairs)
        if len(given) < len(pairs):
            raise ProtocolError("pgoutput takes none of its options twice.", offset=0)
        if unknown := given.keys() - set(cls.__dataclass_fields__):
            raise ProtocolError(f"pgoutput has no option {', '.join(sorted(unknown))}.", offset=0)
        try:
            return cls(
                publication_names=parse_publication_names(given.get("publication_names") or ""),
                proto_version=_number(given.get("proto_version") or ""),
                binary=_boolean("binary", given.get("binary", "false")),
                messages=_boolean("messages", given.get("messages", "false")),
                streaming=_streaming(given.get("streaming", "off")),
                two_phase=_boolean("two_phase", given.get("two_phase", "false")),
                origin=_origin(given.get("origin")),
            )
        except ValueError:
            raise ProtocolError("pgoutput's option proto_version must be a number.", offset=0) from None
        except ConfigError as error:
            raise ProtocolError(error.message, hint=error.hint, offset=0) from None


def quote_publication_names(names: Sequence[str]) -> str:
    """A list of identifiers as SplitIdentifierString reads it: quoted, whatever characters a name has."""
    return ",".join(map(quote_identifier, names))


def parse_publication_names(text: str) -> tuple[str, ...]:
    """The inverse of ``quote_publication_names``; of an unquoted name A to Z are folded, as in a UTF-8 database."""
    names, offset = [], 0
    while offset < len(text):
        match = _PUBLICATION.match(text, offset)
        if match is None:
            raise ProtocolError("publication_names is not a list of names.", offset=offset)
        names.append(match[1].replace('""', '"') if match[1] else match[2].translate(_ASCII_LOWER))
        offset = match.end()
    return tuple(names)


def _number(text: str) -> int:
    """What strtoul takes whole."""
    if not _STRTOUL.fullmatch(text):
        raise ValueError
    return int(text)


def _boolean(name: str, value: str | None) -> bool:
    """defGetBoolean: an option without a value is true."""
    text = "true" if value is None else value.lower()
    if text not in _BOOLEANS:
        raise ProtocolError(f"pgoutput's option {name} needs a boolean value.", offset=0)
    return _BOOLEANS[text]


def _streaming(value: str | None) -> Streaming:
    """defGetStreamingMode: a boolean or parallel."""
    if value is not None and value.lower() == "parallel":
        return "parallel"
    return "on" if _boolean("streaming", value) else "off"


def _origin(value: str | None) -> Origin | None:
    if value is not None and value.lower() not in ("any", "none"):
        raise ProtocolError("pgoutput's option origin is any or none.", offset=0)
    return cast(Origin | None, value and value.lower())
