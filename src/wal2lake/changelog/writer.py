"""One writer per log; what ``append`` returns is durable, and only that may be acknowledged to the server.

A lock keeps a second writer away. Nothing depends on it: a segment is put where none of its number is, and a position
over the one that was read. So of two writers, one of which took the other for dead, one learns of it, and ends. Where
the lock is a lease, segments and positions name its epoch: what a writer puts that was left behind is none of the log's
(format.Position). A put that nobody answered may count, or come to count later: ``catch_up`` sees what is there.

A crash at any point leaves: finished segments, perhaps a temporary file (removed at the next start), perhaps the rows
of transactions whose end was not stored (never indexed; the server sends them again), perhaps a file of relations
that no segment names (relations.py). Appending is the only change, save for ``cut``, so there is nothing else to
recover. But a file that is there may not be durable yet (its writer died before it had flushed the folder), and it
counts as such from the start: so the folders are flushed first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Literal

import pyarrow as pa

from wal2lake.changelog import format as layout
from wal2lake.changelog.builder import Tail, build_segment
from wal2lake.changelog.format import LogIdentity, SegmentInfo, segment_name
from wal2lake.changelog.log import ChangeLog, Place
from wal2lake.changelog.places import POSITIONS, RELATIONS, SEGMENTS, WRITER_LOCK
from wal2lake.changelog.storage import Stored, Version, held
from wal2lake.changelog.timelines import Timeline, record_timeline
from wal2lake.columnar.headers import MessageColumns
from wal2lake.errors import BEGIN_ANEW, ConnectError, LogCorruptError, LogMismatchError, SlotInUseError
from wal2lake.files import LockHeldError
from wal2lake.lsn import LSN

Compression = Literal["lz4", "zstd", "none"]
logger = logging.getLogger("wal2lake.capture")


class LogWriter:
    """Appends segments. Use it as a context manager: it holds the log's lock.

    Raises LogMismatchError when the log is another source's, SlotInUseError when it has a writer already,
    LogCorruptError when its end cannot be read.
    """

    def __init__(self, path: Place, identity: LogIdentity, *, compression: Compression = "lz4") -> None:
        self._log = ChangeLog.create(path, identity)
        self._storage = self._log.storage
        self._compression = None if compression == "none" else compression
        self._unsure = False  # whether all that was put is known
        with ExitStack() as held_so_far:
            self._hold = held_so_far.enter_context(held(self._storage, WRITER_LOCK, self._in_use))
            self._begin()
            self._held = held_so_far.pop_all()

    def _begin(self) -> None:
        """Go on where whoever wrote before has ended."""
        self._storage.recover(RELATIONS, SEGMENTS, ".")
        self._positions = self._restore_positions()  # before what they say is read: they may change no more
        self._log.refresh()
        last = self._log.segments[-1] if self._log.segments else None
        self._seq = last.seq + 1 if last else 0
        self._tail = self._last_tail()
        if not any(self._positions.values()):
            if self._log.segments and self._log.identity.format >= layout.BOTH_POSITIONS_SINCE:
                logger.warning("%s has lost its position: it is taken from the segments.", self._storage.where)
            self._write_position(self._tail.durable_lsn)  # so that one that is lost is missed

    @property
    def start_lsn(self) -> LSN:
        """Where the log began, which needs no look at it."""
        return self._log.start_lsn

    @property
    def log(self) -> ChangeLog:
        """The log as it is now, with all that was appended."""
        self._log.refresh()
        return self._log

    def _restore_positions(self) -> dict[str, Version | None]:
        """The versions of the position and its copy, each made from the other where it is lost or damaged.

        A crash between the two leaves the copy ahead of the file, and nothing acknowledged that either lacks.
        """
        found: dict[str, Stored] = {}
        for name in POSITIONS:
            with suppress(FileNotFoundError):  # the stream was never idle, or it is lost
                found[name] = self._storage.read(name)
        sound = layout.newest_position(lambda name: _data_of(found, name))
        versions = {name: found[name].version if name in found else None for name in POSITIONS}
        if sound is None:
            return versions
        for name in POSITIONS:
            if name not in found or not _is_sound(found[name].data, name):
                logger.warning("%s/%s was lost or damaged: it is made anew from the other.", self._storage.where, name)
                versions[name] = self._storage.swap(name, layout.write_position(*sound), versions[name])
        return versions

    @property
    def durable_lsn(self) -> LSN:
        """Nothing below this is missing: where to start the stream, and the most that may be acknowledged."""
        return LSN(self._tail.durable_lsn)

    @property
    def end_lsn(self) -> LSN:
        """The end of the last transaction; where the log begins before the first."""
        return LSN(self._tail.end_lsn)

    @property
    def in_chunk(self) -> bool:
        """What was appended last ends amid a chunk of a streamed transaction."""
        return bool(self._tail.chunk)

    @property
    def open_streams(self) -> int:
        """Streamed transactions of which something is appended, and not the end."""
        return len(self._tail.streams)

    @property
    def prepared(self) -> int:
        """Transactions that are appended up to their Prepare, and have not ended."""
        return len(self._tail.prepared)

    def catch_up(self) -> None:
        """Where others may have written, or an answer was lost: go on from what the log has now. For when a session is
        about to begin, and once nobody else can stream from the slot.

        Raises SlotInUseError when the log has another writer.
        """
        if not self._hold.epoch:
            return
        self._check_hold()
        if not self._unsure and not self._storage.exists(segment_name(self._seq)):
            return
        self._positions = self._restore_positions()
        self._reopen()
        self._seq = self._log.segments[-1].seq + 1 if self._log.segments else 0
        self._unsure = False

    def _check_hold(self) -> None:
        try:
            self._hold.check()
        except LockHeldError as error:
            raise self._in_use(error.holder) from None

    def new_session(self) -> None:
        """The stream was started (again): forget the transactions that the last session left open."""
        self._tail = self._tail.new_session()

    def append(self, messages: MessageColumns) -> SegmentInfo:
        """Store messages, one at least, as the next segment, durably.

        Raises LogFullError (nothing changed: the same call can be made again), ProtocolError, and ConnectError, after
        which ``catch_up`` is due.
        """
        self._check_hold()
        in_force, file = self._tail.in_force.file(self._seq)
        segment, tail = build_segment(messages, self._seq, replace(self._tail, in_force=in_force))
        segment = replace(segment, info=replace(segment.info, epoch=self._hold.epoch))
        parts = layout.write_segment(segment, self._log.identity, self._compression)
        with self._being_sure():
            if file is not None:
                self._storage.create(*file)  # before whoever names it; one that is there has these bytes, as named
            if not self._storage.create(segment.info.name, *parts):
                self._require_ours(segment.info.name, parts)
        self._seq, self._tail = self._seq + 1, tail
        logger.debug("%s is durable: %d messages, up to %s.", segment.info.name, segment.info.rows, self.durable_lsn)
        return segment.info

    def set_position(self, lsn: int) -> None:
        """Record durably that the server has sent all below ``lsn`` and everything that came is appended."""
        if lsn <= self._tail.durable_lsn:
            return
        self._check_hold()
        with self._being_sure():
            self._write_position(lsn, self._hold.epoch)
        self._tail = replace(self._tail, durable_lsn=lsn)

    def _write_position(self, lsn: int, epoch: int = 0) -> None:
        data = layout.write_position(lsn, self._seq, epoch)
        for name in reversed(POSITIONS):
            version = self._storage.swap(name, data, self._positions[name])
            if version is None:
                raise self._in_use("it wrote a position")
            self._positions[name] = version

    def follow(self, timeline: Timeline) -> None:
        """Record durably that what comes next is of ``timeline``, which continues what the log has."""
        record_timeline(self._storage, timeline)
        self._reopen()

    def cut(self, lsn: int) -> None:
        """Have the log end at ``lsn``, before where it is durable: the server that sent the rest is left behind.

        Segments that reach beyond go whole, the newest first, once ``position.json`` says that none of them is missed.
        What they have of transactions that end before, the slot of whoever acknowledged no more than ``lsn`` sends
        again: such a segment was never acknowledged. Whoever dies in between is continued by doing it again.
        Raises LogMismatchError when nothing would be left that says where the log ends.
        """
        log = self.log
        beyond = [segment for segment in log.segments if segment.durable_lsn > lsn]
        first = beyond[0] if beyond else None
        if lsn < log.start_lsn or (first is not None and 0 < first.seq == log.segments[0].seq):
            raise LogMismatchError(
                f"Nothing that the change log {self._storage.where} still holds ends by {LSN(lsn)}.",
                hint=f"Every table must be read again: {BEGIN_ANEW}.",
            )
        seq = self._seq if first is None else first.seq
        if first is not None and first.commits:
            begins = log.transactions(first.previous_end_lsn, first.end_lsn)["final_lsn"][0].as_py()
            lsn = min(lsn, begins)  # what commits from there on is not held any more
        self._seq = seq
        self._check_hold()
        self._write_position(lsn, self._hold.epoch)
        for segment in reversed(beyond):
            self._storage.remove(segment.name)
        self._reopen()

    def _reopen(self) -> None:
        """See the log as it is now, of which nothing is kept from before."""
        self._log = ChangeLog.open(self._storage)
        self._tail = self._last_tail()

    def _last_tail(self) -> Tail:
        """What is known of all that the log has."""
        return Tail(self._log.last_end_lsn, self._log.durable_lsn(), prepared=self._log.prepared())

    @contextmanager
    def _being_sure(self) -> Iterator[None]:
        try:
            yield
        except ConnectError:
            self._unsure = True
            raise

    def _require_ours(self, name: str, parts: Sequence[bytes | pa.Buffer]) -> None:
        """Of a segment that is there: the last try of this very one failed, and yet it came to be; or it is of a writer
        that was left behind, and ours takes its place. Raises SlotInUseError for one of another writer."""
        data, (found, version) = b"".join(parts), self._storage.read(name)
        if found == data:
            return
        epoch = layout.read_info(pa.py_buffer(found), name).epoch
        position = layout.newest_position(self._storage.get)
        if position is not None and epoch < min(position.epoch, self._hold.epoch) and self._seq >= position.next_seq:
            if self._storage.swap(name, data, version) is not None:
                return
        elif epoch and epoch == self._hold.epoch:
            raise ConnectError(f"{name} is there by a put that had not been answered: going on behind it.")
        raise self._in_use("it wrote a segment")

    def _in_use(self, who: str) -> SlotInUseError:
        return SlotInUseError(
            f"Another capture process ({who}) writes the change log {self._storage.where}.",
            hint="Stop it first, or give this one a slot and a log of its own (source.slot, log.path).",
        )

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _data_of(found: Mapping[str, Stored], name: str) -> bytes:
    if name not in found:
        raise FileNotFoundError(name)
    return found[name].data


def _is_sound(data: bytes, name: str) -> bool:
    try:
        layout.read_position(data, name)
    except LogCorruptError:
        return False
    return True
