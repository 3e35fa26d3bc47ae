"""A client of our own codec over a socket, which keeps every frame that passes; a proxy, which keeps other clients'."""

from __future__ import annotations

import select
import socket
import threading
import time
from types import TracebackType
from typing import Self

from wal2lake.wire.framing import BackendReader, write_frame
from wal2lake.wire.messages import (
    PROTOCOL_3_0,
    BackendMessage,
    CopyData,
    DataRow,
    ErrorResponse,
    FrontendMessage,
    Query,
    ReadyForQuery,
    StartupMessage,
    StartupParameter,
    Terminate,
)

Frame = tuple[str, bytes]


class Splitter:
    """Cuts one direction into frames by their lengths alone, independent of the codec that the vectors test."""

    def __init__(self, side: str, started: bool) -> None:
        self.side = side
        self.started = started
        self._buffer = b""

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer += data
        frames = []
        while len(self._buffer) >= (head := 5 if self.started else 4):
            end = head - 4 + int.from_bytes(self._buffer[head - 4 : head], "big")
            if len(self._buffer) < end:
                break
            frame, self._buffer = self._buffer[:end], self._buffer[end:]
            self.started = self.started or frame[4:6] == b"\0\3"
            frames.append((self.side, frame))
        return frames


class RawClient:
    """One connection, of loopback or of the Unix socket in ``folder``; ``frames`` holds all that passed."""

    def __init__(
        self, port: int, protocol: int = PROTOCOL_3_0, *, folder: str | None = None, **parameters: str
    ) -> None:
        if folder is None:
            self._socket = socket.create_connection(("127.0.0.1", port))
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(f"{folder}/.s.PGSQL.{port}")
        self._reader = BackendReader()
        self._splitter = Splitter("B", started=True)
        self.frames: list[Frame] = []
        given = {"user": "postgres", "database": "postgres", "client_encoding": "UTF8", **parameters}
        self.send(StartupMessage(protocol, tuple(StartupParameter(*pair) for pair in given.items())))
        self.until_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.send(Terminate())
        self.close()

    def close(self) -> None:
        """Without a farewell."""
        self._socket.close()

    def send(self, *messages: FrontendMessage) -> None:
        """In one piece."""
        frames = [write_frame(message) for message in messages]
        self.frames += [("F", frame) for frame in frames]
        self._socket.sendall(b"".join(frames))

    def receive(self, timeout: float = 30.0) -> BackendMessage | None:
        """The next message, or None when none came in time; raise ConnectionError when the server has gone."""
        deadline = time.monotonic() + timeout
        while (message := self._reader.receive()) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._socket], [], [], left)[0]:
                return None
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("The server closed the connection.")
            self.frames += self._splitter.feed(data)
            self._reader.feed(data)
        return message

    def until(self, *kinds: type[BackendMessage]) -> list[BackendMessage]:
        """Everything up to the first message of one of the kinds."""
        messages: list[BackendMessage] = []
        while not messages or not isinstance(messages[-1], kinds):
            message = self.receive()
            if message is None:
                raise TimeoutError(f"None of {kinds} came; the last was {messages[-1:]}.")
            messages.append(message)
        return messages

    def until_ready(self, *, may_fail: bool = False) -> list[BackendMessage]:
        messages = self.until(ReadyForQuery)
        for message in messages:
            if isinstance(message, ErrorResponse) and not may_fail:
                raise RuntimeError(f"The server says: {message.field('M')}")
        return messages

    def query(self, sql: str, *, may_fail: bool = False) -> list[BackendMessage]:
        self.send(Query(sql))
        return self.until_ready(may_fail=may_fail)

    def scalar(self, sql: str) -> str:
        """The first value of the first row."""
        row = next(message for message in self.query(sql) if isinstance(message, DataRow))
        return (row.values[0] or b"").decode()

    def payload(self, timeout: float) -> bytes | None:
        """The next CopyData's payload of a stream."""
        message = self.receive(timeout)
        if isinstance(message, ErrorResponse):
            raise RuntimeError(f"The server says: {message.field('M')}")
        return message.data if isinstance(message, CopyData) else None


class Proxy:
    """Listens on ``port``, passes each connection on to ``target``, and keeps the frames of both directions."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.frames: list[Frame] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._target))
        ways = {
            client: (server, Splitter("F", started=False)),
            server: (client, Splitter("B", started=True)),
        }
        while True:
            for source in select.select(list(ways), [], [])[0]:
                other, splitter = ways[source]
                data = source.recv(1 << 16)
                if not data:
                    client.close()
                    server.close()
                    return
                self.frames += splitter.feed(data)
                other.sendall(data)
