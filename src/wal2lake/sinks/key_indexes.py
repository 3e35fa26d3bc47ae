"""The key indexes of a table's data files: found, made where there is none, and removed where the file is gone.

They lie in a folder of the table's whose name hides it from whoever reads or vacuums a folder of data files.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from wal2lake.sinks.key_index import about, open_index, write_index

INDEXES: Final = "_wal2lake"
_SUFFIX: Final = ".keys"
_logger = logging.getLogger(__name__)


class KeyIndexes:
    """Of a table, in the folder ``table`` of this machine: its own, or one for it alone. ``identity``: the table's,
    which its database does not know; it seeds the hash of keys."""

    def __init__(self, table: Path, identity: str = "") -> None:
        self.seed = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:16])
        self._folder = table / INDEXES

    def runs(
        self, path: str, size: int, rows: int, key: Sequence[pa.Field], read: Callable[[], Iterator[pa.Table]]
    ) -> list[pa.RecordBatch] | None:
        """The index of the data file ``path``, of ``size`` bytes and ``rows`` rows, whose ``key`` columns ``read``
        reads; None where it has none, and the columns must be read."""
        if "/" in path:  # not of ours
            return None
        target = self._folder / f"{path}{_SUFFIX}"
        said = about(key, size, rows, self.seed)
        found = open_index(target, said)
        if found is None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                write_index(target, read(), [column.type for column in key], said, self.seed)
            except OSError as error:
                _logger.warning("No key index is made at %s: %s", target, error.strerror or type(error).__name__)
            found = open_index(target, said)
        return found or None

    def remove_others(self, live: Collection[str]) -> None:
        """Remove what is not of a data file of these."""
        wanted = {f"{path}{_SUFFIX}" for path in live}
        for path in self._folder.iterdir() if self._folder.exists() else ():
            if path.name not in wanted:
                path.unlink(missing_ok=True)
