"""The best vector for each documented label: of the newest server, the shortest; and what answers a command."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from tests.vectors import Capture, Server, captures
from tests.vectors.coverage import conversation, variants
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession, State
from wal2lake.wire.command_parser import is_replication_command, parse_command
from wal2lake.wire.messages import CopyData, Query, ReadyForQuery
from wal2lake.wire.replication import read_from_client, read_from_server


class Example(NamedTuple):
    """``data`` is a payload or a frame, ``message`` what it says, ``in_stream`` whether an xid stands after the tag."""

    server: Server
    capture: Capture
    data: bytes
    message: Any
    in_stream: bool = False

    @property
    def source(self) -> str:
        major, minor = divmod(self.server.version, 10000)
        options = "".join(f", {name} {value}" for name, value in sorted(self.capture.options.items()))
        options = options.replace(f", publication_names {self.capture.options.get('publication_names')}", "")
        return f"PostgreSQL {major}.{minor}, `tests/vectors/pg{major}.json`, capture “{self.capture.name}”{options}"


class Exchange(NamedTuple):
    """A command's frame and the messages up to the next ReadyForQuery."""

    asked: Example
    answer: list[Any]


@cache
def pgoutput() -> dict[str, Example]:
    """By label, as in coverage.py."""
    best: dict[str, Example] = {}
    for server, capture in captures("stream"):
        session = PgoutputSession(PgoutputOptions.parse(capture.options.items()))
        for payload in capture.pgoutput:
            in_stream = session.state is State.CHUNK
            message = session.receive(payload).message
            example = Example(server, capture, payload, message, in_stream and message.in_stream_xid)
            for label in variants(message, in_stream):
                if not (example.in_stream and " in a stream" not in label):
                    _keep(best, label, example)
    return best


@cache
def frames() -> dict[tuple[str, str], Example]:
    """By side and message name."""
    best: dict[tuple[str, str], Example] = {}
    for example, side in _frames():
        _keep(best, (side, type(example.message).__name__), example)
    return best


@cache
def replication() -> dict[str, Example]:
    """What a standby and its primary say inside CopyData, by message name."""
    best: dict[str, Example] = {}
    for example, side in _frames():
        if isinstance(example.message, CopyData) and example.capture.name in ("standby", "physical", "logical"):
            data = example.message.data
            message = (read_from_client if side == "F" else read_from_server)(data)
            _keep(best, type(message).__name__, example._replace(data=data, message=message))
    return best


@cache
def commands() -> dict[str, list[Exchange]]:
    """By class name: every exchange with every server, in the order of the servers."""
    found: dict[str, list[Exchange]] = {}
    answer: list[Any] = []
    for example, side in _frames():
        if side == "B":
            answer.append(example.message)
        elif isinstance(example.message, Query) and is_replication_command(example.message.query):
            answer = []
            command = parse_command(example.message.query)
            found.setdefault(type(command).__name__, []).append(Exchange(example, answer))
    return {name: [Exchange(e.asked, _until_ready(e.answer)) for e in exchanges] for name, exchanges in found.items()}


def _until_ready(answer: list[Any]) -> list[Any]:
    ends = [index for index, message in enumerate(answer) if isinstance(message, ReadyForQuery)]
    return answer[: ends[0] + 1] if ends else answer


def _keep(best: dict[Any, Example], label: Any, example: Example) -> None:
    """Of a newer server, or of the same and shorter."""
    held = best.get(label)
    if held is None or (-example.server.version, len(example.data)) < (-held.server.version, len(held.data)):
        best[label] = example


def _frames() -> Iterator[tuple[Example, str]]:
    for server, capture in captures("frames"):
        for side, frame, message in conversation(capture):
            yield Example(server, capture, frame, message), side
