"""Which documented message, variant or command each server's vectors hold, and which they must.

A label's ``since`` is the first server that says it. What no vector can hold here has its reason in EXEMPT.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tests.vectors import Capture, Server
from wal2lake.errors import ProtocolError
from wal2lake.pgoutput.messages import LAYOUTS, Delete, Insert, StreamAbort, Truncate, Update
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession, State
from wal2lake.wire.command_parser import COMMANDS, is_replication_command, parse_command
from wal2lake.wire.framing import BackendReader, FrontendReader, interpret
from wal2lake.wire.messages import (
    ANSWERS,
    BACKEND,
    FRONTEND,
    AuthenticationCleartextPassword,
    AuthenticationMD5Password,
    AuthenticationResponse,
    AuthenticationSASL,
    CopyData,
    FrontendMessage,
    PasswordMessage,
    Query,
    SASLInitialResponse,
)
from wal2lake.wire.replication import LAYOUTS as REPLICATION
from wal2lake.wire.replication import read_from_client, read_from_server

SINCE_PROTO: Final = {1: 13, 2: 14, 3: 15, 4: 16}
SINCE: Final = {"Message": 14, "TupleData 'b'": 14, "StreamAbort with LSN": 16} | {
    command.__name__: max(13, command.since // 10000) for command in COMMANDS
}
ANSWERED_BY: Final[dict[type | None, type[FrontendMessage]]] = {
    AuthenticationCleartextPassword: PasswordMessage,
    AuthenticationMD5Password: PasswordMessage,
    AuthenticationSASL: SASLInitialResponse,
}
EXEMPT: Final = {
    "AuthenticationKerberosV5": "is sent by no supported server",
    "AuthenticationGSS": "needs a Kerberos realm",
    "AuthenticationGSSContinue": "needs a Kerberos realm",
    "AuthenticationSSPI": "needs a server on Windows",
    "GSSENCRequest": "is sent by a client with Kerberos credentials",
}


def documented() -> dict[str, list[tuple[str, int]]]:
    """Every label, by family, with the first server that must have it."""
    pgoutput = [(layout.name, SINCE.get(layout.name, SINCE_PROTO[layout.cls.since])) for layout in LAYOUTS.values()]
    variants = [f"TupleData {kind!r}" for kind in "nutb"]
    variants += ["Update without old", "Update 'K'", "Update 'O'", "Delete 'K'", "Delete 'O'", "StreamAbort with LSN"]
    variants += [f"Truncate options {options}" for options in range(4)] + ["Truncate of several"]
    streamed = [(f"{layout.name} in a stream", 14) for layout in LAYOUTS.values() if layout.cls.in_stream_xid]
    return {
        "pgoutput": pgoutput + [(label, SINCE.get(label, 13)) for label in variants] + streamed,
        "streaming replication": [(cls.__name__, 13) for cls in REPLICATION],
        "frontend": [(cls.__name__, 13) for cls in (*FRONTEND, *ANSWERS)],
        "backend": [(cls.__name__, 13) for cls in BACKEND],
        "replication commands": [(cls.__name__, SINCE[cls.__name__]) for cls in COMMANDS],
    }


def covered(servers: Iterable[Server]) -> dict[int, set[tuple[str, str]]]:
    """For each server, by its major version, the families and labels that its vectors hold."""
    return {server.major: {label for capture in server.captures for label in _labels(capture)} for server in servers}


def missing(servers: Iterable[Server]) -> list[str]:
    """What a server must have and has not, as sentences."""
    return [
        f"PostgreSQL {major} has no vector for {label} ({family})."
        for major, have in covered(servers).items()
        for family, labels in documented().items()
        for label, since in labels
        if major >= since and label not in EXEMPT and (family, label) not in have
    ]


def decode(capture: Capture) -> Iterator[tuple[str, Any]]:
    """The messages of a capture by family; those within CopyData count for themselves too."""
    if capture.family == "stream":
        yield from (("streaming replication", read_from_server(payload)) for payload in capture.payloads)
        return
    for side, _, message in conversation(capture):
        yield ("frontend" if side == "F" else "backend"), message
        if isinstance(message, CopyData):
            yield from _replication(side, message.data)
        if isinstance(message, Query) and is_replication_command(message.query):
            yield "replication commands", parse_command(message.query)


def conversation(capture: Capture) -> Iterator[tuple[str, bytes, Any]]:
    """Who sent it, the frame and its message; an AuthenticationResponse is what its request makes it."""
    asked: type | None = None
    for side, frame in capture.frames:
        message = read_frame(side, frame)
        if isinstance(message, AuthenticationResponse) and asked in ANSWERED_BY:
            message = interpret(message, ANSWERED_BY[asked])
        asked = type(message)
        yield side, frame, message


def read_frame(side: str, frame: bytes) -> Any:
    """The message of one whole frame; only the first of a connection has no tag."""
    reader = BackendReader() if side == "B" else FrontendReader()
    if isinstance(reader, FrontendReader):
        reader.started = frame[:1] != b"\0"
    reader.feed(frame)
    return reader.receive()


def _replication(side: str, data: bytes) -> Iterator[tuple[str, Any]]:
    try:
        yield "streaming replication", (read_from_client if side == "F" else read_from_server)(data)
    except ProtocolError:
        return  # rows of another COPY


def _labels(capture: Capture) -> Iterator[tuple[str, str]]:
    for family, message in decode(capture):
        yield family, type(message).__name__
    if capture.family == "stream":
        session = PgoutputSession(PgoutputOptions.parse(capture.options.items()))
        for payload in capture.pgoutput:
            in_stream = session.state is State.CHUNK
            yield from (("pgoutput", label) for label in variants(session.receive(payload).message, in_stream))


def variants(message: Any, in_stream: bool) -> Iterator[str]:
    """The labels that one pgoutput message covers."""
    name = type(message).__name__
    yield name
    if in_stream and message.in_stream_xid:
        yield f"{name} in a stream"
    if isinstance(message, Insert | Update | Delete):
        old, new = getattr(message, "old", None), getattr(message, "new", None)
        yield f"{name} {old.kind!r}" if old else f"{name} without old"
        yield from (f"TupleData {column.kind!r}" for part in (old, new) if part for column in part.columns)
    if isinstance(message, Truncate):
        yield f"Truncate options {message.options}"
        if len(message.relation_ids) > 1:
            yield "Truncate of several"
    if isinstance(message, StreamAbort) and message.abort:
        yield "StreamAbort with LSN"
