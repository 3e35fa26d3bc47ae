"""Where the log's files are is a port: whole objects by name, and two conditions under which one is written.

The rule: nobody above this port renames, links or locks a file. What must not be written twice is put if absent
(``create``); what is read, changed and written again is written only over what was read (``swap``). An object store
has both as conditional PUTs (``If-None-Match: *``, ``If-Match: <ETag>``), lists by prefix, and reads by GET. ``lock``
keeps two processes from the same work; what they write is safe without it, by the conditions, so a lease that runs out
under a process that sleeps will do. Whoever gets one has an ``epoch``, which what he writes may name.

Names are relative and use ``/``. Methods raise LogFullError where there is no room, ConfigError where the place cannot
be used, FileNotFoundError for a name that is not there; any other OSError passes. A store that is asked over a network
raises ConnectError where nobody answers, AuthError and RightsError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from wal2lake.errors import SlotInUseError
from wal2lake.files import LockHeldError

if TYPE_CHECKING:
    import pyarrow as pa

Version = str  # of an object's content, for ``swap``; means nothing else


class Hold:
    """What ``lock`` gives. ``epoch``: higher than that of whoever held the lock before; 0 where none can outlive it."""

    epoch = 0

    def check(self) -> None:
        """Raise LockHeldError when somebody else has the lock by now: ours ran out."""


class Stored(NamedTuple):
    """An object as it was at one moment."""

    data: bytes
    version: Version


class Storage(Protocol):
    """Whole objects by name. When a writing method returns, what it wrote survives a power cut, but for ``note``."""

    tell_s: float
    """How often, in seconds, somebody should tell how he is, or ask what he waits for, who does so all the time."""
    look_s: float
    """The same of looking for what is new; 0: as often as it pleases him."""

    @property
    def where(self) -> str:
        """The place, for people."""

    def get(self, name: str) -> bytes: ...

    def read(self, name: str) -> Stored:
        """As ``get``, with the version that ``swap`` asks for."""

    def map(self, name: str) -> pa.Buffer:
        """The object's bytes, without a copy where that can be had."""

    def map_ends(self, names: Sequence[str], begins: Callable[[bytes], int]) -> Iterator[pa.Buffer | None]:
        """As ``map``, of several; None for one that is not there. What stands before ``begins``, which is asked with an
        object's last bytes, may be anything: nobody looks at it."""

    def exists(self, name: str) -> bool: ...

    def watchable(self, folder: str) -> str | None:
        """Its path, where the system of this machine may tell of what comes into it; None where there is no such."""

    def names(self, folder: str) -> list[str]:
        """What lies directly in ``folder``, without what begins with a dot, sorted; [] when there is no such folder."""

    def folders(self, folder: str) -> list[str]:
        """The folders directly in ``folder``, sorted."""

    def modified(self, name: str) -> float:
        """When the object was published, in seconds since 1970."""

    def create(self, name: str, *parts: bytes | pa.Buffer) -> bool:
        """Put ``name`` if it is absent: all parts, one behind the other. False, and nothing changed, when it is there.

        Whoever does not get an answer may find, asking again, that it is there: their own.
        """

    def swap(self, name: str, data: bytes, version: Version | None) -> Version | None:
        """Put ``name`` if it is of ``version`` (None: absent); the new version, or None when somebody changed it.

        What repeats a put by itself that was not answered has to tell its own from somebody else's.
        """

    def put(self, name: str, data: bytes) -> None:
        """Put ``name``, whatever is there."""

    def note(self, name: str, data: bytes) -> None:
        """As ``put``, for what nobody misses after a power cut."""

    def remove(self, *names: str) -> None:
        """Forget these; they may be gone already."""

    def prepare(self, *folders: str) -> None:
        """Make the place and ``folders`` in it, where folders exist."""

    def recover(self, *folders: str) -> None:
        """After a writer that died: what it left half written in ``folders`` goes, and what is whole is made to last.
        Only their single writer may call this."""

    def clear(self) -> bool:
        """Delete the log that is here, and nothing else; False when there is none, whole or not."""

    def lock(self, name: str) -> AbstractContextManager[Hold]:
        """Be the only one who holds ``name``, until the block or the process ends. Raises LockHeldError."""

    def is_locked(self, name: str) -> bool: ...


@contextmanager
def held(storage: Storage, name: str, in_use: Callable[[str], SlotInUseError]) -> Iterator[Hold]:
    """Hold the lock ``name``; when another process does, raises what ``in_use`` makes of that one's name for itself."""
    with ExitStack() as stack:
        try:
            hold = stack.enter_context(storage.lock(name))
        except LockHeldError as error:
            raise in_use(error.holder) from None
        yield hold
