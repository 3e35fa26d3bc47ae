"""BASE_BACKUP's reply, in both formats, as one sequence of archives.

Before PostgreSQL 15 each tablespace's tar comes as a COPY OUT of its own, the manifest as one more, and the tars lack
their two closing blocks of zeros. Since 15 all comes in one COPY OUT of typed CopyData: 'n' new archive, 'm' manifest,
'd' data, 'p' progress. Here both are: for each archive its name and its bytes, the manifest last.

Source: PostgreSQL documentation, "Streaming Replication Protocol", BASE_BACKUP; src/bin/pg_basebackup/pg_basebackup.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from psycopg import pq

from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import next_result, start
from wal2lake.postgres.exchange import PGconn, reading_answer, text_rows
from wal2lake.postgres.frames import copy_out
from wal2lake.wire.base_backup import BaseBackup

MANIFEST = "backup_manifest"
_TYPED_COPY_DATA = 150000
_TAR_END = bytes(1024)


@dataclass(frozen=True, slots=True)
class Tablespace:
    """``oid`` and ``location`` None: the data directory itself. ``size_kb`` only with PROGRESS, an estimate."""

    oid: int | None
    location: str | None
    size_kb: int | None

    @property
    def archive(self) -> str:
        """The archive's name, as the server has it since 15."""
        return "base.tar" if self.oid is None else f"{self.oid}.tar"


class BackupStream:
    """A running BASE_BACKUP; ``archives`` must be read to the end before ``end_lsn`` is known."""

    def __init__(self, pgconn: PGconn, command: BaseBackup, *, while_waiting: Callable[[], None] | None = None) -> None:
        """Start it: the server makes a checkpoint first, and ``while_waiting`` is called about once a second until it
        is made. Raises what map_error says."""
        self._pgconn = pgconn
        self._typed = pgconn.server_version >= _TYPED_COPY_DATA
        self._manifest = command.manifest != "no"
        self._queue: list[bytes] = []
        self._name: str | None = None
        started = start(pgconn, command.build(pgconn.server_version), while_waiting=while_waiting)
        with reading_answer("BASE_BACKUP"):
            first = text_rows(started)[0]
            self.start_lsn, self.timeline = LSN.parse(str(first[0])), int(str(first[1]))
        self.end_lsn: LSN | None = None
        listed = self._result(pq.ExecStatus.TUPLES_OK)
        with reading_answer("BASE_BACKUP"):
            self.tablespaces = [_tablespace(*row) for row in text_rows(listed)]

    def archives(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Each archive's name and its pieces, to be read before the next; ``backup_manifest``, JSON, comes last."""
        yield from self._archives_typed() if self._typed else self._archives_untyped()
        ended = self._result(pq.ExecStatus.TUPLES_OK)
        with reading_answer("BASE_BACKUP"):
            self.end_lsn = LSN.parse(str(text_rows(ended)[0][0]))
        while next_result(self._pgconn) is not None:
            pass

    def _archives_untyped(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        for tablespace in self.tablespaces:
            self._result(pq.ExecStatus.COPY_OUT)
            yield tablespace.archive, chain(self._messages(), [_TAR_END])
        if self._manifest:
            self._result(pq.ExecStatus.COPY_OUT)
            yield MANIFEST, self._messages()

    def _archives_typed(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        self._result(pq.ExecStatus.COPY_OUT)
        messages = self._messages()
        any(map(self._announces, messages))  # up to the first archive's name: data before it is refused
        while self._name is not None:
            name, self._name = self._name, None
            yield name, self._pieces(messages)

    def _pieces(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        for message in messages:
            if message[:1] == b"d":
                yield message[1:]
            elif self._announces(message):
                return

    def _announces(self, message: bytes) -> bool:
        """Take a message that is no data; True when a new archive begins with it."""
        match message[:1]:
            case b"n":
                self._name = message[1:].split(b"\0", 1)[0].decode()
            case b"m":
                self._name = MANIFEST
            case b"p":
                return False
            case _:
                raise ProtocolError("BASE_BACKUP sent a CopyData of unknown type.", offset=0)
        return True

    def _messages(self) -> Iterator[bytes]:
        """The CopyData payloads of the running COPY OUT."""
        return chain.from_iterable(copy_out(self._pgconn))

    def _result(self, expected: pq.ExecStatus) -> pq.abc.PGresult:
        """The next result, which must be of this kind; a COMMAND_OK between two copies is passed over."""
        result = next_result(self._pgconn)
        if result is not None and result.status == pq.ExecStatus.COMMAND_OK != expected:
            result = next_result(self._pgconn)
        if result is None or result.status != expected:
            raise ProtocolError("BASE_BACKUP's reply is not as documented.")
        return result


def _tablespace(oid: str | None, location: str | None, size: str | None) -> Tablespace:
    return Tablespace(None if oid is None else int(oid), location, None if size is None else int(size))
