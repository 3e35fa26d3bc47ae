"""The one replication stream: frames in, positions out, as exchanges (waiting.py) for whatever drives them.

Three positions must never be mixed up, and this is the file that could.

*Written* is what has arrived here. The server uses it for statistics, and to know at its shutdown who has all.

*Flushed* is the only position that moves the slot: below it the server may forget, for ever. It is set by
``acknowledge`` and by nothing else, never derived from what arrived. After a transaction it is ``Commit.end_lsn``: the
server sends a transaction again exactly when its commit record starts at or above the flushed position
(SnapBuildXactNeedsSkip in snapbuild.c), so an end LSN skips that transaction and no other.

*A keepalive's WAL end* is the server's read position: every commit record below it has been decoded, and what the
publication wanted of it was sent before the keepalive on the same connection. So once all data that came before it
is durable the position itself may be acknowledged, although no transaction ended there; on a server whose published
tables are idle this is the only thing that lets the slot advance. A keepalive can come inside a large transaction;
then its WAL end lies at or before that transaction's commit record, and the rule still holds.

The server ends a connection that is silent for wal_sender_timeout. It asks in good time, by a keepalive with a reply
request, but the request waits behind the data: a client that stops reading never sees it. So a status is due when it
was asked for and besides by the clock, and whoever may be slow reads in a thread (read_ahead.py). A question is
answered by the ``receive`` after the one that returned it, so that what was acknowledged in between is in the answer: a
server that stops asks until all it has sent is, and does not end before.

Resuming: START_REPLICATION below confirmed_flush_lsn begins at confirmed_flush_lsn without a word (since 14), so the
position is compared before and after the start by the caller, who knows what it has.

Source: PostgreSQL documentation, "Streaming Replication Protocol"; src/backend/replication/walsender.c.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from typing import Final

from psycopg.waiting import Wait

from wal2lake.epoch import EPOCH_S
from wal2lake.errors import ConnectError, InterruptedByUser
from wal2lake.lsn import LSN
from wal2lake.postgres.exchange import PGconn, Row, reading_answer, rows
from wal2lake.postgres.frames import Frames, start_copy
from wal2lake.postgres.waiting import Exchange, Waiting
from wal2lake.wire.commands import StartPhysicalReplication
from wal2lake.wire.replication import (
    XLOG_DATA_HEADER,
    HotStandbyFeedback,
    StandbyStatusUpdate,
    read_primary_keepalive,
    write_hot_standby_feedback,
    write_standby_status_update,
)

STATUS_INTERVAL_S: Final = 10.0
KEEPALIVE_BYTES: Final = 18  # no XLogData is as short
FAREWELL_S: Final = 2.0  # for the server to take the last status
_FINISH_S = 10.0
_XID: Final = 0xFFFFFFFF
_UNITS: Final = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def now_timestamptz() -> int:
    """Now, as the protocol counts: µs since 2000-01-01 00:00 UTC."""
    return int((time.time() - EPOCH_S) * 1_000_000)


def stopped_before(until: LSN) -> InterruptedByUser:
    """The error for a stream that was told to stop before it had reached what it was to reach."""
    return InterruptedByUser(f"Stopped before {until} was reached.", hint="Run it again: it goes on where it stopped.")


class Replication:
    """One START_REPLICATION's life over ``frames``: *written* follows what arrives, *flushed* what is acknowledged.

    A status with them goes out every ``interval_s`` (0: never by the clock), when the server asks, and when
    ``send_status`` is called. ``flushed`` is 0/0, which moves nothing, or what the caller has durably from before.
    ``received_lsn``: where the last message began, or, ``physical``, the last WAL ended. ``wal_end``: where the
    server's WAL was known to end. What was acknowledged by a logical stream counts as applied too.
    """

    def __init__(
        self,
        frames: Frames,
        interval_s: float = STATUS_INTERVAL_S,
        flushed: LSN = LSN(0),  # noqa: B008 - immutable
        *,
        physical: bool = False,
    ) -> None:
        self.frames = frames
        self.physical = physical
        self.flushed = self.reported_lsn = flushed
        self.applied = LSN(0) if physical else flushed
        self.received_lsn = self.written = self.wal_end = flushed
        self.keepalive_lsn = LSN(0)
        self.reply_requested = False
        self._feedback: deque[tuple[int, int]] = deque(maxlen=1)  # what the server is to hear, and has not yet
        self._interval_s = interval_s
        self._next_status = self._after_interval()

    @property
    def ended(self) -> bool:
        """The server has ended the stream; ``finish`` tells whether by an error."""
        return self.frames.ended

    @property
    def next_status(self) -> float | None:
        """When a status is due by the clock (time.monotonic()); None: never."""
        return None if self._next_status == math.inf else self._next_status

    def take(self) -> list[bytes]:
        """What has come and is whole, without waiting; keepalives and positions are noted."""
        payloads = self.frames.take()
        if not payloads:
            return payloads
        short = min(map(len, payloads)) <= KEEPALIVE_BYTES
        keepalives = [payload for payload in payloads if len(payload) <= KEEPALIVE_BYTES] if short else []
        last = next((payload for payload in reversed(payloads) if len(payload) > KEEPALIVE_BYTES), None)
        self.note(keepalives, last)
        return payloads

    def note(self, keepalives: Iterable[bytes], last: bytes | None) -> None:
        """Note what came: keepalives, and the last other payload, of which a logical stream needs the header alone."""
        for payload in keepalives:
            keepalive = read_primary_keepalive(payload)
            self.keepalive_lsn = max(self.keepalive_lsn, LSN(keepalive.wal_end))
            self.reply_requested |= keepalive.reply_requested
        if last is not None:
            length = len(last) - XLOG_DATA_HEADER if self.physical else 0
            self.received_lsn = max(self.received_lsn, LSN(int.from_bytes(last[1:9], "big") + length))
        self.written = max(self.written, self.received_lsn, self.keepalive_lsn)
        self.wal_end = max(self.wal_end, self.written)

    def acknowledge(self, flushed: LSN) -> None:
        """Everything below ``flushed`` is durable: the server hears of it with the next status. Never goes back."""
        if flushed > self.flushed:
            self.flushed = flushed
            self.applied = self.applied if self.physical else flushed
            self.written = max(self.written, flushed)

    def receive(self, timeout_s: float) -> Exchange[list[bytes]]:
        """The CopyData payloads that have come, keepalives included, in order; [] after ``timeout_s`` or at the end.

        Sends first what status is due.
        """
        deadline = time.monotonic() + timeout_s
        yield from self.send_due_status()
        payloads = self.take()
        while not payloads and not self.ended:
            yield Waiting(Wait.R, min(deadline, self._next_status))
            self.frames.fill()
            payloads = self.take()
            if time.monotonic() >= deadline:
                break
            if not payloads:
                yield from self.send_due_status()
        return payloads

    def feed_back(self, xmin: int, catalog_xmin: int = 0) -> None:
        """With the next status, which is due now, tell a physical walsender the oldest transactions that are still
        needed: full transaction ids, the epoch in the upper 32 bits; 0: none, which ends it.

        VACUUM then keeps what they may see: with a slot, which remembers it, until it is told otherwise; else as long
        as the connection lasts. The server ignores what lies in its future, or further behind than ids go.
        Source: ProcessStandbyHSFeedbackMessage in walsender.c."""
        assert self.physical  # a logical slot's own xmin would be overwritten
        self._feedback.append((xmin, catalog_xmin))

    def status_due(self) -> bool:
        """Asked for, or time, or there is something to say."""
        due = self.reply_requested or bool(self._feedback) or time.monotonic() >= self._next_status
        return due and not self.ended

    def send_due_status(self) -> Exchange[None]:
        """Send a status if one is due."""
        if self.status_due():
            yield from self.send_status()

    def send_status(self) -> Exchange[None]:
        """Tell the server now how far we are."""
        flushed = self.flushed
        update = StandbyStatusUpdate(self.written, flushed, self.applied, now_timestamptz(), False)
        self.reply_requested, self._next_status = False, self._after_interval()
        yield from self.frames.put(write_standby_status_update(update))
        self.reported_lsn = flushed
        while self._feedback:
            xmin, catalog_xmin = self._feedback.pop()
            parts = (xmin & _XID, xmin >> 32, catalog_xmin & _XID, catalog_xmin >> 32)
            yield from self.frames.put(write_hot_standby_feedback(HotStandbyFeedback(now_timestamptz(), *parts)))

    def finish(self, timeout_s: float = _FINISH_S) -> Exchange[list[Row]]:
        """A last status, our CopyDone; discard what still comes; the rows of the result after the copy.

        Without the server's answer to CopyDone the last status may be lost with the socket. Raises what map_error says
        about an error that ended the copy, ConnectError when no end comes in ``timeout_s``.
        """
        if not self.ended:
            deadline = time.monotonic() + timeout_s
            yield from self.send_status()
            yield from self.frames.put_end()
            while True:
                self.frames.take()  # what still comes is discarded
                if self.ended:
                    break
                if not (yield Waiting(Wait.R, deadline)) and time.monotonic() >= deadline:
                    raise ConnectError("The walsender did not end its stream when asked to.")
                while self.frames.fill() and time.monotonic() < deadline:
                    self.frames.take()
        return (yield from self.frames.outcome())

    def _after_interval(self) -> float:
        return time.monotonic() + self._interval_s if self._interval_s else math.inf


def start_logical(
    pgconn: PGconn,
    command: str,
    *,
    interval_s: float | None = None,
    most_s: float = STATUS_INTERVAL_S,
    flushed: LSN = LSN(0),  # noqa: B008 - immutable
) -> Exchange[Replication]:
    """START_REPLICATION … LOGICAL; a status at least every ``interval_s`` (None: often enough for wal_sender_timeout,
    every ``most_s`` at the longest).

    Raises what map_error says: SlotMissingError, SlotInUseError, SlotLostError, RightsError, …
    """
    if interval_s is None:
        interval_s = yield from status_interval(pgconn, most_s)
    return Replication((yield from start_copy(pgconn, command)), interval_s, flushed)


def start_physical(
    pgconn: PGconn, start_lsn: LSN, slot: str | None, timeline: int | None, *, interval_s: float | None = None
) -> Exchange[Replication]:
    """START_REPLICATION … PHYSICAL; has ended at once where the timeline does. Raises what map_error says."""
    if interval_s is None:
        interval_s = yield from status_interval(pgconn)
    command = StartPhysicalReplication(start_lsn, slot, timeline)
    frames = yield from start_copy(pgconn, command.build(pgconn.server_version))
    return Replication(frames, interval_s, physical=True)


def status_interval(pgconn: PGconn, most_s: float = STATUS_INTERVAL_S) -> Exchange[float]:
    """A third of wal_sender_timeout (0: none), ``most_s`` at the longest."""
    found = yield from rows(pgconn, "SHOW wal_sender_timeout")
    with reading_answer("SHOW wal_sender_timeout"):
        timeout_s = milliseconds(str(found[0][0])) / 1000
    return min(most_s, timeout_s / 3) if timeout_s else most_s


def milliseconds(setting: str) -> int:
    """What SHOW says of a time: a number with the largest unit that has no rest, as ``1min``."""
    number = setting.rstrip("dhminsu")
    return int(number) * _UNITS[setting.removeprefix(number) or "ms"]
