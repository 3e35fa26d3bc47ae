"""One loop: take a batch from the stream, make it durable as one segment, acknowledge it. In this order, always.

The stream's own thread reads and keeps the connection alive meanwhile; it holds at most one more batch. Whatever ends
the loop between two of the steps, the server has what the log has not: it sends it again, and the log's writer knows
by the end LSN what it has already. That is compared first (history.py), and nothing is acknowledged before.

When nothing comes, the server's keepalives still move on with its WAL. Their position goes into the log
(position.json) before it is acknowledged, so an idle publication never keeps WAL, and a slot is never ahead of its log.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from wal2lake.capture.frames import without_headers_in
from wal2lake.capture.history import Resent
from wal2lake.capture.startup import check_source, check_started, open_log
from wal2lake.capture.timeline import require_same
from wal2lake.capture.unsendable import Manner, OneTransaction, require_names
from wal2lake.changelog.builder import SEGMENT_BYTES_MAX
from wal2lake.changelog.events import Events
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.places import STATUS, WRITER_LOCK
from wal2lake.changelog.status import CaptureStatus, reason_of
from wal2lake.changelog.writer import LogWriter
from wal2lake.columnar.framing import Framed
from wal2lake.config import Config
from wal2lake.errors import ConnectError, InterruptedByUser, ServerError, Wal2LakeError
from wal2lake.postgres.framed_stream import ReplicationStream
from wal2lake.retry import Backoff
from wal2lake.signals import stop_on_signals

_STATUS_INTERVAL_S = 1.0
_IDLE_POSITION_S = 1.0
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.5, 30.0
_SLOT_WAITS = "waiting for running transactions to end"
_COMPARES = "comparing what the server sends again with the log"

logger = logging.getLogger("wal2lake.capture")


def run_capture(config: Config, stop: threading.Event | None = None) -> None:
    """Capture until ``stop`` is set, or, without one, until SIGTERM or SIGINT. Raises what no waiting mends."""
    if stop is not None:
        Capture(config).run(stop)
        return
    with stop_on_signals() as told:
        Capture(config).run(told)


class Capture:
    """Captures the slot of ``config`` into its log; connects again, with a growing pause, when the server is away."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._segment_bytes = min(config.log.segment_bytes, SEGMENT_BYTES_MAX)
        self._backoff = Backoff(_PAUSE_MIN_S, _PAUSE_MAX_S)
        self._status_due = self._position_due = self._cut_due = 0.0
        self._changes = 0
        self._manner = self._usual = Manner(streaming=config.source.streaming, two_phase=config.source.two_phase)
        self._status = CaptureStatus()
        self._storage = storage_at(config.log.path)
        self._events = Events(self._storage, "capture")
        self._told_lost = False  # that there is no connection

    def run(self, stop: threading.Event) -> None:
        """Return when ``stop`` is set and all that had arrived is durable and acknowledged.

        Raises errors that are not transient; see wal2lake.capture.startup for those of the start, and LogFullError.
        """
        self._storage.prepare(STATUS)
        with ExitStack() as log:
            try:
                self._capture(log, stop)
            except BaseException as error:
                with suppress(Wal2LakeError, OSError):  # where it cannot be written, the error matters more
                    self._record_end("failed", reason_of(error))
                raise
            self._record_end("stopped", None)

    def _capture(self, log: ExitStack, stop: threading.Event) -> None:
        writer: LogWriter | None = None
        while not stop.is_set():
            try:
                if writer is None:
                    writer = log.enter_context(open_log(self._config, stop, self._report_slot_waiting))
                    self._status.lock = WRITER_LOCK
                self._session(writer, stop)
            except InterruptedByUser:
                if not stop.is_set():
                    raise
            except ServerError as error:
                self._manner = self._other_manner(error)
            except Wal2LakeError as error:
                if not error.transient:
                    raise
                self._manner = self._usual if self._manner.usual else self._manner
                self._back_off(error, stop)

    def _record_end(self, state: str, reason: str | None) -> None:
        """For whoever looks when this process is gone; one that could not have the log speaks not for who has it."""
        if self._status.lock or not self._storage.is_locked(WRITER_LOCK):
            self._publish(state=state, reason=reason)
            if reason is not None:
                self._events.record("failed", f"Capture failed: {reason}", level="error")
            else:
                self._events.record("stopped", "Capture was stopped.", lsn=self._status.durable_lsn)

    def _other_manner(self, error: ServerError) -> Manner:
        """How the transaction can be had that the server could not send; raises ``error`` when there is no way."""
        manner = self._manner.beyond(error, self._config.source.login)
        if manner.usual:
            logger.warning("%s The next session takes no transaction before its commit.", error.message)
            return manner
        way = "in binary form" if manner.binary else "with text as the database stores it"
        logger.warning("%s That transaction is read %s.", error.message, way)
        return manner

    def _back_off(self, error: Wal2LakeError, stop: threading.Event) -> None:
        pause_s = self._backoff.pause_s()
        self._publish(state="waiting", ts=time.time() + pause_s, reason=str(error))  # it holds until then
        text = f"{error} Trying again in {pause_s:g} s."
        if self._told_lost:  # what lasts is one event, and as many lines as there are tries
            logger.warning("%s", text)
        else:
            self._events.record("disconnected", text, level="warning")
        self._told_lost = True
        stop.wait(pause_s)

    def _report_slot_waiting(self) -> None:
        if self._status.state != _SLOT_WAITS:
            logger.warning(
                "The slot %s is being made; it waits until the transactions that run now have ended."
                " `wal2lake check` names them.",
                self._config.source.slot,
            )
        self._publish(state=_SLOT_WAITS)

    def _session(self, writer: LogWriter, stop: threading.Event) -> None:
        """One connection's life."""
        found = check_source(self._config, writer, stop)
        if not found.can_stream:
            self._usual, self._manner = (replace(manner, streaming=False) for manner in (self._usual, self._manner))
        source, manner = self._config.source, self._manner
        only = None if manner.usual else OneTransaction(manner, writer.durable_lsn)
        writer.new_session()
        with ReplicationStream(
            found.login,
            source.slot,
            found.confirmed,
            source.publication,
            manner.options,
            buffer_bytes=self._segment_bytes,
            as_stored=manner.as_stored,
            check=lambda pgconn: require_same(pgconn, found.system),
        ) as stream:
            writer.catch_up()  # nobody else acknowledges from here on
            resent = Resent(writer.log, writer.durable_lsn, check_started(found.login, source.slot, writer.durable_lsn))
            text = f"Capturing from slot {source.slot} at {writer.durable_lsn}."
            self._events.record("connected", text, slot=source.slot, lsn=writer.durable_lsn)
            self._told_lost = False
            while not stop.is_set():
                self._step(stream, writer, resent, only, self._receive_batch(stream))
                if only is not None and only.over:
                    self._manner = self._usual
                    return
            self._step(stream, writer, resent, only, stream.receive(0))
            self._write_status(stream, writer, "stopped")

    def _receive_batch(self, stream: ReplicationStream) -> list[Framed]:
        """A busy stream is cut by time or size; the first bytes after a quiet spell are durable at once."""
        left = self._cut_due - time.monotonic()
        if left > 0:
            return stream.receive(left, at_least=self._segment_bytes)
        return stream.receive(self._config.log.segment_seconds)

    def _step(
        self,
        stream: ReplicationStream,
        writer: LogWriter,
        resent: Resent,
        only: OneTransaction | None,
        pieces: list[Framed],
    ) -> None:
        joined = Framed.joined(pieces)
        pieces.clear()  # the same bytes once more
        messages = without_headers_in(joined, in_chunk=writer.in_chunk)
        del joined
        batch = resent.pass_over(messages, stream.keepalive_lsn)
        batch = batch if only is None else only.take(batch)
        if stream.as_stored:
            require_names(batch)
        if len(batch):
            self._cut_due = time.monotonic() + self._config.log.segment_seconds
            counts = writer.append(batch).counts
            self._changes += sum(sum(kinds.values()) for kinds in counts.values())
            del messages, batch
            pa.default_memory_pool().release_unused()  # it would keep several segments' worth
        elif time.monotonic() >= self._position_due:
            writer.set_position(stream.keepalive_lsn)
            self._position_due = time.monotonic() + max(_IDLE_POSITION_S, self._storage.tell_s)
        if resent.over:
            if writer.durable_lsn > stream.confirmed_lsn:
                self._backoff.reset()  # not before: a server may crash each time over what it should send
                logger.debug("All up to %s is acknowledged.", writer.durable_lsn)
            stream.acknowledge(writer.durable_lsn)
        if time.monotonic() >= self._status_due:
            self._status_due = time.monotonic() + max(_STATUS_INTERVAL_S, self._storage.tell_s)
            self._write_status(stream, writer, "streaming" if resent.over else _COMPARES)

    def _write_status(self, stream: ReplicationStream, writer: LogWriter, state: str) -> None:
        self._publish(
            state=state,
            received_lsn=stream.received_lsn,
            durable_lsn=writer.durable_lsn,
            confirmed_lsn=stream.confirmed_lsn,
            start_lsn=writer.start_lsn,
            end_lsn=writer.end_lsn,
            server_wal_end=stream.wal_end,
            messages=stream.messages,
            bytes=stream.received_bytes,
            open_streams=writer.open_streams,
            prepared=writer.prepared,
            changes=self._changes,
        )

    def _publish(self, **values: Any) -> None:
        self._status = replace(self._status, **{"pid": os.getpid(), "ts": time.time(), "reason": None} | values)
        with suppress(ConnectError):  # whoever would read it hears as much from the store
            self._status.write(self._storage)
