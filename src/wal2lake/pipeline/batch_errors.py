"""What became of each table's part of a batch: one table's trouble is told from everybody's, neither stops a third."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from wal2lake.errors import ConnectError, LockedError, Wal2LakeError
from wal2lake.pipeline.apply import ApplyTask, TableBatch
from wal2lake.tables.failures import TABLE_ERRORS, errors_of

Result = TypeVar("Result")


@dataclass
class BatchErrors:
    """``failed``: tables that cannot go on, by name, with their part and the reason. ``others``: everybody's errors,
    with the parts that met them."""

    failed: dict[str, tuple[TableBatch, Wal2LakeError]] = field(default_factory=dict)
    others: list[tuple[TableBatch, Wal2LakeError]] = field(default_factory=list)

    def add(self, item: TableBatch, error: Wal2LakeError) -> None:
        if isinstance(error, TABLE_ERRORS):
            self.failed.setdefault(str(item), (item, error))
        else:
            self.others.append((item, error))

    @contextmanager
    def collecting(self, item: TableBatch) -> Iterator[None]:
        """An error of the block is collected and goes no further."""
        try:
            with errors_of(str(item)):
                yield
        except Wal2LakeError as error:
            self.add(item, error)

    def succeeded(
        self, tasks: Sequence[ApplyTask], results: Sequence[Result | Wal2LakeError]
    ) -> list[tuple[ApplyTask, Result]]:
        """The tasks that did their work, of tables of which all did; the errors are collected."""
        for task, result in zip(tasks, results, strict=True):
            if isinstance(result, Wal2LakeError):
                self.add(task.batch, result)
        troubled = {*self.failed, *(str(item) for item, _ in self.others)}
        return [
            (task, result)
            for task, result in zip(tasks, results, strict=True)
            if not isinstance(result, Wal2LakeError) and str(task.batch) not in troubled
        ]

    def held_up(self) -> list[TableBatch]:
        """The parts that found a lock in their way, or nobody to ask. Raises any other error of ``others``."""
        for _, error in self.others:
            if not isinstance(error, LockedError | ConnectError):
                raise error
        return list(dict.fromkeys(item for item, _ in self.others))
