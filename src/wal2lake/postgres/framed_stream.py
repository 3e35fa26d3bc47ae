"""The stream for who takes everything by columns: read ahead (read_ahead.py), and framed whole buffers at once.

Its bytes are read past libpq where that can be (socket_frames.py); where not, libpq's messages are joined again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wal2lake.columnar.framing import Framed
from wal2lake.errors import ProtocolError
from wal2lake.login import Dsn
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import connect_replication, execute
from wal2lake.postgres.exchange import PGconn
from wal2lake.postgres.read_ahead import Ahead
from wal2lake.postgres.replication import KEEPALIVE_BYTES, Replication, status_interval
from wal2lake.postgres.socket_frames import start_framed_copy
from wal2lake.postgres.waiting import wait
from wal2lake.wire.command_text import quote_identifier
from wal2lake.wire.commands import start_replication_logical
from wal2lake.wire.replication import XLOG_DATA_HEADER


class ReplicationStream(Ahead[Framed]):
    """START_REPLICATION … LOGICAL on a connection of its own, read ahead, as many payloads at a time as a read brings.
    Use it as a context manager.

    ``options`` are the output plugin's besides publication_names; ``start_lsn`` is durable here already.
    ``as_stored``: text comes in the database's own encoding, unchecked. From a database of encoding SQL_ASCII it comes
    so at any time: the server converts nothing, and would only refuse to send what is not UTF-8.
    ``check`` is called with the connection before it streams, and may raise.
    Raises what map_error says, on opening and later from ``receive``.
    """

    def __init__(
        self,
        dsn: Dsn,
        slot: str,
        start_lsn: LSN,
        publication: str,
        options: Mapping[str, str | bool | int],
        *,
        buffer_bytes: int = 64 << 20,
        as_stored: bool = False,
        check: Callable[[PGconn], None] | None = None,
    ) -> None:
        pgconn = connect_replication(dsn, application_name="wal2lake capture")
        try:
            if check is not None:
                check(pgconn)
            self.as_stored = as_stored or pgconn.parameter_status(b"server_encoding") == b"SQL_ASCII"
            if self.as_stored:
                execute(pgconn, "SET client_encoding = 'SQL_ASCII'")
            plugin = {**options, "publication_names": quote_identifier(publication)}
            command = start_replication_logical(slot, start_lsn, plugin)
            interval_s = wait(status_interval(pgconn), pgconn.socket)
            self._frames = wait(start_framed_copy(pgconn, command), pgconn.socket)
        except BaseException:
            pgconn.finish()
            raise
        super().__init__(Replication(self._frames, interval_s, start_lsn), buffer_bytes)

    def _take(self) -> tuple[list[Framed], int, int]:
        pieces, short = self._frames.take_framed()
        sizes = [piece.ends - piece.begins for piece in pieces]
        if any((each <= KEEPALIVE_BYTES).any() for each in sizes):
            raise ProtocolError("The server sent an XLogData message that is too short.")
        if pieces or short:
            self._stream.note(short, pieces[-1].last(XLOG_DATA_HEADER) if pieces else None)
        size = sum(int(each.sum()) for each in sizes) + sum(map(len, short))
        return pieces, sum(map(len, pieces)), size
