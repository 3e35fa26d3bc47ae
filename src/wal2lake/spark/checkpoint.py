"""Spark's checkpoint of the stream, checked before Spark reads it: what it says may be lost, and costs a little time.

Nothing is decided by it, for what is applied stands in the tables' commits. Spark flushes none of its files, so a power
cut may leave some empty or torn, and Spark would fail on those at every start. Such a checkpoint is put aside, and the
stream begins where the log does; tables pass over what they have. So it goes with a file that its checksums contradict:
an offset with a digit too high would have the stream pass over changes.

Source: Spark's HDFSMetadataLog, OffsetSeqLog and CommitLog: one file per batch, named by its number: a version, then
lines of JSON, of which an offset is the last. Hadoop's ChecksumFileSystem: a hidden file beside each, with "crc", a
zero byte, the bytes per checksum (int32, big-endian), and a CRC-32 for each so many bytes.
"""

from __future__ import annotations

import json
import logging
import re
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SUMS_OF = 512  # bytes, Hadoop's default
_SUMS_BEGIN = b"crc\0" + _SUMS_OF.to_bytes(4, "big")
_VERSION = re.compile(r"v\d+")
_logger = logging.getLogger(__name__)


def committed_lsn(checkpoint: Path) -> int | None:
    """The end of the last batch that Spark counts as done; None when there is none, or nobody can tell."""
    done = _batches(checkpoint / "commits")
    try:
        return _lsn(checkpoint / "offsets" / str(max(done))) if done else None
    except (FileNotFoundError, ValueError):
        return None


def batch_bounds(checkpoint: Path, number: int, beginning: int) -> tuple[int, int]:
    """The batch ``number`` as (start, end]: Spark writes its end before it calls anyone, and keeps that of the one
    before. ``beginning``: where the stream's first batch starts. Raises ValueError for a file that is not whole."""
    start = _lsn(checkpoint / "offsets" / str(number - 1)) if number else beginning
    return start, _lsn(checkpoint / "offsets" / str(number))


def require_readable(checkpoint: Path, beginning: int) -> None:
    """Put the checkpoint aside, with a warning, unless Spark can go on from it; ``beginning``: where the log begins."""
    damage = _damage(checkpoint, beginning)
    if damage is None:
        _remove_stale_checksums(checkpoint)
        return
    aside = checkpoint.with_name(f"{checkpoint.name}~unreadable-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    checkpoint.rename(aside)
    _logger.warning("Spark's checkpoint is of no use (%s): it is now %s, the stream begins anew.", damage, aside)


def _damage(checkpoint: Path, beginning: int) -> str | None:
    """What would keep Spark from going on. It reads its metadata, the last offsets and the last commit."""
    offsets, commits = checkpoint / "offsets", checkpoint / "commits"
    planned, done = _batches(offsets), _batches(commits)
    try:
        metadata = checkpoint / "metadata"
        if metadata.exists() and (_contradicts_checksums(metadata) or "id" not in json.loads(metadata.read_text())):
            raise ValueError
        for number in planned:
            _lsn(offsets / str(number))
        for number in done:
            _lines(commits / str(number))
    except ValueError:  # of JSON and Unicode too
        return "a file of it is empty, torn or damaged"
    needed = {*planned[-1:], *(number - 1 for number in planned[-1:] if number), *done[-1:]}
    if not needed.issubset(planned):
        return "a file of it is missing"
    if done and _lsn(offsets / str(done[-1])) < beginning:
        return "it is older than the change log"
    return None


def _batches(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal())


def _lines(path: Path) -> Sequence[Any]:
    """What follows the version; raises ValueError when that is not what Spark wrote."""
    if _contradicts_checksums(path):
        raise ValueError(f"{path.name} is not what its checksums are of")
    version, *lines = path.read_text().strip().splitlines() or [""]
    if not _VERSION.fullmatch(version) or not lines:
        raise ValueError(f"{path.name} is not whole")
    return [json.loads(line) for line in lines]


def _lsn(path: Path) -> int:
    offset = _lines(path)[-1]
    if not isinstance(offset, dict) or not isinstance(offset.get("lsn"), int):
        raise ValueError(f"{path.name} has no offset")
    return int(offset["lsn"])


def _contradicts_checksums(path: Path) -> bool:
    """Its checksums are whole, and of other bytes. What is torn or not there says nothing."""
    found, due = _stored_checksums(path), _computed_checksums(path)
    return found != due and found[: len(_SUMS_BEGIN)] == _SUMS_BEGIN and len(found) == len(due)


def _stored_checksums(path: Path) -> bytes:
    try:
        return path.with_name(f".{path.name}.crc").read_bytes()
    except FileNotFoundError:
        return b""


def _computed_checksums(path: Path) -> bytes:
    data = path.read_bytes()
    parts = (data[at : at + _SUMS_OF] for at in range(0, len(data), _SUMS_OF))
    return _SUMS_BEGIN + b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)


def _remove_stale_checksums(checkpoint: Path) -> None:
    """Those that are torn, or have lost their file: Hadoop refuses a file for that, and without any it reads it."""
    for folder in (checkpoint, checkpoint / "offsets", checkpoint / "commits"):
        for sums in folder.glob(".*.crc"):
            path = folder / sums.name[1 : -len(".crc")]
            if not path.exists() or _stored_checksums(path) != _computed_checksums(path):
                sums.unlink(missing_ok=True)
