"""A walsender that says what it is told: messages with LSNs that only grow, inside chunks and outside."""

from __future__ import annotations

from wal2lake.decoding import Decoded, OutputPlugin
from wal2lake.decoding.decoder import Decoder
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    PgoutputMessage,
    Prepare,
    RollbackPrepared,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
)
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession

ONE_PIECE = PgoutputOptions(("p",))
STREAMED = PgoutputOptions(("p",), 2, messages=True, streaming="on")
TWO_PHASE = PgoutputOptions(("p",), 3, messages=True, streaming="on", two_phase=True)


class Walsender:
    """``sent``: (lsn, payload) so far; each message lies 8 bytes behind the last."""

    def __init__(self, options: PgoutputOptions, lsn: int = 0x1000) -> None:
        self.sent: list[tuple[LSN, bytes]] = []
        self.lsn = LSN(lsn)
        self._session = PgoutputSession(options)

    def send(self, *messages: PgoutputMessage, xid: int | None = None) -> None:
        for message in messages:
            self.sent.append((self.lsn, self._session.send(message, xid)))
            self.lsn = LSN(self.lsn + 8)

    def transaction(self, xid: int, *messages: PgoutputMessage) -> None:
        final = LSN(self.lsn + 8 * (len(messages) + 1))
        self.send(Begin(final, 0, xid), *messages, Commit(0, final, LSN(final + 8), 0))

    def chunk(self, xid: int, *messages: PgoutputMessage | tuple[int, PgoutputMessage], first: bool = False) -> None:
        """A chunk of ``xid``; a message may stand with the subtransaction that it belongs to."""
        self.send(StreamStart(xid, first))
        for message in messages:
            if isinstance(message, tuple):
                self.send(message[1], xid=message[0])
            else:
                self.send(message)
        self.send(StreamStop())

    def stream_commit(self, xid: int) -> None:
        self.send(StreamCommit(xid, 0, self.lsn, LSN(self.lsn + 8), 0))

    def prepared(self, xid: int, gid: str, *messages: PgoutputMessage) -> None:
        final = LSN(self.lsn + 8 * (len(messages) + 1))
        end = LSN(final + 8)
        self.send(BeginPrepare(final, end, 0, xid, gid), *messages, Prepare(0, final, end, 0, xid, gid))

    def stream_prepare(self, xid: int, gid: str) -> None:
        self.send(StreamPrepare(0, self.lsn, LSN(self.lsn + 8), 0, xid, gid))

    def commit_prepared(self, xid: int, gid: str) -> None:
        self.send(CommitPrepared(0, self.lsn, LSN(self.lsn + 8), 0, xid, gid))

    def rollback_prepared(self, xid: int, gid: str) -> None:
        self.send(RollbackPrepared(0, self.lsn, LSN(self.lsn + 8), 0, 0, xid, gid))


class Listening:
    """A decoder and what came out of it."""

    def __init__(
        self,
        plugin: OutputPlugin | str,
        options: PgoutputOptions,
        *arguments: tuple[str, str | None],
        memory: int = 1 << 20,
    ) -> None:
        self.pieces: list[Decoded] = []
        self.decoder = Decoder(plugin, arguments, options, self._take, fixed=True, memory_limit=memory)

    def _take(self, lsn: LSN, xid: int, data: str | bytes, last_write: bool) -> None:
        self.pieces.append(Decoded(lsn, xid, data))

    def hear(self, walsender: Walsender) -> list[str]:
        """Take all that was sent; the lines so far."""
        for lsn, payload in walsender.sent:
            self.decoder.receive(lsn, payload)
        walsender.sent.clear()
        return self.lines

    @property
    def lines(self) -> list[str]:
        return [str(piece.data) for piece in self.pieces]
