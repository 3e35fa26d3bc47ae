"""The rows of a table's files that are marked as gone, read from their vectors when somebody asks, and once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from wal2lake.apply.row_index import Ids
from wal2lake.deltadv.log import DataFile
from wal2lake.deltadv.vectors import read_vector

_NONE: Ids = np.empty(0, np.int64)


class DeadRows:
    """Of the files of one version; ``files``: the file system of the table's folder. Raises VectorError where it reads.

    ``named``: the files as the log names them, by path. ``marked``: what a commit that is on its way will say of some.
    """

    def __init__(self, files: Any = None, named: Mapping[str, DataFile] | None = None) -> None:
        self.named: Mapping[str, DataFile] = named or {}
        self.marked: Mapping[str, Ids] = {}
        self._files = files
        self._read: dict[str, Ids] = {}

    def after(self, marked: Mapping[str, Ids]) -> DeadRows:
        """The same, when these rows and no others are marked in these files."""
        if not marked:
            return self
        then = DeadRows(self._files, self.named)
        then.marked = {**self.marked, **marked}
        then._read = self._read  # what was read is the same
        return then

    def concerns(self, removed: Sequence[str]) -> bool:
        """Whether a commit that removes these files has to speak of vectors."""
        had = (self.named[path].vector for path in removed if path in self.named)
        return bool(self.marked) or any(vector is not None for vector in had)

    def of(self, path: str) -> Ids:
        """int64, rising: the positions of the file's marked rows."""
        if path in self.marked:
            return self.marked[path]
        known = self.named.get(path)
        if known is None or known.vector is None:
            return _NONE
        if path not in self._read:
            self._read[path] = read_vector(self._files, known.vector)
        return self._read[path]

    def with_others(self, path: str, positions: Ids) -> Ids:
        """int64, rising: those, and ``positions``, which are none of them."""
        dead = self.of(path)
        return np.sort(np.concatenate([dead, positions])) if len(dead) else positions

    def live(self, path: str, places: Ids, start: int) -> Ids:
        """Those of ``places``, which rise and count from the row ``start`` of the file, that are not marked."""
        dead = self.of(path)
        if not len(dead) or not len(places):
            return places
        at = np.minimum(np.searchsorted(dead, places + start), len(dead) - 1)
        found: Ids = places[dead[at] != places + start]
        return found


NONE_DEAD: Final = DeadRows()  # of files that nobody marks
