"""Who keeps the log from being trimmed, and how one that never comes back is forgotten.

The rule: what a pipeline may still need is not taken from it. A table that is left out, or comes in beside the stream,
counts as a consumer of its own, ``<pipeline>@<schema>.<table>``, by what stands in its document; it goes with its whole
pipeline, and no pipeline goes while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wal2lake.changelog.documents import TABLE_CURE, read_document, write_document
from wal2lake.changelog.log import CLAIM, ChangeLog, claim
from wal2lake.changelog.places import pipeline_lock, state_document
from wal2lake.errors import ConfigError, SlotInUseError


def list_consumers(log: ChangeLog) -> Iterator[dict[str, Any]]:
    """Each consumer, the one that holds back most first; how far it is behind the log's end, in bytes of WAL."""
    for name, lsn in sorted(log.released().items(), key=lambda found: (found[1], found[0])):
        yield {"consumer": name, "released_lsn": str(lsn), "behind_bytes": max(0, log.last_end_lsn - lsn)}


def forget_consumer(log: ChangeLog, name: str, own: str) -> list[str]:
    """Have retention wait for ``name`` no more, nor for its tables; ``own``: the pipeline that is configured.

    Returns what was forgotten. Where that pipeline comes back, the tables that were behind have to be read anew.
    Raises ConfigError for a name that is not there or must not go, SlotInUseError for that of a pipeline that runs.
    """
    known = sorted(log.released())
    pipeline, is_table, table = name.partition(CLAIM)
    mine = [found for found in known if found == name or found.startswith(claim(name, ""))]
    if not mine:
        have = f"It has {', '.join(known)}." if known else "It has none."
        raise ConfigError(f"The change log {log.storage.where} has no consumer {name}.", hint=have)
    if is_table:
        raise ConfigError(
            f"{name} keeps what the table {table} needs, which the pipeline {pipeline!r} leaves out or still reads.",
            hint="`wal2lake status` says why; `wal2lake resync` the table to read it anew, and this goes."
            f" If that pipeline is no more: `wal2lake log forget {pipeline}`.",
        )
    if name == own:
        raise ConfigError(
            f"{name} is the pipeline that is configured here: what it has not applied would be lost to it.",
            hint="It goes on where it stands with `wal2lake run`. To give it up, configure the one that replaces it"
            " (pipeline.name) first.",
        )
    runs = SlotInUseError(f"The pipeline {name!r} runs on the change log {log.storage.where}.", hint="Stop it first.")
    if log.storage.is_locked(pipeline_lock(name)):
        raise runs
    for found in mine:
        _, _, behind = found.partition(CLAIM)
        if behind and not _need_nothing(log, state_document(name, behind)):
            raise runs
        log.forget(found)
    return mine


def _need_nothing(log: ChangeLog, name: str) -> bool:
    """False when somebody has changed the document meanwhile."""
    found = log.storage.read(name)
    document = {**read_document(found.data, name, TABLE_CURE), "needs_lsn": None}
    return log.storage.swap(name, write_document(document), found.version) is not None
