"""Whose failure it is: Spark's becomes one of our errors, so the supervisor knows what waiting can mend; one table's
names the table and its cure, so that the others can go on.

Spark carries an exception of a Python process (the source's, a worker's) as text with its traceback. One of ours is
recognised by its class name there; all else is Spark's own trouble, and worth a restart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from wal2lake.errors import (
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
from wal2lake.sinks.base import TargetError
from wal2lake.spark.table_folder import Quarantine
from wal2lake.wire.command_text import quote_identifier

if TYPE_CHECKING:
    from wal2lake.postgres.catalog import PublishedTable

# They concern one table when its part of the work raises them; the others go on.
TABLE_ERRORS = (UnrepresentableError, SchemaChangeError, TargetError, ProtocolError, RightsError, ServerError)

_OURS = re.compile(r"^wal2lake\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)


class SparkLostError(SparkError):
    """A Spark job or query ended for a reason of Spark's own: a process died, memory ran out, a worker was lost."""

    transient: ClassVar[bool] = True


@contextmanager
def reading(table: PublishedTable) -> Iterator[None]:
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


def spark_failure(error: BaseException) -> Wal2LakeError:
    """The error of ours that stands in Spark's text, else SparkLostError with its first line."""
    text = str(error)
    kinds = {kind.__name__: kind for kind in _descendants(Wal2LakeError)}
    for name, message in reversed(_OURS.findall(text)):
        if name in kinds:
            return kinds[name](message)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return SparkLostError(
        f"Spark gave up: {first}", hint="What it printed says more; the work goes on from where it was."
    )


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
