"""pg_receivewal's job: the WAL as segment files, each byte-identical with the server's own.

On a timeline's end its last segment stays ``.partial``, and streaming goes on at the begin of that segment on the
next timeline, whose history file is fetched first. A restart goes on after the last complete segment found.

A flush position moves the slot, and makes its sender a candidate for synchronous standby. So it is sent with a slot or
``synchronous`` only, else 0/0; commits would wait for a whole segment. It says what is synced: completed segments, with
``synchronous`` all that has come, and all that has come also when the server asks for a reply: a server that stops
asks until flush (without one: write) has reached its last byte, and does not end before.

Source: PostgreSQL documentation, "pg_receivewal"; src/bin/pg_basebackup/receivelog.c, pg_receivewal.c.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wal2lake.errors import LogMismatchError, ProtocolError, Wal2LakeError
from wal2lake.files import put, writing
from wal2lake.login import Dsn
from wal2lake.lsn import LSN
from wal2lake.postgres.catalog import SystemIdentity, identify
from wal2lake.postgres.connection import replication_connection
from wal2lake.postgres.exchange import PGconn, reading_answer
from wal2lake.postgres.physical.segments import WalPosition, WalSegment, resume_position
from wal2lake.postgres.reconnect import OnWait, Reconnect
from wal2lake.postgres.replication import Replication, start_physical, stopped_before
from wal2lake.postgres.slots import read_slot
from wal2lake.postgres.system import data_directory_permissions, timeline_history, wal_segment_size
from wal2lake.postgres.waiting import wait
from wal2lake.retry import Backoff
from wal2lake.wire.replication import PrimaryKeepalive, XLogData, read_from_server

_READ_SLOT_SINCE = 150000
_TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class ReceiveWalOptions:
    """``slot``: a physical slot that keeps the WAL we need. ``until_lsn``: end once all before it is written.
    ``synchronous``: sync and acknowledge whatever has come at once, as a synchronous standby would; the server may
    take us for one. Intervals in seconds, as for recv."""

    slot: str | None = None
    until_lsn: LSN | None = None
    synchronous: bool = False
    status_interval_s: float = 10.0
    reconnect_s: float | None = 5.0


def receive_wal(
    dsn: Dsn,
    folder: Path,
    options: ReceiveWalOptions | None = None,
    stop: threading.Event | None = None,
    *,
    on_segment: Callable[[str], None] | None = None,
    on_timeline: Callable[[WalPosition], None] | None = None,
    on_wait: OnWait | None = None,
) -> WalPosition | None:
    """Stream WAL into ``folder`` until ``until_lsn`` or ``stop``; return the position up to which it is durable, None
    when the folder holds none.

    ``on_segment`` hears each completed segment's name; ``on_timeline`` which timeline begins and where; ``on_wait`` why
    the connection was lost and in how many seconds it is tried again. Raises LogMismatchError when the cluster is
    another one or behind the folder, else what map_error says; ConnectError only while nothing has been streamed or
    when ``reconnect_s`` is None; InterruptedByUser when ``stop`` came before ``until_lsn`` was reached.
    """
    receiver = _Receiver(folder, options or ReceiveWalOptions(), stop or threading.Event(), on_wait)
    receiver.on_segment = on_segment or receiver.on_segment
    receiver.on_timeline = on_timeline or receiver.on_timeline
    while not receiver.done:
        receiver.run(dsn)
    receiver.require_reached()
    return receiver.durable


class _Receiver:
    def __init__(self, folder: Path, options: ReceiveWalOptions, stop: threading.Event, on_wait: OnWait | None) -> None:
        self.on_segment: Callable[[str], None] = lambda name: None
        self.on_timeline: Callable[[WalPosition], None] = lambda position: None
        backoff = None if options.reconnect_s is None else Backoff(options.reconnect_s)
        self._reconnect = Reconnect(backoff, on_wait)
        self.timeline = 0
        self.written = self.flushed = LSN(0)
        self._folder = folder
        self._options = options
        self._stop = stop
        self._segment: WalSegment | None = None
        self._size = self._mode = 0
        self._system_id: str | None = None
        self._holds_wal = False

    @property
    def done(self) -> bool:
        return self._stop.is_set() or self._reached

    @property
    def _reached(self) -> bool:
        until = self._options.until_lsn
        return until is not None and self.written >= until

    @property
    def durable(self) -> WalPosition | None:
        return WalPosition(self.timeline, self.flushed) if self._holds_wal else None

    def require_reached(self) -> None:
        """Raise InterruptedByUser when the WAL ends before it should: nobody may take it for whole."""
        until = self._options.until_lsn
        if until is not None and not self._reached:
            raise stopped_before(until)

    def run(self, dsn: Dsn) -> None:
        """One connection's life; returns when there should be another, or none any more."""
        try:
            with replication_connection(dsn, application_name="wal2lake receivewal", physical=True) as pgconn:
                self._begin(pgconn)
                while not self.done:
                    self._stream_timeline(pgconn)
        except Wal2LakeError as error:
            if not self.done or not self._reconnect.can_retry(error):
                self._stop.wait(self._reconnect.pause_after(error))
        finally:
            self._close_segment()

    def _begin(self, pgconn: PGconn) -> None:
        """Find the first byte to ask for: after what the folder has, else where the slot stands, else now."""
        identity = identify(pgconn)
        if self._system_id not in (None, identity.system_id):
            raise LogMismatchError("The server is another cluster than before.", hint="Check host and port in the DSN.")
        self._system_id, self._size = identity.system_id, wal_segment_size(pgconn)
        self._mode = data_directory_permissions(pgconn).file
        found = resume_position(self._folder, self._size)
        self._holds_wal = found is not None
        position = found or self._slot_position(pgconn, identity)
        if position.timeline > identity.timeline:
            raise LogMismatchError(
                f"The folder holds timeline {position.timeline}; the server is on {identity.timeline}.",
                hint="Connect to the server that was promoted last.",
            )
        self.timeline = position.timeline
        self.written = self.flushed = LSN(position.lsn - position.lsn % self._size)

    def _slot_position(self, pgconn: PGconn, identity: SystemIdentity) -> WalPosition:
        slot = self._options.slot
        if slot is not None and pgconn.server_version >= _READ_SLOT_SINCE:
            state = read_slot(pgconn, slot)
            if state is not None and state.restart_lsn is not None:
                return WalPosition(state.restart_tli or identity.timeline, state.restart_lsn)
        return WalPosition(identity.timeline, identity.wal_lsn)

    def _stream_timeline(self, pgconn: PGconn) -> None:
        """Stream to the end of the present timeline, or of the work; then stand at the begin of the next one."""
        self._fetch_history(pgconn)
        interval_s = self._options.status_interval_s
        start = start_physical(pgconn, self.written, self._options.slot, self.timeline, interval_s=interval_s)
        stream = wait(start, pgconn.socket)
        self._reconnect.opened()
        try:
            self._pump(stream)
        finally:
            self._close_segment()
        self._report(stream)
        rows = wait(stream.finish(), pgconn.socket)
        if self.done or not rows:
            return
        with reading_answer("START_REPLICATION"):
            next_timeline, switch_point = rows[0]
            timeline, lsn = int(str(next_timeline)), LSN.parse(str(switch_point))
        if timeline <= self.timeline or lsn > self.written:
            ended = f"Timeline {self.timeline} ended at {self.written}"
            raise ProtocolError(f"{ended}, and the server says that timeline {timeline} follows it at {lsn}.")
        self.timeline = timeline
        self.on_timeline(WalPosition(self.timeline, lsn))
        self.written = self.flushed = LSN(lsn - lsn % self._size)

    def _fetch_history(self, pgconn: PGconn) -> None:
        path = self._folder / f"{self.timeline:08X}.history"
        if self.timeline > 1 and not path.exists():
            with writing(path):
                put(path, timeline_history(pgconn, self.timeline).content)
                path.chmod(self._mode)

    def _pump(self, stream: Replication) -> None:
        while not self.done and not stream.ended:
            for payload in wait(stream.receive(_TICK_S), stream.frames.fileno()):
                message = read_from_server(payload)
                if not isinstance(message, PrimaryKeepalive):
                    self._write(message)
            asked = stream.reply_requested and self._reports_flush
            synced = (self._options.synchronous or asked) and self._sync()
            self._report(stream)
            if synced and not stream.ended:
                wait(stream.send_status(), stream.frames.fileno())

    @property
    def _reports_flush(self) -> bool:
        return self._options.slot is not None or self._options.synchronous

    def _sync(self) -> bool:
        """Make what was written durable; False when it was."""
        if self._segment is None or self.flushed == self.written:
            return False
        self._segment.sync()
        self.flushed = self.written
        return True

    def _write(self, message: XLogData) -> None:
        """WAL may cross a segment's end in one message."""
        if message.start_lsn != self.written:
            raise ProtocolError("The WAL that came does not follow the WAL before it.", lsn=message.start_lsn)
        rest = memoryview(message.payload)
        while rest:
            if self._segment is None:
                self._holds_wal = True
                self._segment = WalSegment(self._folder, self.timeline, self.written, self._size, self._mode)
            part = rest[: self._segment.end - self.written]
            self._segment.write(self.written, part)
            self.written = LSN(self.written + len(part))
            rest = rest[len(part) :]
            if self.written == self._segment.end:
                self._close_segment()

    def _close_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            complete = self.written == segment.end
            segment.close(complete=complete)
            self.flushed = self.written
            if complete:
                self.on_segment(segment.name)

    def _report(self, stream: Replication) -> None:
        """What the next status says."""
        stream.written = self.written
        stream.flushed = self.flushed if self._reports_flush else LSN(0)
