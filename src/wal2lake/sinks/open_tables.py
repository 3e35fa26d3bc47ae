"""Delta tables stay open between batches: opening one reads its log, which a commit leaves as it was but for one file.

The rule: what is kept counts only while the log's folder bears it out. The file of the version that was seen last must
be the very same one, and where there is a next one the table is read on before anybody uses it. What the versions say
of app transactions is kept for that version alone, and carried over to the next one only where that is our own commit's
file. Any error opens the table anew; and so does each use of one in an object store whose credentials are for a while.

A table is lent to one operation at a time: who else wants it meanwhile opens it for itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from deltalake import DeltaTable

from wal2lake.sinks.folder import Folder

KEPT: Final = 1000  # tables; each takes some 100 kB
T = TypeVar("T")


class _Commit(NamedTuple):
    """One of ours, by its file, and the app transactions that it says."""

    stamp: object
    transactions: Mapping[str, int]


class OpenTable:
    """A table that is open in the version that was newest when it was opened or refreshed."""

    def __init__(self, folder: Folder) -> None:
        """Raises as DeltaTable does."""
        options = folder.place.storage_options()
        self.table = DeltaTable(folder.uri, storage_options=options)
        self.lasts = not any("token" in name for name in options or ())
        self._folder = folder
        self._transactions: dict[str, int | None] = {}
        self._kept: dict[str, Any] = {}
        self._made: dict[str, Any] = {}
        self._ours: _Commit | None = None
        self._note()

    def refresh(self) -> bool:
        """Read on to the newest version; False where what was read is not what is there, so that it is of no use."""
        version = self.table.version()
        if version != self._version or self._stamp is None or self._stamp_of(version) != self._stamp:
            return False
        if (stamp := self._stamp_of(version + 1)) is not None:
            self.table.update_incremental()
            by_one = self.table.version() == version + 1
            if self._ours is not None and by_one and self._ours.stamp == stamp:
                self._transactions |= self._ours.transactions
            else:
                self._transactions.clear()
            self._note(stamp if by_one else None)
        return True

    def transaction_version(self, app_id: str) -> int | None:
        """DeltaTable's, which reads through all commits since the last checkpoint, asked once for each version."""
        if self.table.version() != self._version:
            return self.table.transaction_version(app_id)
        if app_id not in self._transactions:
            self._transactions[app_id] = self.table.transaction_version(app_id)
        return self._transactions[app_id]

    def of_version(self, name: str, ask: Callable[[DeltaTable], T]) -> T:
        """What ``ask`` says of the table, which is asked once for each version; ``name``: of the question."""
        if self.table.version() != self._version:
            return ask(self.table)
        if name not in self._kept:
            self._kept[name] = ask(self.table)
        answer: T = self._kept[name]
        return answer

    def as_long_as_open(self, name: str, make: Callable[[], T]) -> T:
        """What ``make`` made when it was asked for first; the log behind it only grows."""
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made

    def committed(self, transactions: Mapping[str, int]) -> None:
        """The next version is our own commit, which said these."""
        self._ours = _Commit(self._stamp_of(self._version + 1), transactions)

    def _note(self, stamp: object = None) -> None:
        self._version = self.table.version()
        self._kept.clear()
        self._stamp = stamp or self._stamp_of(self._version)
        self._ours = None

    def _stamp_of(self, version: int) -> object:
        return self._folder.stamp(f"_delta_log/{version:020d}.json")


class OpenTables:
    """Those that are not lent, by URI, the one that was used longest ago first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, OpenTable] = OrderedDict()
        self._lock = threading.Lock()

    def borrow(self, folder: Folder) -> OpenTable:
        """The folder's table in its newest version. Raises as DeltaTable does."""
        with self._lock:
            known = self._kept.pop(folder.uri, None)
        return known if known is not None and known.refresh() else OpenTable(folder)

    def give_back(self, folder: Folder, table: OpenTable) -> None:
        """Nobody uses it any more."""
        if table.lasts:
            with self._lock:
                self._kept[folder.uri] = table
                self._kept.move_to_end(folder.uri)
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)


OPEN_TABLES: Final = OpenTables()  # of this process
