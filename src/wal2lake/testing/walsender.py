"""A walsender made up by a test: libpq connects to it, and it behaves as well or as badly as the test wants.

Built from ``wire``'s server side alone: FrontendReader reads what the client says, CopyMachine knows what counts of it,
write_frame says the rest. What the test's own function raises is raised when the server is left; a client that goes
away ends its session, which is no failure.

Source: PostgreSQL documentation, "Message Flow" (Start-up, Simple Query, COPY Operations), "Streaming Replication
Protocol".
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

from wal2lake.lsn import LSN
from wal2lake.wire.copy import Action, CopyMachine, CopyState, Side
from wal2lake.wire.framing import FrontendReader, write_frame
from wal2lake.wire.messages import (
    AuthenticationOk,
    BackendKeyData,
    BackendMessage,
    CancelRequest,
    CommandComplete,
    CopyBothResponse,
    CopyData,
    CopyDone,
    DataRow,
    ErrorField,
    ErrorResponse,
    FrontendMessage,
    GSSENCRequest,
    NoticeResponse,
    ParameterStatus,
    Query,
    ReadyForQuery,
    RowDescription,
    RowDescriptionField,
    SSLRequest,
    StartupMessage,
    Terminate,
)
from wal2lake.wire.replication import (
    HotStandbyFeedback,
    PrimaryKeepalive,
    StandbyStatusUpdate,
    XLogData,
    read_from_client,
    write_primary_keepalive,
    write_xlog_data,
)

TEXT_OID = 25
Rows = Sequence[Sequence[str | None]]


def _every_publication(query: str) -> Rows:
    """Whichever are asked for are there."""
    return [(name,) for name in re.findall(r"'([^']*)'", query.partition(" IN ")[2])]


ANSWERS: Mapping[str, Rows | Callable[[str], Rows]] = {
    "IDENTIFY_SYSTEM": [("7000000000000000001", "1", "0/2000000", "postgres")],
    "wal_sender_timeout": [("1min",)],
    "data_directory_mode": [("0700",)],
    "pg_publication WHERE": _every_publication,
}


class Session:
    """One client's connection, seen from the server. Every method blocks; what a gone client makes of it ends it.

    ``parameters`` are the StartupMessage's; ``query`` is the command that is being answered.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.parameters: dict[str, str] = {}
        self.query = ""
        self._connection = connection
        self._reader = FrontendReader()
        self._copy = CopyMachine()

    def send(self, *messages: BackendMessage) -> None:
        for message in messages:
            self._copy.step(Side.BACKEND, message)
        self._connection.sendall(b"".join(map(write_frame, messages)))

    def receive(self) -> FrontendMessage:
        """The client's next message that counts; raises ConnectionError when there will be none."""
        while True:
            while (message := self._reader.receive()) is None:
                data = self._connection.recv(1 << 16)
                if not data:
                    raise ConnectionError("The client went away.")
                self._reader.feed(data)
            if isinstance(message, Terminate):
                raise ConnectionError("The client said goodbye.")
            if self._copy.step(Side.FRONTEND, message) is Action.TAKE:
                return message

    def start(self, server_version: str) -> None:
        """The start-up: no TLS, nobody asked for a password, then ready for queries."""
        while not isinstance(message := self.receive(), StartupMessage):
            if isinstance(message, CancelRequest):
                raise ConnectionError("A cancel request has no session.")
            assert isinstance(message, SSLRequest | GSSENCRequest)
            self._connection.sendall(b"N")
        self.parameters = {parameter.name: parameter.value for parameter in message.parameters}
        told = {"server_version": server_version, "client_encoding": "UTF8", "standard_conforming_strings": "on"}
        self.send(AuthenticationOk(), *(ParameterStatus(name, value) for name, value in told.items()))
        self.send(BackendKeyData(1, b"\0\0\0\1"), ReadyForQuery("I"))

    def queries(self) -> Iterator[str]:
        """Each command of the client, to be answered before the next."""
        while True:
            message = self.receive()
            assert isinstance(message, Query), message
            self.query = message.query
            yield message.query

    def answer(self, rows: Rows = (), columns: Sequence[str] = (), command: str = "SELECT") -> None:
        """The whole answer to a command: rows of text, if there are any, and ReadyForQuery."""
        self.result(rows, columns, command)
        self.send(ReadyForQuery("I"))

    def result(self, rows: Rows = (), columns: Sequence[str] = (), command: str = "SELECT") -> None:
        """One of several results that a command has."""
        if rows:
            names = columns or [f"column{i}" for i in range(len(rows[0]))]
            self.send(RowDescription(tuple(RowDescriptionField(n, 0, 0, TEXT_OID, -1, -1, 0) for n in names)))
            self.send(*(DataRow(tuple(None if v is None else v.encode() for v in row)) for row in rows))
        self.send(CommandComplete(command))

    def fail(self, sqlstate: str, message: str, severity: str = "ERROR") -> None:
        """An ErrorResponse; unless it is FATAL, ReadyForQuery after it."""
        self.send(ErrorResponse(_fields(severity, sqlstate, message)))
        if severity == "ERROR":
            self.send(ReadyForQuery("I"))

    def notice(self, sqlstate: str, message: str, severity: str = "WARNING") -> None:
        self.send(NoticeResponse(_fields(severity, sqlstate, message)))

    # -- in COPY BOTH

    @property
    def copying(self) -> bool:
        return self._copy.state is not CopyState.NONE

    def begin_copy(self) -> None:
        """Answer START_REPLICATION by a stream."""
        self.send(CopyBothResponse(0, ()))

    def xlog_data(self, lsn: int, payload: bytes) -> None:
        """One message of the output plugin, or one piece of WAL."""
        self.raw(write_xlog_data(XLogData(LSN(lsn), LSN(lsn), 0, payload)))

    def keepalive(self, wal_end: int, *, reply_requested: bool = False) -> None:
        self.raw(write_primary_keepalive(PrimaryKeepalive(LSN(wal_end), 0, reply_requested)))

    def raw(self, *payloads: bytes) -> None:
        """CopyData as it is, right or wrong."""
        self.send(*map(CopyData, payloads))

    def octets(self, data: bytes) -> None:
        """Bytes that need be no message."""
        self._connection.sendall(data)

    def status(self) -> StandbyStatusUpdate:
        """The next status update of the client; raises ConnectionError when it ends the stream instead."""
        while isinstance(message := self.receive(), CopyData):
            update = read_from_client(message.data)
            if not isinstance(update, HotStandbyFeedback):
                return update
        raise ConnectionError(f"The client sent {type(message).__name__}.")

    def end_copy(self, rows: Rows = ()) -> None:
        """Our CopyDone, the client's, and the answer after the copy."""
        self.send(CopyDone())
        while not isinstance(self.receive(), CopyDone):
            pass
        self.answer(rows, command="COPY 0")

    def await_copy_done(self) -> list[StandbyStatusUpdate]:
        """What the client says until it ends the stream; then end it too."""
        updates: list[StandbyStatusUpdate] = []
        while isinstance(message := self.receive(), CopyData):
            update = read_from_client(message.data)
            if isinstance(update, StandbyStatusUpdate):
                updates.append(update)
        assert isinstance(message, CopyDone), message
        self.send(CopyDone())
        self.answer(command="COPY 0")
        return updates

    def cut(self) -> None:
        """The connection is gone, without a word: the kernel resets it."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()
        raise ConnectionError("The connection was cut.")


class FakeWalsender:
    """A context manager: listens on loopback, one thread per connection.

    START_REPLICATION is answered by ``stream``, called after ``begin_copy``; a copy that it leaves open is closed with
    the connection. Other commands get the rows of the first of ``answers`` whose pattern (a regular expression) is
    found in them, or what a function makes of the command, else none; ANSWERS are always among them. ``commands`` are
    answered by functions of the test, from the first word of the command to the ReadyForQuery.
    ``queries`` are all commands of all sessions, in order.
    """

    def __init__(
        self,
        stream: Callable[[Session], None],
        answers: Mapping[str, Rows | Callable[[str], Rows]] | None = None,
        *,
        commands: Mapping[str, Callable[[Session], None]] | None = None,
        server_version: str = "18.0",
    ) -> None:
        self._commands = commands or {}
        self.queries: list[str] = []
        self._stream = stream
        self._answers = [*(answers or {}).items(), *ANSWERS.items()]
        self._version = server_version
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._failures: list[Exception] = []

    @property
    def dsn(self) -> str:
        port = self._listener.getsockname()[1]
        return f"host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable gssencmode=disable"

    def __enter__(self) -> Self:
        self._run(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, *failure: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._connections):
            end.close()
        if self._failures and kind is None:
            raise self._failures[0]

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name="wal2lake-fake-walsender", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as PostgreSQL does
                self._connections.append(connection)
                self._run(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                session = Session(connection)
                session.start(self._version)
                for query in session.queries():
                    self.queries.append(query)
                    self._answer(session, query)
        except OSError:
            pass  # the client went, or the test cut it
        except Exception as error:  # noqa: BLE001 - nothing is lost: it is raised when the server is left
            self._failures.append(error)

    def _answer(self, session: Session, query: str) -> None:
        if query.startswith("START_REPLICATION"):
            session.begin_copy()
            self._stream(session)
            if session.copying:
                raise ConnectionError("The stream was left in the midst.")
        elif (word := query.partition(" ")[0]) in self._commands:
            self._commands[word](session)
        else:
            found = (rows for pattern, rows in self._answers if re.search(pattern, query))
            rows = next(found, ())
            session.answer(rows(query) if callable(rows) else rows)


def _fields(severity: str, sqlstate: str, message: str) -> tuple[ErrorField, ...]:
    pairs = (("S", severity), ("V", severity), ("C", sqlstate), ("M", message))
    return tuple(ErrorField(kind, value) for kind, value in pairs)
