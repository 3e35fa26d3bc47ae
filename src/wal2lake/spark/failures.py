"""What Spark says when something fails becomes one of our errors, so the supervisor knows what waiting can mend.

Spark carries an exception of a Python process (the source's, a worker's) as text with its traceback. One of ours is
recognised by its class name there; all else is Spark's own trouble, and worth a restart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from wal2lake.errors import SparkError, Wal2LakeError
from wal2lake.spark.table_folder import Quarantine

_OURS = re.compile(r"^wal2lake\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)


class SparkLostError(SparkError):
    """A Spark job or query ended for a reason of Spark's own: a process died, memory ran out, a worker was lost."""

    transient: ClassVar[bool] = True


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
