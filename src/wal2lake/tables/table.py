"""One table of a pipeline, and its transitions: each is one durable write of its document, before anything is built
on it.

The rule: the order between a transition and the stream is all that keeps the log from losing what a table needs. A
table leaves the stream (``begin``, ``read_anew``, ``fall_behind``, ``set_quarantine``) before the stream goes on
without it, and its document says from where the log has to keep its changes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from wal2lake.changelog.events import Events, Kind, Level
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.requests import Requests
from wal2lake.changelog.tables import known_tables
from wal2lake.columnar.types import FIRST_RULES, TypeRules
from wal2lake.errors import RESYNC, LogCorruptError, LogMismatchError, SchemaChangeError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.names import qualified, split_qualified
from wal2lake.postgres.catalog_rows import CatalogRows
from wal2lake.postgres.snapshot import SnapshotIdentity
from wal2lake.tables.column_types import newest_types, with_user_types
from wal2lake.tables.doubt import doubt, key_unsent
from wal2lake.tables.state import Anew, Followed, Landed, Quarantine, SnapshotPlan, Stage, TableState
from wal2lake.tables.table_folder import TableFolder
from wal2lake.tables.target import Target

if TYPE_CHECKING:
    from wal2lake.config import Config
    from wal2lake.postgres.catalog import CatalogColumn

_IN_A_ROW: Final = 3  # a full read costs the source, and what three did not mend the fourth will not
_ASKED: Final = "`wal2lake resync` was called."


class Table:
    """What it was read by, where it goes, and why it does not go with the stream, if so: all of it in ``state``."""

    def __init__(self, config: Config, namespace: str, name: str, events: Events) -> None:
        self.folder = TableFolder(config.log.path, config.pipeline.name, namespace, name)
        self._target = Target.of(config, namespace, name)
        self._name = qualified(namespace, name)
        self._events = events
        self._unbounded_numeric = config.pipeline.unbounded_numeric
        self._replaceable = config.pipeline.on_unfollowable == "resync" and config.lake.mode == "mirror"
        self.published = True  # as far as anyone looked
        self.confirmed_lsn = 0  # up to there a look has confirmed that nothing was kept from the stream
        self.confirmed_at = time.time()  # when that was; before the first look, since when nobody knows
        self.truncates: set[int] = set()  # xids of those that the stream told
        self.unexplained: tuple[frozenset[tuple[int, int]], int] = frozenset(), 0  # files, and where the WAL ended then
        self.state = self.folder.read()
        if self.state.stage == "catch_up" and self.state.needs_lsn is None:
            self.set_quarantine(
                LogMismatchError("The change log was told to forget what the table needs.", hint=RESYNC), 0
            )

    def __str__(self) -> str:
        return self._name

    @property
    def target(self) -> Target:
        """Where it goes, and by which types."""
        types = self.state.types or FIRST_RULES
        return replace(self._target, types=replace(types, policies=self._target.policies))

    @property
    def in_lake(self) -> bool:
        """What was read of it is committed."""
        return self.state.in_lake

    @property
    def ready(self) -> bool:
        """Each batch brings it to the batch's end."""
        return self.state.stage == "ready"

    @property
    def synchronizing(self) -> bool:
        return self.state.synchronizing

    @property
    def follows_oid(self) -> bool:
        """What the stream says of its OID is applied to it, whatever name the stream has for it."""
        return self.state.stage in ("ready", "catch_up")

    @property
    def quarantine(self) -> Quarantine | None:
        return self.state.quarantine

    @property
    def applied_lsn(self) -> LSN | None:
        """How far it is by itself; None when it goes along with the stream, or is not in the lake."""
        return self.state.needs_lsn if self.in_lake else None

    @property
    def plan(self) -> SnapshotPlan:
        assert self.state.plan is not None, "a table in the lake has a plan"
        return self.state.plan

    @property
    def landed(self) -> Landed:
        assert self.state.landed is not None, "the table is in the lake"
        return self.state.landed

    def snapshot_at(self, lsn: int) -> SnapshotIdentity | None:
        """The oldest snapshot that read the table, if it may have seen transactions that end above ``lsn``."""
        oldest = self.landed.snapshots[0]
        return oldest if lsn < oldest.bound_lsn else None

    def converges_at(self, lsn: int) -> bool:
        """Several snapshots read the table, and the log has not yet passed all that they saw."""
        return lsn < self.landed.converges_lsn

    def is_of(self, relation_id: int) -> bool:
        return self.in_lake and relation_id == self.plan.relation_id

    def require_relation(self, relation_id: int) -> None:
        """Raise SchemaChangeError when the log speaks of another table of the same name."""
        if not self.is_of(relation_id):
            raise SchemaChangeError(
                "The table was dropped and another of its name was made.",
                hint=RESYNC,
                relation=self._name,
            )

    def begin(self, lsn: int) -> None:
        """It has to be read, and the stream goes on from ``lsn`` without it.

        What an earlier try has read is void: who knows which changes went unheard since.
        """
        self._set_state(TableState("init", LSN(lsn), anew=self.state.anew, types=self.state.types))

    def read_anew(self, reason: Wal2LakeError, lsn: int, *, asked: bool = False) -> None:
        """The lake's table may be no copy any more: it is read again beside the stream, which goes on without it.

        ``lsn``: up to where it counts as applied, the batch's start, or where the stream stands; the log keeps what
        commits above. The lake's table stays as it is, for readers too, until one commit puts what was read in its
        place; then it catches up. Where that must not be (``pipeline.on_unfollowable``, append mode), it is
        quarantined for ``reason``; so it is when it turns out to be too large, unless it was ``asked`` for, and when
        three reads in a row have not brought it to where the stream is.
        A table that is not in the lake is read anyhow: nothing changes. Durable when it returns. Its columns get the
        types of the newest edition if it was asked for, and else keep theirs: nobody's queries expect others.
        """
        if not (self.in_lake or (asked and self.quarantine)):
            return
        times = 1 if asked or self.state.anew is None else self.state.anew.times + 1
        if times > _IN_A_ROW:
            message = f"{reason.message} It was read anew {_IN_A_ROW} times, and never caught up."
            reason = type(reason)(message, hint=reason.hint, relation=reason.relation, column=reason.column)
        if times > _IN_A_ROW or not (asked or self._replaceable):
            self.set_quarantine(reason, lsn)
            return
        told = reason.message + (f" [column {reason.column}]" if reason.column else "")
        anew = Anew(type(reason).__name__, told, time.time(), asked, times)
        self._set_state(TableState("init", LSN(lsn), anew=anew, types=None if asked else self.state.types))
        text = f"It is read anew, and swapped in when that is done: {told}"
        self._tell("resync", text, "info" if asked else "warning", lsn=LSN(lsn), asked=asked)

    @property
    def is_anew_unasked(self) -> bool:
        """It is to be read anew, and nobody said that this may take whatever it takes."""
        anew = self.state.anew
        return anew is not None and not anew.asked and not self.in_lake

    def refuse_anew(self, size: int, most: int) -> None:
        """It has ``size`` bytes, more than may be read anew unasked: it is quarantined for why it should have been."""
        assert self.state.anew is not None, "the table is to be read anew"
        large = f"It has {size:,} bytes, more than pipeline.resync_max_bytes ({most:,}) lets be read anew unasked."
        kept = Quarantine(self.state.anew.error, f"{self.state.anew.reason} {large} {RESYNC}", time.time())
        self._change(stage="quarantined", needs_lsn=None, quarantine=kept, plan=None)
        self._tell_quarantine(kept)

    def types_to_read(self, columns: Iterable[CatalogColumn]) -> TypeRules:
        """By which it is to be read: those that it had, or the newest. Raises TargetError, SchemaChangeError.

        What stands in the lake as text already, of another log's making, stays text, unless it was asked for.
        """
        columns = tuple(columns)
        text_columns = {split_qualified(column) for column in self._target.text_columns}
        own = [c.name for c in columns if (self._target.namespace, self._target.name, c.name) in text_columns]
        newest = newest_types(columns, self._unbounded_numeric, own)
        if self.state.types is not None:
            return with_user_types(self.state.types, newest)
        state = None if self.state.anew is not None and self.state.anew.asked else self._target.sink().state()
        if state is None:
            return newest
        texts = {field.name for field in state.schema if pa.types.is_string(field.type)}
        kinds = {c.name: newest.column(c.name, c.type_oid, c.typmod, c.base_oid).arrow for c in columns}
        return replace(newest, text=tuple(n for n in kinds if n in texts and not pa.types.is_string(kinds[n])))

    def hold_as_text(self, column: str) -> bool:
        """Only text holds all of its values; False where its type has to stay."""
        types, anew = self.state.types, self.state.anew
        if types is None or not (anew is None or anew.asked):
            return False
        if column not in types.text:
            self._change(types=replace(types, text=(*types.text, column)))
            told = f"The column {column} has values, or shapes of arrays, that its type cannot hold: it lands as text."
            self._tell("schema_changed", told, "warning", other_type=[column])
        return True

    def begin_copy(self, plan: SnapshotPlan, rows: CatalogRows | None, types: TypeRules) -> None:
        """It is read by ``plan`` while the catalog has ``rows``; whatever an earlier one had read is forgotten."""
        kept, followed, anew = self.state.needs_lsn, Followed.of(plan), self.state.anew
        self._set_state(TableState("data_copy", kept, plan, followed=followed, anew=anew, rows=rows, types=types))
        self.folder.documents.remove_chunks(but=plan.plan_id)

    def resume_copy(self) -> None:
        """What was read of it by its plan counts, and the rest is read."""
        self._change(stage="data_copy", quarantine=None)

    def land(self, landed: Landed) -> None:
        """It is in the lake: it goes along with a stream that did not begin yet, or else has to catch up."""
        stage: Stage = "ready" if self.state.needs_lsn is None else "catch_up"
        self._change(stage=stage, landed=landed, quarantine=None)
        self.folder.documents.remove_chunks()
        self._tell("copied", "What was read of it is in the lake.", lsn=LSN(landed.lsn), chunks=len(self.plan.chunks))

    def fall_behind(self, lsn: int) -> None:
        """It is applied up to ``lsn``, and the stream goes on without it until it has caught up."""
        self._change(stage="catch_up", needs_lsn=LSN(lsn), quarantine=None)

    def retry(self) -> None:
        """Let a table of the lake that was left out catch up, if the log has what it has missed."""
        if self.state.needs_lsn is not None:
            self.fall_behind(self.state.needs_lsn)

    def try_again(self, lsn: int) -> None:
        """One that was left out is tried again right now: it catches up, or is read beside the stream at ``lsn``."""
        if self.quarantine is None:
            return
        self._tell("retried", "It was left out, and is tried again.")
        if self.in_lake and self.state.needs_lsn is not None:
            self.retry()
        else:
            self.read_anew(Wal2LakeError(self.quarantine.reason), lsn, asked=True)

    def skip(self) -> None:
        """It is left out for good, until it is asked for again, and the log keeps nothing for it."""
        skipped = Quarantine("", "It was left out by `wal2lake tables --skip`.", time.time(), skipped=True)
        self._change(stage="quarantined", needs_lsn=None, quarantine=skipped, plan=self.state.plan)
        self._tell("skipped", skipped.reason)

    def become_ready(self) -> None:
        """It stands where the stream does."""
        if not self.ready:
            anew = self.state.anew and replace(self.state.anew, times=0)
            self._change(stage="ready", needs_lsn=None, quarantine=None, anew=anew)
            self._tell("ready", "It has caught up, and goes along with the stream.")

    def set_quarantine(self, error: Exception, lsn: int) -> None:
        """Leave the table out; the log keeps what comes after ``lsn`` for it (0: it has to be read anew).

        What was read of one that is not in the lake is void as soon as the stream goes on, if it has begun.
        """
        quarantine = Quarantine(type(error).__name__, str(error), time.time())
        kept, plan = LSN(lsn) if lsn else None, self.state.plan
        if self.synchronizing and not self.in_lake:
            plan = None
        self._change(stage="quarantined", needs_lsn=kept, quarantine=quarantine, plan=plan)
        self._tell_quarantine(quarantine)

    def discard_copy(self) -> None:
        """The stream goes past changes of a table that is not in the lake, so what was read of it is out of date."""
        if self.state.plan is not None and not self.in_lake:
            self._change(plan=None)

    def leave(self) -> None:
        """The stream speaks of it by another name, under which it is another table of the lake."""
        self._change(stage="unpublished", needs_lsn=None, quarantine=None)
        self._tell("unpublished", "The stream speaks of it by another name, under which it is another table.")

    def doubt(self, now: CatalogRows | None) -> str | None:
        """Why the lake's table may be no copy, by the catalog rows of ``now``, as a sentence; None when it is one."""
        if self.state.rows is None or now is None:
            return "It is not known by which catalog rows the table was read."
        history = self.target.mode == "append"
        return doubt(self.state.rows, now, history=history) or (None if history else key_unsent(now, self.plan.key))

    def confirm(self, rows: CatalogRows, lsn: int) -> None:
        """What a look found explains itself: up to ``lsn`` nothing was kept from the stream (0: it cannot say).

        A column that the target does not have yet may be given values by a rewrite, which the noted files tell.
        """
        noted = self.state.rows
        assert noted is not None, "there is something to compare with"
        younger = {column.attnum for column in rows.columns} - {column.attnum for column in noted.columns}
        if younger <= set(self.state.followed.attnums.values()):
            self._change(rows=rows)
        self.unexplained = frozenset(), 0
        if lsn > self.confirmed_lsn:
            self.confirmed_lsn, self.confirmed_at = lsn, time.time()

    def follow(self, followed: Followed) -> None:
        """The target has followed the table's schema so far."""
        before = self.state.followed
        self._change(followed=followed)
        if changes := followed.changes_since(before):
            text = "; ".join(f"{what} {', '.join(columns)}" for what, columns in changes.items())
            values: dict[str, Any] = {what.replace(" ", "_"): columns for what, columns in changes.items()}
            told = f"Its schema changed: {text}."
            self._tell("schema_changed", told, "info", lsn=LSN(followed.lsn), **values)

    def forget(self) -> None:
        """It is not published any more: unless it came into the lake meanwhile, nothing is kept for it."""
        if not self.in_lake:
            self._set_state(TableState(anew=self.state.anew))

    def _tell_quarantine(self, quarantine: Quarantine) -> None:
        self._tell("quarantined", f"It is left out: {quarantine.reason}", "error", error=quarantine.error)

    def _tell(self, kind: Kind, text: str, level: Level = "info", **values: Any) -> None:
        self._events.record(kind, text, level=level, table=self._name, **values)

    def _change(self, **values: Any) -> None:
        self._set_state(replace(self.state, **values))

    def _set_state(self, state: TableState) -> None:
        state = replace(state, tried=self._tried(state))
        if state != self.state:
            self.folder.write(state)
            self.state = state

    def _tried(self, state: TableState) -> Quarantine | None:
        """Why it was left out is known until it stands where the stream does, or is not there to be tried."""
        forgotten = state.stage == "init" and state.needs_lsn is None
        if state.quarantine is not None or state.stage in ("ready", "unpublished") or forgotten:
            return None
        return self.state.failure


class Tables:
    """The tables of a pipeline by name, each there as soon as it was asked for, or did not go along when we began.

    Only the process that runs the pipeline (``exclusive``) may change them. Any of its threads may ask.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._events = Events(config.log.path, "pipeline", config.pipeline.name)
        self._by_name: dict[str, Table] = {}
        self._idle: dict[str, Table] = {}  # known, and nobody has asked for them yet
        self._some_landed = False
        self._begin_resyncs()
        for namespace, name in known_tables(storage_at(config.log.path), config.pipeline.name):
            table = Table(config, namespace, name, self._events)
            self._some_landed |= table.in_lake
            self._idle[str(table)] = table
            if table.synchronizing or table.quarantine is not None:
                self._by_name[str(table)] = table

    def _begin_resyncs(self) -> None:
        """Before any document is read: a damaged one may be why its table is to be read anew."""
        requests = Requests(self._config.log.path, self._config.pipeline.name)
        for request in requests.all():
            if request.wish == "resync":
                folder = TableFolder(self._config.log.path, self._config.pipeline.name, request.namespace, request.name)
                tried = None
                with suppress(LogCorruptError):
                    tried = folder.read().failure
                folder.documents.remove()
                folder.write(TableState(anew=Anew("", _ASKED, time.time(), asked=True), tried=tried))
                requests.done(request)

    def answer(self, stream: int) -> None:
        """Do what is wanted of tables by now; the stream stands at ``stream``. In a turn.

        A table that is being read is let be until it is.
        """
        requests = Requests(self._config.log.path, self._config.pipeline.name)
        for request in requests.all():
            table = self.of(request.namespace, request.name)
            if table.synchronizing and not table.in_lake:
                continue
            _WISHES[request.wish](table, stream)
            requests.done(request)

    def __iter__(self) -> Iterator[Table]:
        return iter(list(self._by_name.values()))

    def of(self, namespace: str, name: str) -> Table:
        key = qualified(namespace, name)
        if key not in self._by_name:
            known = self._idle.pop(key, None)
            self._by_name[key] = known or Table(self._config, namespace, name, self._events)
        return self._by_name[key]

    def owner(self, relation_id: int, namespace: str, name: str) -> Table:
        """The table that the log speaks of. An OID is what it is; its name may be another for a while."""
        named = self.of(namespace, name)
        if named.is_of(relation_id):
            return named
        every = [*self._by_name.values(), *self._idle.values()]
        others = (table for table in every if table.is_of(relation_id) and not table.quarantine and table.follows_oid)
        other = next(others, named)
        return self.of(other.target.namespace, other.target.name)

    @property
    def some_in_lake(self) -> bool:
        """The log alone is enough to go on with some."""
        self._some_landed = self._some_landed or any(table.in_lake for table in self)
        return self._some_landed

    def synchronizing(self) -> list[Table]:
        """Those that are brought to where the stream is, beside it."""
        return [table for table in self if table.synchronizing]

    def quarantined(self) -> list[tuple[str, Quarantine]]:
        """Those that are left out and that nobody wanted to be, by name, with their reasons."""
        return [(str(t), t.quarantine) for t in self if t.quarantine is not None and not t.quarantine.skipped]


def _resync(table: Table, stream: int) -> None:
    table.read_anew(Wal2LakeError(_ASKED), stream, asked=True)


def _skip(table: Table, stream: int) -> None:
    table.skip()


_WISHES: Final = {"retry": Table.try_again, "resync": _resync, "skip": _skip}
