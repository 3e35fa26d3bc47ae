"""Which files maintenance writes anew, with the same rows: many small ones become one, and much dead ones live ones.

The rule, where rows are marked: a row is written again only when about as much comes with it, so the cost of all
maintenance grows with what has changed, and not with what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wal2lake.sinks.datafiles import FILE_BYTES
from wal2lake.sinks.dead_rows import DeadRows
from wal2lake.sinks.rewrite import CommittedFiles

SMALL_FILES: Final = 48
PURGE_SHARE: Final = 0.25  # a file of which as great a part is dead is written anew
PURGE_BYTES: Final = 1 << 30  # of files that one maintenance takes for that, if more than one: batches wait for it


def to_rearrange(target: CommittedFiles) -> list[str]:
    """The files that are replaced by others of the same rows; mostly none."""
    sizes = dict(zip(target.files["path"].to_pylist(), target.files["size_bytes"].to_pylist(), strict=True))
    small = [path for path, size in sizes.items() if size < FILE_BYTES // 2]
    if target.mark_bytes is not None:
        small = _of_like_size(small, sizes)
    found = small if len(small) >= SMALL_FILES else []
    return found + [path for path in _much_dead(target.dead, sizes) if path not in found]


def _of_like_size(paths: Sequence[str], sizes: Mapping[str, int]) -> list[str]:
    """The smallest, up to the first that is larger than all before it together."""
    found: list[str] = []
    together = 0
    for path in sorted(paths, key=sizes.__getitem__):
        if len(found) >= SMALL_FILES and sizes[path] > together:
            break
        found.append(path)
        together += sizes[path]
    return found


def _much_dead(dead: DeadRows, sizes: Mapping[str, int]) -> list[str]:
    shares = {
        path: file.vector.cardinality / file.rows
        for path, file in dead.named.items()
        if file.vector is not None and file.rows
    }
    found: list[str] = []
    together = 0
    for path in sorted(shares, key=shares.__getitem__, reverse=True):
        together += sizes[path]
        if shares[path] < PURGE_SHARE or (found and together > PURGE_BYTES):
            break
        found.append(path)
    return found
