"""Bytes that real servers and clients sent, one file per server; make.py captures them, tests and fuzzers read them.

A capture is one conversation, in order: ``sql`` and ``options`` made it. Its ``hex`` lines are, by ``family``:
``stream``: the payload of each CopyData that a walsender sent (XLogData with its pgoutput message, keepalives);
``frames``: whole frames of protocol 3, ``F`` from the frontend or ``B`` from the backend before each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
SERVERS = (13, 14, 15, 16, 17, 18)
XLOG_DATA_HEADER = 25  # tag, start_lsn, end_lsn, send_time


@dataclass(frozen=True)
class Capture:
    """One conversation with one server."""

    name: str
    family: str
    sql: list[str]
    options: dict[str, str] = field(default_factory=dict)
    hex: list[str] = field(default_factory=list)

    @property
    def payloads(self) -> list[bytes]:
        """Of a stream: each CopyData's payload."""
        return [bytes.fromhex(line) for line in self.hex]

    @property
    def pgoutput(self) -> list[bytes]:
        """Of a stream: each message of the plugin, without its XLogData header."""
        return [payload[XLOG_DATA_HEADER:] for payload in self.payloads if payload[:1] == b"w"]

    @property
    def frames(self) -> list[tuple[str, bytes]]:
        """Of frames: who sent it, and the frame."""
        return [(line[0], bytes.fromhex(line[1:])) for line in self.hex]


@dataclass(frozen=True)
class Server:
    """All captures of one server; ``version`` is server_version_num."""

    version: int
    captures: list[Capture]

    @property
    def major(self) -> int:
        return self.version // 10000


@cache
def load(major: int) -> Server:
    """The vectors of one server."""
    content = json.loads((FOLDER / f"pg{major}.json").read_text())
    return Server(content["version"], [Capture(**capture) for capture in content["captures"]])


def captures(family: str) -> Iterator[tuple[Server, Capture]]:
    """Every capture of a family, from every server."""
    for major in SERVERS:
        server = load(major)
        yield from ((server, capture) for capture in server.captures if capture.family == family)


def save(server: Server) -> None:
    """Write a server's file, one message a line so that a diff shows what changed."""
    text = json.dumps({"version": server.version, "captures": [asdict(c) for c in server.captures]}, indent=1)
    (FOLDER / f"pg{server.major}.json").write_text(text + "\n")
