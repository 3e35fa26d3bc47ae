"""A lock where there is none: an object that says who holds it, which its holder writes anew every few seconds.

The rule: nobody's clock is compared with another's. A lease has run out when its object stayed the same for LEASE_S
by the clock of the one who looks; or, on the holder's own machine, when the holder's process is gone. A holder that
slept may wake beside its successor, so a lease protects nothing by itself: it has an epoch, higher than any before,
which what is written names (writer.py), and its holder looks again, before it writes, when it could not renew in time.

What a holder writes anew is put only over what it wrote itself, so the first of two that take it over has it.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from wal2lake.changelog.documents import read_document, write_document
from wal2lake.changelog.storage import Hold, Version
from wal2lake.errors import LogCorruptError, Wal2LakeError
from wal2lake.files import LockHeldError

if TYPE_CHECKING:
    from wal2lake.changelog.storage import Storage

LEASE_S: Final = 7.5
RENEW_S: Final = 2.5
_MARGIN_S: Final = 60.0  # between the store's clock and ours; for who only wants to know
_logger = logging.getLogger(__name__)
_seen: dict[tuple[str, str], tuple[Version, float]] = {}  # leases of others, as they were and since when
_tokens: set[str] = set()  # of the leases that this process has, or asks for just now


class _Found(NamedTuple):
    """``holder``: for people, empty when it was given back; ``process``: which one, as ``_this_process`` says it;
    ``token``: of this one time that it was taken."""

    epoch: int
    holder: str
    process: str
    token: str
    version: Version


class Lease(Hold):
    """One that is held, and renewed by a thread."""

    def __init__(self, storage: Storage, name: str, epoch: int, token: str, version: Version) -> None:
        self.epoch, self._token = epoch, token
        self._storage, self._name, self._version = storage, name, version
        self._renewals, self._renewed = 0, clock()
        self._lost_to: str | None = None
        self._ended = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._lost_to is None and not self._ended.is_set() and clock() - self._renewed > LEASE_S:
            self._renew()  # it slept, or the store did
        if self._lost_to is not None:
            raise LockHeldError(self._lost_to)

    def end(self) -> None:
        """Give it back."""
        self._ended.set()
        self._thread.join()
        with suppress(Wal2LakeError, OSError):  # it runs out
            if self._lost_to is None:
                self._storage.swap(self._name, _document(self.epoch, self._token, "", 0), self._version)

    def _run(self) -> None:
        while not self._ended.wait(RENEW_S) and self._lost_to is None:
            try:
                self._renew()
            except (Wal2LakeError, OSError) as error:
                _logger.warning("The lease %s/%s cannot be renewed now: %s", self._storage.where, self._name, error)

    def _renew(self) -> None:
        with self._one_at_a_time:
            began, self._renewals = clock(), self._renewals + 1
            document = _document(self.epoch, self._token, _holder(), self._renewals)
            version = self._storage.swap(self._name, document, self._version)
            if version is None:
                found = _find(self._storage, self._name)
                if found is None or found.token != self._token:
                    self._lost_to = found.holder if found and found.holder else "another"
                    _logger.warning(
                        "The lease %s/%s is held by %s now.", self._storage.where, self._name, self._lost_to
                    )
                    return
                version = self._storage.swap(self._name, document, found.version)  # an answer was lost before
            if version is not None:
                self._version, self._renewed = version, began


@contextmanager
def leased(storage: Storage, name: str) -> Iterator[Hold]:
    """Hold the lease ``name`` in the block. Raises LockHeldError while somebody has it, or may have it."""
    found = _find(storage, name)
    if found is not None and _is_alive(storage, name, found):
        raise LockHeldError(found.holder)
    epoch, token = 1 if found is None else found.epoch + 1, uuid4().hex
    _tokens.add(token)  # not longer than the block: what is taken by a put that nobody answered is nobody's
    try:
        document = _document(epoch, token, _holder(), 0)
        version = storage.swap(name, document, None if found is None else found.version)
        if version is None:
            raise LockHeldError("another that took it just now")
        lease = Lease(storage, name, epoch, token, version)
        try:
            yield lease
        finally:
            lease.end()
    finally:
        _tokens.discard(token)


def is_leased(storage: Storage, name: str) -> bool:
    """Whether somebody holds it, as far as can be told at once."""
    found = _find(storage, name)
    if found is None or not _is_alive(storage, name, found):
        return False
    try:
        return time.time() - storage.modified(name) < LEASE_S + _MARGIN_S
    except FileNotFoundError:
        return False


def _find(storage: Storage, name: str) -> _Found | None:
    try:
        data, version = storage.read(name)
    except FileNotFoundError:
        return None
    try:
        values = read_document(data, name)
        return _Found(
            int(values["epoch"]), str(values["holder"]), str(values["process"]), str(values["token"]), version
        )
    except (LogCorruptError, KeyError, TypeError, ValueError):
        raise LogCorruptError(
            f"{name} of the log {storage.where} is damaged.", hint="Restore it from a copy."
        ) from None


def _is_alive(storage: Storage, name: str, found: _Found) -> bool:
    """Whether its holder may be."""
    if not found.holder or _is_gone(found.process):
        return False
    if found.process and found.process == _this_process() and found.token not in _tokens:
        return False
    key = (storage.where, name)
    version, since = _seen.get(key, ("", 0.0))
    if version != found.version:
        _seen[key] = found.version, clock()
        return True
    return clock() - since < LEASE_S


def _document(epoch: int, token: str, holder: str, renewals: int) -> bytes:
    values: dict[str, Any] = {"epoch": epoch, "token": token, "holder": holder, "renewals": renewals}
    return write_document({**values, "process": _this_process()})


def _holder() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"


def clock() -> float:
    """Seconds; it goes on while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _this_process() -> str:
    """Of no other process anywhere; or empty, where the system does not tell."""
    return _process(os.getpid())


def _process(pid: int) -> str:
    try:
        return f"{_machine()} {pid} {_started(pid)}"
    except (OSError, IndexError):
        return ""


def _machine() -> str:
    """This boot of this machine, and the numbers of processes that are seen in this container of it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _started(pid: int) -> str:
    """When, in ticks since the boot: field 22 of proc(5)'s stat, the second of which may hold blanks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _is_gone(process: str) -> bool:
    """It was one of this machine, and is no more. One that is a zombie holds nothing any more either."""
    known, _, started = process.rpartition(" ")
    machine, _, pid = known.rpartition(" ")
    try:
        if not machine or machine != _machine() or not pid.isdecimal():
            return False
    except OSError:
        return False
    try:
        return _started(int(pid)) != started or _is_zombie(int(pid))
    except OSError:
        return True


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
