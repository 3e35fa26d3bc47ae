"""The rows of a table's files that are marked as gone, read from their vectors when somebody asks, and once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from wal2lake.apply.row_index import Ids
from wal2lake.deltadv.bitmap import Marked, marked, positions_of
from wal2lake.deltadv.log import DataFile
from wal2lake.deltadv.vectors import read_vector

_NONE: Final = Marked()


class DeadRows:
    """Of the files of one version; ``files``: the file system of the table's folder. Raises VectorError where it reads.

    ``named``: the files as the log names them, by path. ``marked``: what a commit that is on its way will say of some.
    """

    def __init__(self, files: Any = None, named: Mapping[str, DataFile] | None = None) -> None:
        self.named: Mapping[str, DataFile] = named or {}
        self.marked: Mapping[str, Marked] = {}
        self._files = files
        self._read: dict[str, Marked] = {}

    def after(self, marked: Mapping[str, Marked]) -> DeadRows:
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

    def of(self, path: str) -> Marked:
        """The file's marked rows."""
        if path in self.marked:
            return self.marked[path]
        known = self.named.get(path)
        if known is None or known.vector is None:
            return _NONE
        if path not in self._read:
            self._read[path] = read_vector(self._files, known.vector)
        return self._read[path]

    def with_others(self, path: str, positions: Ids) -> Marked:
        """Those, and ``positions``, which are none of them."""
        return self.of(path) | marked(positions)

    def positions(self, path: str, others: Ids) -> Ids:
        """int64, rising: the positions of both."""
        return positions_of(self.with_others(path, others)) if self.of(path) else others

    def live(self, path: str, places: Ids, start: int) -> Ids:
        """Those of ``places``, which rise and count from the row ``start`` of the file, that are not marked."""
        dead = self.of(path)
        if not dead or not len(places):
            return places
        gone = positions_of(dead & marked(places + start)) - start
        return np.delete(places, np.searchsorted(places, gone))


NONE_DEAD: Final = DeadRows()  # of files that nobody marks
