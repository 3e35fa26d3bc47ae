"""Whose failure it is: one table's names the table and its cure, so that the others can go on.

Work for one table that fails in a way nobody foresaw is that table's failure too: the same data would end the pipeline
again and again, and with it all other tables. What the system lacks (memory, a device, disk) is everybody's, and so is
a change log that cannot be read: no table is left out for either.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import psycopg

import wal2lake
from wal2lake.errors import (
    LogCorruptError,
    ProtocolError,
    RightsError,
    SchemaChangeError,
    ServerConfigError,
    ServerError,
    SlotLostError,
    SparkError,
    UnrepresentableError,
    Wal2LakeError,
)
from wal2lake.files import Trouble, disk_full, trouble
from wal2lake.postgres.errors import map_error
from wal2lake.sinks.base import NotACopyError, TargetError
from wal2lake.tables.state import Quarantine
from wal2lake.wire.command_text import quote_identifier

if TYPE_CHECKING:
    from wal2lake.postgres.catalog import PublishedTable

_logger = logging.getLogger(__name__)
_CODE: Final = Path(wal2lake.__file__).parent


class SparkLostError(SparkError):
    """A task, job or query ended for a reason of Spark's or the system's own: a process died, memory ran out."""

    transient: ClassVar[bool] = True


class WorkerLostError(SparkLostError):
    """A Python process of Spark's did not start in time, or died; Spark itself is well, and may be asked again."""


class DefectError(Wal2LakeError):
    """A table's data or schema brought out what the code did not foresee. It names the place, never a value."""


# They concern one table when its part of the work raises them; the others go on.
TABLE_ERRORS = (
    UnrepresentableError,
    SchemaChangeError,
    TargetError,
    ProtocolError,
    RightsError,
    ServerError,
    DefectError,
)

# What happened to a table cannot be followed; reading the table anew makes it good.
UNFOLLOWABLE = (SchemaChangeError, NotACopyError)


@contextmanager
def errors_of(relation: str) -> Iterator[None]:
    """What the block does is one table's work; every exception leaves it as one of our errors."""
    try:
        yield
    except (Wal2LakeError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of delta-rs is no Exception
        raise _system_error(error, relation) or _defect(error, relation) from error


@contextmanager
def reading_log(path: str) -> Iterator[None]:
    """What fails in the block is the change log's trouble, and no table's."""
    try:
        yield
    except (Wal2LakeError, MemoryError):
        raise
    except OSError as error:
        hint = "The system says so of its files; it is tried again."
        raise SparkLostError(f"The change log {path} cannot be read now: {_reason(error)}.", hint=hint) from error
    except Exception as error:
        hint = "Run `wal2lake log verify`, and restore what it names from a copy of the log's folder."
        message = f"The change log {path} cannot be read: {type(error).__name__} at {_place(error)}."
        raise LogCorruptError(message, hint=hint) from error


def _system_error(error: BaseException, relation: str) -> Wal2LakeError | None:
    """The error for what a system lacks or a server says."""
    if isinstance(error, psycopg.Error):
        return map_error(error)
    if isinstance(error, MemoryError):
        hint = "Give Spark's workers more, or smaller batches (pipeline.max_bytes_per_trigger); it is tried again."
        return SparkLostError("Memory ran out.", hint=hint, relation=relation)
    if isinstance(error, OSError) and trouble(error) is Trouble.FULL:
        return disk_full(error, relation=relation)
    if isinstance(error, OSError):
        return SparkLostError(f"The system failed: {_reason(error)}.", hint="It is tried again.", relation=relation)
    return None


def _defect(error: BaseException, relation: str) -> DefectError:
    """An exception's own text may quote values, and so may its causes': only the lines of code that it passed are
    logged."""
    passed = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    _logger.error("%s in the work for %s:\n%s", type(error).__name__, relation, passed)
    return DefectError(
        f"wal2lake cannot handle this table: {type(error).__name__} at {_place(error)}.",
        hint="Please report this sentence, and what was done to the table last. Every start tries it again; "
        "if it stays, take the table out of the publication.",
        relation=relation,
    )


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _place(error: BaseException) -> str:
    """The innermost line of ours that the exception passed."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [(file.relative_to(_CODE), line) for file, line in frames if file.is_relative_to(_CODE)]
    return "{}, line {}".format(*ours[-1]) if ours else "a place outside of it"


@contextmanager
def reading_table(table: PublishedTable) -> Iterator[None]:
    """What the server refuses in the block is refused for this table; what passes (ConnectError …) stays what it is.

    Some of its SQLSTATEs stand for other things elsewhere: 58P01, a missing file, for WAL that a slot lost.
    """
    schema = quote_identifier(table.namespace)
    try:
        yield
    except RightsError as error:
        grants = f"GRANT USAGE ON SCHEMA {schema} and GRANT SELECT ON {table.quoted} to the pipeline's role"
        hint = f"{grants}; where row security is on, also ALTER ROLE … BYPASSRLS. Then start again."
        raise RightsError(error.message, hint=hint, relation=str(table)) from error
    except (ServerError, ServerConfigError, SlotLostError) as error:
        hint = "Mend the table, or take it out of the publication; then start again."
        raise ServerError(error.message, hint=hint, relation=str(table)) from error


def quarantine_error(quarantined: Sequence[tuple[str, Quarantine]]) -> Wal2LakeError:
    """One error for all tables that are left out, of the first one's kind, for the exit code."""
    kinds = {kind.__name__: kind for kind in _descendants(Wal2LakeError)}
    kind = kinds.get(quarantined[0][1].error, Wal2LakeError)
    reasons = "; ".join(f"{name}: {quarantine.reason}" for name, quarantine in quarantined)
    return kind(f"{len(quarantined)} table(s) are quarantined. {reasons}")


def _descendants(kind: type[Wal2LakeError]) -> Iterator[type[Wal2LakeError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _descendants(child)
