"""The log as readers see it: committed transactions in commit order, addressed by the range (start, end] of end LSNs.

Readers share the folder with one writer and with each other and take no lock: files are immutable, appear whole, and
go only from the old end. Planning reads each file's metadata once; ``refresh`` asks for the next number only.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.changelog import format as layout
from wal2lake.changelog import places
from wal2lake.changelog import plan as planning
from wal2lake.changelog.builder import count_rows
from wal2lake.changelog.documents import corrupt
from wal2lake.changelog.format import LogIdentity, SegmentInfo
from wal2lake.changelog.grouped import GROUPED_SINCE, Grouped, RelationRows
from wal2lake.changelog.in_force import InForce, RelationRun
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.plan import Extent, Limits
from wal2lake.changelog.relations import Messages, superfluous
from wal2lake.changelog.storage import Storage
from wal2lake.changelog.streams import PreparedOnes, PreparedTransaction
from wal2lake.changelog.timelines import newest_timeline
from wal2lake.changelog.trailer import footer_begins
from wal2lake.errors import BEGIN_ANEW, ConfigError, LogMismatchError
from wal2lake.lsn import LSN

Place = str | Path | Storage
K = TypeVar("K")
T = TypeVar("T")
_HEAD = ("tag", "relation_id", "xid")
_ENDS_AT_ONCE = 256  # metadata of so many segments is asked for, and then looked at
CLAIM = "@"  # in no pipeline's name and in no consumer option


class ChangeLog:
    """A log's read side. Opening costs one small file; segments are listed when first asked for."""

    def __init__(self, storage: Storage, identity: LogIdentity) -> None:
        self.storage = storage
        self.identity = identity
        self._segments: list[SegmentInfo] | None = None
        self._checked: set[int] = set()  # segments whose rows were checked; the files never change
        self._position = layout.Position(LSN(0), 0)
        self._infos: _Recent[int, SegmentInfo] = _Recent(64, lambda seq: layout.read_info(*self._end(seq)))
        self._batches: _Recent[int, pa.RecordBatch] = _Recent(2, self._load_batch)
        self._heads: _Recent[int, pa.RecordBatch] = _Recent(2, self._load_heads)
        self._indexes: _Recent[int, pa.RecordBatch] = _Recent(16, self._load_index)
        self._grouped: _Recent[Extent, Grouped] = _Recent(2, lambda extent: Grouped(self.read(extent)))
        self._counts: _Recent[Extent, dict[int, dict[str, int]]] = _Recent(16, self._count)
        self._relations: _Recent[str, Messages] = _Recent(64, self._load_relations)
        self._in_force: _Recent[tuple[str, ...], InForce] = _Recent(16, self._load_in_force)

    @classmethod
    def create(cls, path: Place, identity: LogIdentity) -> ChangeLog:
        """Open the log at ``path``, made now if there is none. Raises LogMismatchError when it is another's."""
        storage = storage_at(path)
        storage.prepare(*places.FOLDERS)
        if not cls.exists(storage):
            storage.create(places.IDENTITY, identity.to_json())  # or somebody else has just made it
        log = cls.open(storage)
        log.check_identity(identity)
        return log

    @classmethod
    def open(cls, path: Place) -> ChangeLog:
        """Open an existing log; raises ConfigError when there is none, LogCorruptError when it cannot be read."""
        storage = cls.find(path)
        identity = LogIdentity.from_json(storage.get(places.IDENTITY), places.IDENTITY)
        newest = newest_timeline(storage)
        return cls(storage, identity if newest is None else replace(identity, timeline=newest.number))

    @classmethod
    def find(cls, path: Place) -> Storage:
        """The folder of an existing log, which may be damaged; raises ConfigError when there is none."""
        if not cls.exists(path):
            hint = "`wal2lake capture` (or `wal2lake run`) makes it; check log.path."
            raise ConfigError(f"There is no change log at {storage_at(path).where}.", hint=hint)
        return storage_at(path)

    @staticmethod
    def exists(path: Place) -> bool:
        """Raises LogCorruptError for a log whose identity is lost: another would be begun on top of it."""
        storage = storage_at(path)
        if storage.exists(places.IDENTITY):
            return True
        if storage.names(places.SEGMENTS):
            raise corrupt(places.IDENTITY, "it is missing, and there are segments")
        return False

    def check_identity(self, other: LogIdentity) -> None:
        """Raise LogMismatchError unless ``other`` speaks of the same changes (positions and options may differ).

        Timelines may differ too: whether one continues the other, its history says (capture/timeline.py).
        """
        for name in ("system_id", "database", "slot", "publication"):
            mine, theirs = getattr(self.identity, name), getattr(other, name)
            if mine != theirs:
                upgraded = f" After an upgrade every table must be read again: {BEGIN_ANEW}."
                raise LogMismatchError(
                    f"The change log {self.storage.where} belongs to {name} {mine}, but the source has {theirs}.",
                    hint="Point log.path at a new folder for this source, or the source settings at the server,"
                    f" database, slot and publication that the log is of.{upgraded if name == 'system_id' else ''}",
                )

    # -- positions

    @property
    def start_lsn(self) -> LSN:
        """Where the slot began: the log has the transactions that ended above it."""
        return self.identity.start_lsn

    @property
    def last_end_lsn(self) -> LSN:
        """The end LSN of the last committed transaction; ``start_lsn`` before the first."""
        return LSN(self.segments[-1].end_lsn) if self.segments else self.start_lsn

    def durable_lsn(self) -> LSN:
        """Nothing below this is missing from ``segments``, as they were seen at the last ``refresh``."""
        last = LSN(self.segments[-1].durable_lsn) if self.segments else self.start_lsn
        return max(last, self._position.lsn)

    # -- segments

    @property
    def segments(self) -> list[SegmentInfo]:
        """All that was there at the last ``refresh`` (or when first asked), oldest first, without a gap."""
        if self._segments is None:
            self._read_position()
            self._segments = self._list()
        return self._segments

    def refresh(self) -> None:
        """See what was appended and removed since; a small file and two look-ups of a name when nothing was.

        The position comes first: the writer moves it past segments that it has appended, and whoever read it last
        would take it to speak of segments that it has not seen.
        """
        seen = self.segments
        self._read_position()
        oldest = next((i for i, s in enumerate(seen) if self._is_there(s.seq)), None)
        if oldest is None:
            self._segments = self._list()
            return
        del seen[:oldest]
        while self._is_there(seen[-1].seq + 1):
            info = layout.read_info(*self._end(seen[-1].seq + 1))
            if self._is_fenced(info):
                break
            seen.append(info)
        self._require_newest(seen[-1].seq)

    def has_more(self) -> bool:
        """Whether a segment came since; that look-up of a name, and no more."""
        return self._is_there(self.segments[-1].seq + 1 if self.segments else self._position.next_seq)

    def _list(self) -> list[SegmentInfo]:
        """All segments there are, read newest first: what retention removes meanwhile is missing at the old end."""
        first, fenced = self._first_seq(), False
        listed = {seq for name in self.storage.names(places.SEGMENTS) if (seq := layout.segment_seq(name)) >= first}
        self._require_newest(max(listed, default=-1))
        found: list[SegmentInfo] = []
        seqs = range(max(listed, default=-1), min(listed, default=0) - 1, -1)
        for seq, info in self._read_infos(seqs):
            if info is not None and self._is_fenced(info):
                fenced = True
            elif info is not None:
                found.append(info)
            elif found or not fenced:  # between those of a writer that was left behind nothing need be
                if any(self._is_there(older) for older in listed if older < seq):
                    raise corrupt(layout.segment_name(seq), "it is missing")
                break
        if listed and not found and not fenced:  # the newest was old by the time that it was looked at
            return self._list()
        return found[::-1]

    def _read_infos(self, seqs: range) -> Iterator[tuple[int, SegmentInfo | None]]:
        """With None for one that is not there; some at once, where that is quicker."""
        for start in range(0, len(seqs), _ENDS_AT_ONCE):
            some = seqs[start : start + _ENDS_AT_ONCE]
            names = [layout.segment_name(seq) for seq in some]
            for seq, name, file in zip(some, names, self.storage.map_ends(names, footer_begins), strict=True):
                yield seq, None if file is None else layout.read_info(file, name)

    def _is_fenced(self, info: SegmentInfo) -> bool:
        """It was put by a writer whose lease had gone to another, which had said by then that it comes next itself."""
        return info.seq >= self._position.next_seq and info.epoch < self._position.epoch

    def _first_seq(self) -> int:
        """Before it there is nothing of the log, whatever a writer that was left behind put there."""
        try:
            return layout.read_first(self.storage.get(places.TRIMMED), places.TRIMMED)
        except FileNotFoundError:
            return 0

    def _read_position(self) -> None:
        """How far an idle stream is durable; before the segments are looked at, which may be more by then."""
        found = layout.newest_position(self.storage.get)
        if found is not None:
            self._position = found

    def _require_newest(self, newest: int) -> None:
        """Retention leaves the newest segment; where it is gone, nobody would miss what it held."""
        if newest < self._position.next_seq - 1:
            raise corrupt(layout.segment_name(self._position.next_seq - 1), "it is missing")

    def _is_there(self, seq: int) -> bool:
        return self.storage.exists(layout.segment_name(seq))

    def _map(self, seq: int) -> tuple[pa.Buffer, str]:
        name = layout.segment_name(seq)
        return self.storage.map(name), name

    def _file(self, seq: int) -> tuple[pa.Buffer, str]:
        try:
            return self._map(seq)
        except FileNotFoundError:
            raise self._trimmed() from None

    def _end(self, seq: int) -> tuple[pa.Buffer, str]:
        """Enough of the file for what does not ask for rows."""
        name = layout.segment_name(seq)
        file = next(iter(self.storage.map_ends([name], footer_begins)))
        if file is None:
            raise self._trimmed()
        return file, name

    def _load_batch(self, seq: int) -> pa.RecordBatch:
        batch = layout.read_batch(*self._file(seq), check=seq not in self._checked)
        self._checked.add(seq)
        return batch.select(layout.SEGMENT_SCHEMA.names)  # which subtransaction a row is of has been seen to

    def _load_heads(self, seq: int) -> pa.RecordBatch:
        heads = layout.read_columns(*self._file(seq), _HEAD, check=seq not in self._checked)
        self._checked.add(seq)
        return heads

    def _load_index(self, seq: int) -> pa.RecordBatch:
        return layout.read_transactions(*self._end(seq))

    def _load_relations(self, name: str) -> Messages:
        return layout.read_relations(self.storage.map(name), name)

    def _load_in_force(self, names: tuple[str, ...]) -> InForce:
        return InForce.of(message for name in names for message in self._relations.get(name).items())

    def _before(self, info: SegmentInfo) -> InForce:
        """What is in force where the segment starts. Files go after the segments that name them."""
        try:
            return self._in_force.get(info.relation_files)
        except FileNotFoundError:
            if not self._is_there(info.seq):
                raise self._trimmed() from None
            lost = [name for name in info.relation_files if not self.storage.exists(name)]
            raise corrupt(lost[0] if lost else info.name, "it is missing") from None

    def _info(self, seq: int) -> SegmentInfo:
        """From memory when the segments are listed; a task that reads one extent opens just its file."""
        first = self._segments[0].seq if self._segments else seq + 1
        if self._segments and first <= seq <= self._segments[-1].seq:
            return self._segments[seq - first]
        return self._infos.get(seq)

    def _trimmed(self) -> LogMismatchError:
        return LogMismatchError(
            f"The change log {self.storage.where} no longer holds all that was asked for: retention removed it.",
            hint="Raise log.retention_seconds, or read with the consumer's name so that retention waits for it;"
            " this reader must start anew from a snapshot.",
        )

    def prepared(self) -> PreparedOnes:
        """The transactions that are prepared, and have not ended, where the log ends."""
        known = self.segments[-1].prepared if self.segments else {}
        return {xid: PreparedTransaction.of(xid, s, self._info(s).prepared_here[xid]) for xid, s in known.items()}

    # -- planning

    def beginning(self) -> int:
        """The end LSN after which the log has every transaction whole: where the slot began, until retention trims."""
        first = self.segments[0] if self.segments else None
        if first is None or first.seq == 0:
            return int(self.start_lsn)
        start = first.previous_end_lsn
        for segment in (s for s in self.segments if s.commits and s.commits_from < first.seq):
            found = self.transactions(segment.previous_end_lsn, segment.end_lsn)
            cut = np.flatnonzero(found["first_seq"].to_numpy() < first.seq)  # these have rows in segments that are gone
            start = int(found["end_lsn"][int(cut[-1])].as_py())
        return start

    def plan(self, start: int, end: int) -> list[Extent]:
        """The rows of all transactions with start < end LSN ≤ end, in order.

        Raises LogMismatchError when retention removed some of them.
        """
        self._check_held(start)
        extents = planning.plan(self.segments, self._indexes.get, start, end)
        if extents and min(extent.seq for extent in extents) < self.segments[0].seq:
            raise self._trimmed()
        return extents

    def transactions(self, start: int, end: int) -> pa.Table:
        """The index of the transactions in (start, end]: TRANSACTIONS_SCHEMA and ``last_seq``, in commit order."""
        self._check_held(start)
        schema = layout.TRANSACTIONS_SCHEMA.append(pa.field("last_seq", pa.uint64(), nullable=False))
        return pa.Table.from_batches(planning.transactions(self.segments, self._indexes.get, start, end), schema)

    def end_lsn_within(
        self,
        start: int,
        max_bytes: int | None = None,
        max_rows: int | None = None,
        before_commit_lsn: int | None = None,
    ) -> int:
        """The farthest end LSN such that (start, it] stays within the limits; one transaction at least.

        ``max_bytes`` and ``max_rows`` count messages of whole transactions; ``before_commit_lsn`` admits only
        transactions whose commit record lies before it. Returns ``start`` when there is none.
        """
        self._check_held(start)
        limits = Limits(max_bytes, max_rows, before_commit_lsn)
        if limits == Limits():
            return max(start, self.last_end_lsn)
        return planning.end_lsn_within(self.segments, self._indexes.get, start, limits)

    def size(self, start: int, end: int) -> int:
        """Bytes of the messages of all transactions in (start, end]."""
        return int(pc.sum(self.transactions(start, end)["bytes"]).as_py() or 0)

    def _check_held(self, start: int) -> None:
        first = self.segments[0] if self.segments else None
        if first and first.seq > 0 and start < first.previous_end_lsn:
            raise self._trimmed()

    # -- rows

    def read(self, extent: Extent) -> pa.RecordBatch:
        """The extent's rows as SEGMENT_SCHEMA; a view into the mapped file where that is not compressed."""
        return self._batches.get(extent.seq).slice(extent.row_start, extent.row_stop - extent.row_start)

    def heads(self, extent: Extent) -> pa.RecordBatch:
        """The extent's rows without lsn and payload: what a driver asks for, who decompresses no data."""
        return self._heads.get(extent.seq).slice(extent.row_start, extent.row_stop - extent.row_start)

    def counts(self, extent: Extent) -> dict[int, dict[str, int]]:
        """Rows per relation and kind ('I', 'U', 'D', 'T'); from metadata alone for a whole segment.

        Of a part of one the payloads are read only where a Truncate is in it, which names its relations there.
        """
        info = self._info(extent.seq)
        if (extent.row_start, extent.row_stop) == (0, info.rows):
            return {oid: dict(kinds) for oid, kinds in info.counts.items()}
        return self._counts.get(extent)

    def _count(self, extent: Extent) -> dict[int, dict[str, int]]:
        return count_rows(self.heads(extent), lambda: self.read(extent).column("payload"))

    def read_relation(self, extent: Extent, relation_id: int) -> RelationRows:
        """The extent's rows, or where it has those of many relations, the changes of this one alone.

        Those who ask for one relation after the other read through the rows once.
        """
        if len(self.counts(extent)) < GROUPED_SINCE:
            return RelationRows(self.read(extent), None)
        return self._grouped.get(extent).of(relation_id)

    def relation_runs(self, extent: Extent, relation_id: int) -> list[RelationRun]:
        """Split the extent where the relation's announced schema changes; no row is read.

        Rows before its first announcement, where it can have no change, are in no run.
        """
        info = self._info(extent.seq)
        return self._before(info).runs(info.announced, relation_id, extent.row_start, extent.row_stop)

    def in_force(self, extent: Extent) -> list[bytes]:
        """The Type and Relation messages in force where the extent begins, types first; no row is read."""
        info = self._info(extent.seq)
        return self._before(info).at(info.announced, extent.row_start)

    def relations_before(self, segment: SegmentInfo) -> Collection[int]:
        """The relations that were announced in the same session of the stream before the segment."""
        return self._before(segment).relations.keys()

    def announced(self, start: int, end: int) -> set[int]:
        """The relations announced amid the transactions in (start, end], even if they look as they did before.

        Not only where they have changes: a segment may end between a Relation and the change that it is sent for.
        """
        return {
            news.oid
            for extent in self.plan(start, end)
            for news in self._info(extent.seq).announced
            if news.kind == "R" and extent.row_start <= news.row < extent.row_stop
        }

    def end_before_announcement(self, start: int, end: int, relation_id: int) -> int:
        """The end of the last transaction in (start, end] before one that announces the relation; or ``start``.

        Of a streamed one, of those that had ended when it was announced.
        """
        for extent in self.plan(start, end):
            for news in self._info(extent.seq).announced:
                if news.kind == "R" and news.oid == relation_id and extent.row_start <= news.row < extent.row_stop:
                    known = self.transactions(start, end)
                    ended = list(zip(known["last_seq"].to_pylist(), known["last_row"].to_pylist(), strict=True))
                    before = bisect_left(ended, (extent.seq, news.row))
                    return int(known["end_lsn"][before - 1].as_py()) if before else start
        return end

    def changed_above(self, lsn: int, most: int) -> set[int] | None:
        """The relations that may have changes in transactions that end above ``lsn``, by the segments' own counts.

        None where that are more than ``most`` segments.
        """
        late = [segment for segment in self.segments[-most - 1 :] if segment.end_lsn > lsn]
        if len(late) > most:  # where the first of them has no commit, it is an earlier one that has
            return None
        first = min((segment.commits_from for segment in late if segment.commits), default=None)
        if first is None:
            return set()
        held = [segment for segment in self.segments[-most - 1 :] if segment.seq >= first]
        return None if len(held) > most else {oid for segment in held for oid in segment.counts}

    # -- retention and barriers

    def release(self, consumer: str, lsn: int) -> None:
        """``consumer`` will never ask for transactions that end at or below ``lsn`` again. Durable; never goes back."""
        self._keep_highest(_small_file(places.CONSUMERS, consumer), lsn, layout.write_lsn_file, layout.read_lsn_file)

    def _keep_highest(
        self, name: str, value: int, write: Callable[[int], bytes], read: Callable[[bytes, str], int]
    ) -> None:
        """Have the document ``name`` say ``value``, unless it says more."""
        while True:
            try:
                found, version = self.storage.read(name)
            except FileNotFoundError:
                done = self.storage.create(name, write(value))
            else:
                done = value <= read(found, name) or self.storage.swap(name, write(value), version) is not None
            if done:
                return

    def released_by(self, consumer: str) -> LSN | None:
        """What ``consumer`` will never ask for again; None when it never said so."""
        return self._lsn_file(_small_file(places.CONSUMERS, consumer))

    def forget(self, consumer: str) -> None:
        """Retention waits for ``consumer`` no more."""
        self.storage.remove(_small_file(places.CONSUMERS, consumer))

    def released(self) -> dict[str, LSN]:
        """What each consumer will never ask for again, the tables that are behind their pipeline's stream included.

        Their documents are read last: a table's is durable before the stream goes on without it, so whoever saw the
        stream beyond what a table needs sees the table's document as well.
        """
        return self._lsn_files(places.CONSUMERS) | {
            claim(pipeline, table): lsn
            for pipeline in self.storage.folders(places.SNAPSHOTS)
            for table in self.storage.folders(places.tables_of(pipeline))
            if (lsn := self._needed_lsn(places.state_document(pipeline, table))) is not None
        }

    def _needed_lsn(self, document: str) -> LSN | None:
        try:
            needed = layout.read_state(self.storage.get(document), document)["needs_lsn"]
        except FileNotFoundError:  # nothing is known of the table yet
            return None
        return None if needed is None else LSN.parse(needed)

    def trim(self, retention_s: float) -> int:
        """Remove segments that all consumers released and that are older than ``retention_s``; return how many.

        Without a consumer nothing goes. The last segment stays: it says where the log ends. Barriers that all
        consumers have passed go as well: whoever asked for one may have died.
        """
        released = self.released()
        for name, lsn in self.barriers().items():
            if released and lsn <= min(released.values()):
                self.remove_barrier(name)
        keep_from = self._needed_from(min(released.values())) if released else 0
        old = [s for s in self.segments[:-1] if s.seq < keep_from]
        removed, names = 0, list[str]()
        for segment in old:
            try:
                if time.time() - self.storage.modified(segment.name) < retention_s:
                    break
                names.append(segment.name)
            except FileNotFoundError:
                pass
            removed += 1
        if names and self.segments[-1].epoch:
            self._keep_highest(places.TRIMMED, self.segments[removed].seq, layout.write_first, layout.read_first)
        self.storage.remove(*names)
        del self.segments[:removed]
        self._remove_relations()
        return removed

    def _remove_relations(self) -> None:
        """Those files that no segment will name: of segments that went, of a crash, or others that took theirs in."""
        found = [f"{places.RELATIONS}/{name}" for name in self.storage.names(places.RELATIONS)]
        for name in superfluous(found, [(segment.seq, segment.relation_files) for segment in self.segments]):
            self.storage.remove(name)

    def _needed_from(self, released: int) -> int:
        """The first segment that a transaction may have rows in that ends above ``released``, or has not ended."""
        needed = [max((s.seq for s in self.segments if s.commits), default=0)]
        needed += [s.open_after for s in self.segments[-1:]]
        for segment in self.segments:
            if segment.commits and segment.last_commit_end_lsn > released:
                whole = segment.first_commit_end_lsn > released
                above = () if whole else planning.transactions([segment], self._indexes.get, released, segment.end_lsn)
                needed += [segment.commits_from] if whole else [found["first_seq"][0].as_py() for found in above]
        return min(needed)

    def request_barrier(self, name: str, before_commit_lsn: int) -> None:
        """Ask readers to end a batch at the last transaction whose commit record lies before the given LSN."""
        self.storage.put(_small_file(places.BARRIERS, name), layout.write_lsn_file(before_commit_lsn))

    def remove_barrier(self, name: str) -> None:
        self.storage.remove(_small_file(places.BARRIERS, name))

    def barriers(self) -> dict[str, LSN]:
        return self._lsn_files(places.BARRIERS)

    def _lsn_files(self, folder: str) -> dict[str, LSN]:
        files = {n.removesuffix(".json"): self._lsn_file(f"{folder}/{n}") for n in self.storage.names(folder)}
        return {name: lsn for name, lsn in files.items() if lsn is not None}

    def _lsn_file(self, name: str) -> LSN | None:
        try:
            return layout.read_lsn_file(self.storage.get(name), name)
        except FileNotFoundError:
            return None


def _small_file(folder: str, name: str) -> str:
    if not name or name.startswith(".") or "/" in name:
        raise ConfigError(f"{name!r} cannot name a file of the change log.", hint="Use letters, digits and '_'.")
    return f"{folder}/{name}.json"


def claim(pipeline: str, table: str) -> str:
    """The consumer that stands for what a table needs while ``pipeline`` goes on without it."""
    return f"{pipeline}{CLAIM}{table}"


class _Recent(Generic[K, T]):
    """The ``size`` things last asked for, by segment number or name."""

    def __init__(self, size: int, load: Callable[[K], T]) -> None:
        self._size, self._load = size, load
        self._kept: OrderedDict[K, T] = OrderedDict()

    def get(self, key: K) -> T:
        if key not in self._kept:
            self._kept[key] = self._load(key)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]
