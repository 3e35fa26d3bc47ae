"""The decoders under test: each with the vectors to mutate, and with the writer that must give the same bytes back.

A target takes any bytes. What it accepts it must be able to write again, byte for byte where the format has one form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from tests.vectors import Capture, captures
from tests.vectors.coverage import read_frame
from wal2lake.decoding.decoder import Decoder
from wal2lake.errors import PluginError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import read_message, write_message
from wal2lake.pgoutput.options import PgoutputOptions, parse_publication_names, quote_publication_names
from wal2lake.pgoutput.session import PgoutputSession
from wal2lake.wire.command_parser import parse_command
from wal2lake.wire.copyformat import BinaryRowReader, RowReader, binary_header, binary_trailer, write_binary_row
from wal2lake.wire.copytext import CsvFormat, LineReader, TextFormat
from wal2lake.wire.framing import BackendReader, write_frame
from wal2lake.wire.messages import CopyData, CopyOutResponse, Query
from wal2lake.wire.replication import (
    HotStandbyFeedback,
    PrimaryKeepalive,
    read_from_client,
    read_from_server,
    write_hot_standby_feedback,
    write_primary_keepalive,
    write_standby_status_update,
    write_xlog_data,
)

ROW_LIMIT: Final = 1 << 20


class Target(NamedTuple):
    """``run`` raises ProtocolError for bytes that are no message, AssertionError for what it reads but cannot write."""

    name: str
    corpus: Sequence[bytes]
    run: Callable[[bytes], None]


def message(data: bytes) -> None:
    assert write_message(read_message(data)) == data


def server_message(data: bytes) -> None:
    read = read_from_server(data)
    again = write_primary_keepalive(read) if isinstance(read, PrimaryKeepalive) else write_xlog_data(read)
    assert again == data


def client_message(data: bytes) -> None:
    read = read_from_client(data)
    again = (
        write_hot_standby_feedback(read) if isinstance(read, HotStandbyFeedback) else write_standby_status_update(read)
    )
    assert again == data


def backend_frames(data: bytes) -> None:
    reader = BackendReader(limit=ROW_LIMIT)
    reader.feed(data)
    written = b""
    while (read := reader.receive()) is not None:
        written += write_frame(read)
    assert data.startswith(written)


def frontend_frame(data: bytes) -> None:
    read = read_frame("F", data)
    assert read is None or data.startswith(write_frame(read))


def stream(options: PgoutputOptions) -> Callable[[bytes], None]:
    """A session in a stream: payloads one after another, each behind its length."""

    def run(data: bytes) -> None:
        reader, writer = PgoutputSession(options), PgoutputSession(options)
        for payload in _unpack(data):
            received = reader.receive(payload)
            assert writer.send(received.message, received.xid) == payload

    return run


def decoding(options: PgoutputOptions, plugin: str) -> Callable[[bytes], None]:
    """The same through the ReorderBuffer and an output plugin, which may fail over what it is given (no such time, a
    zero byte) but by its own error alone."""

    def run(data: bytes) -> None:
        with Decoder(plugin, (), options, _nothing, fixed=True, memory_limit=100) as decoder, suppress(PluginError):
            for at, payload in enumerate(_unpack(data)):
                decoder.receive(LSN(at + 1), payload)

    return run


def _nothing(*piece: object) -> None:
    """What a plugin writes is not looked at."""


def command(data: bytes) -> None:
    read = parse_command(data.decode("latin-1"))
    assert parse_command(read.build()) == read


def publication_names(data: bytes) -> None:
    names = parse_publication_names(data.decode("latin-1"))
    if all(0 < len(name.encode()) <= 63 and "\0" not in name for name in names):
        assert parse_publication_names(quote_publication_names(names)) == names


def binary_rows(data: bytes) -> None:
    reader = BinaryRowReader(ROW_LIMIT)
    rows = reader.feed(data)
    reader.close()
    written = b"".join(map(write_binary_row, rows)) + binary_trailer()
    assert data.endswith(written)
    assert len(data) >= len(binary_header()) + len(written)


def lines(make: Callable[[], RowReader], write: Callable[[Sequence[bytes | None]], bytes]) -> Callable[[bytes], None]:
    """A format of lines: what is read is written and read again, for one value has many forms."""

    def run(data: bytes) -> None:
        rows = make().feed(data)
        assert make().feed(b"".join(map(write, rows))) == rows

    return run


def _pack(payloads: Sequence[bytes]) -> bytes:
    return b"".join(len(payload).to_bytes(2, "big") + payload for payload in payloads)


def _unpack(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 2], "big")
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def _frames(side: str) -> list[bytes]:
    return [frame for _, capture in captures("frames") for sender, frame in capture.frames if sender == side]


def _copied() -> Iterator[tuple[CopyOutResponse, bytes]]:
    """The data of each COPY TO STDOUT with the response that opened it."""
    for _, capture in captures("frames"):
        opened, data = None, b""
        for side, frame in capture.frames if capture.name == "copy" else ():
            read = read_frame(side, frame)
            if isinstance(read, CopyOutResponse):
                opened, data = read, b""
            elif opened and side == "B" and isinstance(read, CopyData):
                data += read.data
            elif opened and data:
                yield opened, data
                opened = None


def _stream_targets(capture: Capture) -> Iterator[Target]:
    options = PgoutputOptions.parse(capture.options.items())
    parts = [_pack(capture.pgoutput[: size + 1]) for size in range(0, len(capture.pgoutput), 5)]
    yield Target(f"session, {capture.name}", parts, stream(options))
    for plugin in ("json", "wal2json", "debezium"):
        yield Target(f"{plugin}, {capture.name}", parts, decoding(options, plugin))


def targets() -> list[Target]:
    """Every decoder of wire and pgoutput, and what output plugins see of them."""
    streams = [capture for _, capture in captures("stream")]
    payloads = [payload for capture in streams for payload in capture.payloads]
    plain = [c for c in streams if c.options["proto_version"] == "1" or c.name in ("prepared", "binary")]
    client = [frame[5:] for frame in _frames("F") if frame[:2] == b"d\0" and frame[5:6] in b"rh"]
    queries = [read for read in (read_frame("F", frame) for frame in _frames("F")) if isinstance(read, Query)]
    rows = list(_copied())
    text = [data for response, data in rows if not response.format]
    newest = {capture.name: capture for capture in streams}
    return [
        Target("pgoutput message", [payload for c in plain for payload in c.pgoutput], message),
        *(target for capture in newest.values() for target in _stream_targets(capture)),
        Target("server message", payloads, server_message),
        Target("client message", client, client_message),
        Target("backend frames", _frames("B"), backend_frames),
        Target("frontend frame", _frames("F"), frontend_frame),
        Target("command", [read.query.encode() for read in queries], command),
        Target("publication names", [c.options["publication_names"].encode() for c in streams], publication_names),
        Target("binary rows", [data for response, data in rows if response.format], binary_rows),
        Target("text rows", text, lines(lambda: LineReader(TextFormat(), ROW_LIMIT), TextFormat().write)),
        Target("csv rows", text, lines(lambda: LineReader(CsvFormat(), ROW_LIMIT), CsvFormat().write)),
    ]
