"""A small file of the log's folder is one JSON object whose last member is the CRC-32 of all bytes before it.

The rule: whoever writes a document that is read back writes it here, and whoever reads one checks it here, so a damaged
one is named, with its cure, and never believed. No byte goes unchecked: the checksum's member, which it cannot cover
itself, has one spelling and stands at the very end.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from wal2lake.errors import BEGIN_ANEW, RESYNC, LogCorruptError

RESTORE: Final = (
    f"Restore it from a copy of the log's folder. Without one, every table must be read again: {BEGIN_ANEW}."
)
TABLE_CURE: Final = f"Restore it from a copy of the log's folder, or give what is known of its table up. {RESYNC}"
_CHECKSUM: Final = "crc32"


def write_document(values: Mapping[str, Any]) -> bytes:
    """``values``, at least one, as a document: indented JSON, for people read it too."""
    head = json.dumps(values, indent=1).encode().removesuffix(b"\n}")
    return head + _last_member(head)


def read_document(data: bytes, name: str, cure: str = RESTORE) -> dict[str, Any]:
    """What write_document was given, tuples as lists. Raises LogCorruptError that names the file and says ``cure``."""
    head = data[: -len(_last_member(b""))]
    if data != head + _last_member(head):
        raise corrupt(name, "it is damaged, its checksum does not hold", cure)
    with parsing(name, cure):
        values: dict[str, Any] = json.loads(data)
        del values[_CHECKSUM]
        return values


@contextmanager
def parsing(name: str, cure: str = RESTORE) -> Iterator[None]:
    """Whatever the bytes of the file make the block raise is one error that names the file."""
    try:
        yield
    except (LogCorruptError, MemoryError):
        raise
    except Exception as error:  # what a parser makes of wrong bytes is anything: IndexError, ArrowInvalid, KeyError …
        raise corrupt(name, f"it does not parse ({type(error).__name__})", cure) from error


def corrupt(name: str, why: str, cure: str = RESTORE) -> LogCorruptError:
    """The error for the change log file ``name``; ``why`` is half a sentence."""
    return LogCorruptError(f"The change log file {name} cannot be read: {why}.", hint=cure)


def _last_member(head: bytes) -> bytes:
    return b',\n "%s": "%08x"\n}' % (_CHECKSUM.encode(), zlib.crc32(head))
