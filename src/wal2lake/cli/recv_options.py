"""The options of `wal2lake recv`: names and letters are pg_recvlogical's where it has the same.

Those of pgoutput come by flags of their own or by -o; ``pgoutput_options`` checks both alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from wal2lake.errors import ConfigError, ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.logical import PluginOptions

_NEWEST_PROTO_VERSION = "4"


class MessageFormat(StrEnum):
    RAW = "raw"
    JSON = "json"


class StreamingMode(StrEnum):
    OFF = "off"
    ON = "on"
    PARALLEL = "parallel"


class OriginFilter(StrEnum):
    ANY = "any"
    NONE = "none"


Create = Annotated[bool, typer.Option("--create-slot", help="Make the slot first.")]
Failover = Annotated[
    bool, typer.Option("--failover", help="With --create-slot: standbys keep the slot in step (17 and later).")
]
Drop = Annotated[bool, typer.Option("--drop-slot", help="Drop the slot instead.")]
Start = Annotated[
    bool | None, typer.Option("--start/--no-start", help="Stream, which is the default but for --drop-slot.")
]
Plugin = Annotated[
    str, typer.Option("--plugin", "-P", help="The output plugin that the slot has, or is made with by --create-slot.")
]
PythonPlugin = Annotated[
    str | None,
    typer.Option(
        "--python-plugin",
        help="Decode pgoutput's stream with an output plugin in Python: test_decoding, wal2json, debezium, pgoutput, "
        "json, another that is installed, or module:Class of your own. Then -o is for it, and it says whether messages "
        "and streaming are asked for.",
    ),
]
Publications = Annotated[list[str] | None, typer.Option(help="pgoutput: a publication; may be repeated.")]
ProtoVersion = Annotated[
    int | None,
    typer.Option(min=1, max=4, help="pgoutput: the protocol version; without it the lowest that the options need."),
]
Binary = Annotated[bool, typer.Option("--binary", help="pgoutput: values in binary format (14 and later).")]
Messages = Annotated[
    bool, typer.Option("--messages", help="pgoutput: what pg_logical_emit_message wrote as well (14 and later).")
]
Streaming = Annotated[
    StreamingMode | None,
    typer.Option(
        help="pgoutput: on sends large transactions while they run (14 and later), parallel also what applying "
        "them in parallel needs (16 and later); off, the default, sends each when it commits."
    ),
]
FromOrigin = Annotated[
    OriginFilter | None,
    typer.Option(help="pgoutput: none leaves out what was replicated to the server (16 and later)."),
]
TwoPhase = Annotated[
    bool,
    typer.Option(
        "--two-phase", "-t", help="Send a prepared transaction at its PREPARE, not at COMMIT PREPARED (15 and later)."
    ),
]
Options = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="NAME=VALUE or NAME, for the plugin; may be repeated.")
]
Format = Annotated[MessageFormat, typer.Option("--format", help="raw: as it comes; json: an object a message.")]
File = Annotated[str | None, typer.Option("--file", "-f", help="Appended to; without it, or by -, standard output.")]
StartLsn = Annotated[
    LSN | None,
    typer.Option(
        "--start-lsn",
        "--startpos",
        "-I",
        parser=LSN.parse,
        metavar="LSN",
        help="Begin here, not where the slot stands.",
    ),
]
FsyncInterval = Annotated[
    float,
    typer.Option("--fsync-interval", "-F", min=0, help="Seconds between syncs of the output; 0: only at the end."),
]


def pgoutput_options(flags: Mapping[str, Any], further: PluginOptions) -> PgoutputOptions:
    """pgoutput's options from flags and -o alike, checked alike; raises ConfigError in the flags' terms."""
    asked: dict[str, str | None] = {name: str(value).lower() for name, value in flags.items() if value}
    asked["publication_names"] = flags["publication_names"]
    for place, (name, value) in enumerate(further):
        if asked.get(name) or any(name == before for before, _ in further[:place]):
            raise ConfigError(f"{name} is given twice.", hint="Say it once, by its flag or by -o.")
        asked[name] = value
    if not asked["publication_names"]:
        raise ConfigError("pgoutput needs at least one publication.", hint="Name it with --publication.")
    if "proto_version" not in asked:
        needed = _parsed({**asked, "proto_version": _NEWEST_PROTO_VERSION}).least_proto_version
        asked["proto_version"] = str(needed)
    return _parsed(asked)


def _parsed(asked: Mapping[str, str | None]) -> PgoutputOptions:
    try:
        return PgoutputOptions.parse(asked.items())
    except ProtocolError as error:
        too_low = "Leave --proto-version out: then it is the lowest that the options need."
        hint = too_low if error.hint else "`wal2lake recv --help` has pgoutput's; --plugin names another plugin."
        raise ConfigError(error.message, hint=hint) from None
