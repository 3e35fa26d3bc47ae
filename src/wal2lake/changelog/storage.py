"""Where the log's files are is a port: whole objects by name, and two conditions under which one is written.

The rule: nobody above this port renames, links or locks a file. What must not be written twice is put if absent
(``create``); what is read, changed and written again is written only over what was read (``swap``). An object store
has both as conditional PUTs (``If-None-Match: *``, ``If-Match: <ETag>``), lists by prefix, and reads by GET. ``lock``
keeps two processes from the same work; what they write is safe without it, by the conditions, so a lease that runs out
under a process that sleeps will do.

Names are relative and use ``/``. Methods raise LogFullError where there is no room, ConfigError where the place cannot
be used, FileNotFoundError for a name that is not there; any other OSError passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from wal2lake.errors import SlotInUseError
from wal2lake.files import LockHeldError

if TYPE_CHECKING:
    import pyarrow as pa

Version = str  # of an object's content, for ``swap``; means nothing else


class Stored(NamedTuple):
    """An object as it was at one moment."""

    data: bytes
    version: Version


class Storage(Protocol):
    """Whole objects by name. When a writing method returns, what it wrote survives a power cut, but for ``note``."""

    @property
    def where(self) -> str:
        """The place, for people."""

    def get(self, name: str) -> bytes: ...

    def read(self, name: str) -> Stored:
        """As ``get``, with the version that ``swap`` asks for."""

    def map(self, name: str) -> pa.Buffer:
        """The object's bytes, without a copy where that can be had."""

    def exists(self, name: str) -> bool: ...

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

    def remove(self, name: str) -> None:
        """Forget ``name``; it may be gone already."""

    def prepare(self, *folders: str) -> None:
        """Make the place and ``folders`` in it, where folders exist."""

    def recover(self, *folders: str) -> None:
        """After a writer that died: what it left half written in ``folders`` goes, and what is whole is made to last.
        Only their single writer may call this."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Be the only one who holds ``name``, until the block or the process ends. Raises LockHeldError."""

    def is_locked(self, name: str) -> bool: ...


@contextmanager
def held(storage: Storage, name: str, in_use: Callable[[str], SlotInUseError]) -> Iterator[None]:
    """Hold the lock ``name``; when another process does, raises what ``in_use`` makes of that one's name for itself."""
    with ExitStack() as stack:
        try:
            stack.enter_context(storage.lock(name))
        except LockHeldError as error:
            raise in_use(error.holder) from None
        yield
