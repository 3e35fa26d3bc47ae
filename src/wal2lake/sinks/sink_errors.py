"""Whose trouble it is when a table's files cannot be used: the disk's, the storage's for now, or this one table's.

The system's error number tells, wherever there is one. A file that is missing or is not what it should be is its
table's. What has no number is a local table's as well; on an object store it may be anything.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import pyarrow as pa

from wal2lake.errors import RESYNC, ConnectError, RightsError, SinkError, Wal2LakeError
from wal2lake.files import Trouble, disk_full, trouble
from wal2lake.lakes import SETTING
from wal2lake.sinks.base import SinkUnavailableError, TargetError
from wal2lake.urls import is_object_url

T = TypeVar("T")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
# delta-rs, where it has one
_BACKTRACE: Final = re.compile(r"\s*(?:stack )?backtrace:.*|\n\s*0: .*", re.IGNORECASE | re.DOTALL)
_LONGEST: Final = 500  # characters of what a library says: it may go on and on about what it could not read
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")  # delta-rs, as Rust has it


class LakeRefusesError(SinkError):
    """The credentials for the lake's object store are good, and may not do this."""


def failure(uri: str, error: Exception) -> Wal2LakeError:
    """The error of ours for what a library or the system said of the table at ``uri``."""
    if is_object_url(uri) and not isinstance(error, FileNotFoundError | pa.ArrowException | MemoryError):
        from wal2lake.object_stores import explained, is_of_store  # noqa: PLC0415 - an extra

        if is_of_store(str(error)):
            return of_lake(explained(uri, str(error), SETTING))
    number = _number(error)
    kind = trouble(number)
    if number is not None and kind is Trouble.FULL:
        return disk_full(number, uri)
    message = f"The table at {uri} cannot be used: {_reason(error)}."
    if kind is Trouble.PASSING or isinstance(error, MemoryError):
        return SinkUnavailableError(message, hint="It is tried again.")
    if kind is Trouble.MISPLACED or isinstance(error, pa.ArrowException) or (number is None and not is_object_url(uri)):
        hint = f"A file is lost or damaged. Put it back, or move the table's folder away. {RESYNC}"
        return TargetError(message, hint=hint)
    return SinkError(message)


def of_lake(error: Wal2LakeError) -> Wal2LakeError:
    """What an object store says, as a sink says it: it is the lake's, and no one table's, and not the server's."""
    if isinstance(error, ConnectError):
        return SinkUnavailableError(error.message, hint="It is tried again.")
    if isinstance(error, RightsError):
        return LakeRefusesError(error.message, hint=error.hint)
    return error


@contextmanager
def using_file(uri: str) -> Iterator[None]:
    """What a library or the system says in the block, it says of a file of the table at ``uri``."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise failure(uri, error) from error


class GivenError(Exception):
    """Whoever made the rows failed, and not the table that they are for; the cause says how."""


def marking_given_errors(given: Iterable[T]) -> Iterator[T]:
    """What ``given`` raises leaves it as a GivenError."""
    try:
        yield from given
    except Exception as error:
        raise GivenError from error


def _number(error: Exception) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if isinstance(error, FileNotFoundError):
        return errno.ENOENT
    said = _OS_ERROR.search(str(error))
    return int(said.group(1)) if said else None


def _reason(error: Exception) -> str:
    """One plain line without a program's innards; Arrow's own sentences may quote values, so of those only the kind."""
    if isinstance(error, pa.ArrowException):
        return type(error).__name__
    said = " ".join(_BACKTRACE.sub("", _COLOUR.sub("", str(error))).split()).rstrip(".")
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} …"
