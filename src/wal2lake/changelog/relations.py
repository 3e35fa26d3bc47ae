"""The Relation and Type messages in force where a segment starts, kept once, beside the segments that need them.

The rule: what a segment costs does not depend on how many tables were announced before it. What is new is written as a
file of its own before the next segment, which names it, with those of the segments before it: a later file's messages
replace an earlier one's of the same kind and OID. A new file takes in the last ones as long as they are no larger than
what it has by then. So each file is larger than the next, there are as many as the logarithm of it all, and a message
is written as many times at the most.

A file's name begins with the number of the segment that it was written for, and ends with the digest of its bytes:
nobody reads it who has not checked it, and two that write one name write the same. A crash before the segment leaves a
file that no segment names. A segment names no other files than its own and those that the one before it names, and in a
new session of the stream none: so what neither the newest one names, nor one before it, nobody will need any more.

Until format 2 each segment had these messages in itself; such a segment counts as its own file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from wal2lake.changelog.documents import corrupt, parsing
from wal2lake.changelog.places import RELATIONS
from wal2lake.columnar.headers import subject

_SCHEMA = pa.schema([pa.field("payload", pa.binary(), nullable=False)])
_NAME = re.compile(rf"{RELATIONS}/(\d{{16,}})-[0-9a-f]{{32}}\.arrow")

Messages = Mapping[bytes, bytes]  # Relation and Type messages by their kind and OID (columnar.headers.subject)


class RelationsFile(NamedTuple):
    """A file's name, and what it says, or is to say."""

    name: str
    messages: Messages


@dataclass(frozen=True, slots=True)
class InForce:
    """All that the session has announced; ``files`` have it, but for what is ``fresh``."""

    messages: Messages = field(default_factory=dict)
    files: tuple[RelationsFile, ...] = ()
    fresh: Messages = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """What a segment that starts here names; for when nothing is fresh."""
        return tuple(file.name for file in self.files)

    def announce(self, payloads: Iterable[bytes]) -> Self:
        """With ``payloads`` in force as well; one that says what is in force already is none."""
        news = {subject(payload): payload for payload in payloads}
        news = {about: payload for about, payload in news.items() if self.messages.get(about) != payload}
        if not news:
            return self
        return replace(self, messages={**self.messages, **news}, fresh={**self.fresh, **news})

    def file(self, seq: int) -> tuple[Self, tuple[str, bytes] | None]:
        """The same with nothing fresh, for segment ``seq``; and the name and bytes of the file that this takes."""
        if not self.fresh:
            return self, None
        kept, due = list(self.files), dict(self.fresh)
        while kept and _size(kept[-1].messages) <= _size(due):
            due = {**kept.pop().messages, **due}
        data = write_messages(due.values())
        made = RelationsFile(_name(seq, data), due)
        return replace(self, files=(*kept, made), fresh={}), (made.name, data)


def _size(messages: Messages) -> int:
    return sum(map(len, messages.values()))


def _name(seq: int, data: bytes) -> str:
    return f"{RELATIONS}/{seq:016d}-{_digest(data)}.arrow"


def _digest(data: bytes | pa.Buffer) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def superfluous(names: Iterable[str], named: Sequence[tuple[int, Sequence[str]]]) -> list[str]:
    """Those of the files ``names`` that no segment will name; ``named``: what each does, by number, the newest last."""
    needed = {file for _, files in named for file in files}
    newest = named[-1][0] if named else -1
    written_for = {name: int(found[1]) for name in names if (found := _NAME.fullmatch(name))}
    return [name for name, seq in written_for.items() if seq <= newest and name not in needed]


def write_messages(payloads: Iterable[bytes]) -> bytes:
    """An Arrow IPC stream of the messages. Compressed: tables are described much alike, and there may be thousands."""
    payloads = list(payloads)
    offsets = np.cumsum([0, *map(len, payloads)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(payloads))]
    column = pa.Array.from_buffers(pa.binary(), len(payloads), buffers)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([column], schema=_SCHEMA))
    written: bytes = stream.getvalue().to_pybytes()
    return written


def read_messages(data: bytes | pa.Buffer, name: str) -> Messages:
    """What write_messages wrote into ``name``; raises LogCorruptError that names it."""
    with parsing(name):
        payloads = pa.ipc.open_stream(data).read_all().column("payload").to_pylist()
        return {subject(payload): once(payload) for payload in payloads}


def read_file(data: pa.Buffer, name: str) -> Messages:
    """The file ``name``, checked; raises LogCorruptError."""
    if not name.endswith(f"-{_digest(data)}.arrow"):
        raise corrupt(name, "it is damaged, its name is not that of its bytes")
    return read_messages(data, name)


@lru_cache(maxsize=1 << 14)
def once(payload: bytes) -> bytes:
    """The same object for the same message: what is in force changes by one table at a time."""
    return payload
