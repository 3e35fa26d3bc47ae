"""The port to Spark, without Spark: jobs of the pipeline's tasks, and a stream that says where batches end.

The rule: nothing of the pipeline knows more of Spark than this, so a test, or another way to run tasks, stands behind
the same few methods (spark/pipeline.py is Spark itself).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from wal2lake.errors import Wal2LakeError

Item = TypeVar("Item")
Result = TypeVar("Result")
Batch = Callable[[int, int, int], None]


class Jobs(Protocol):
    """Runs tasks, on whatever machines there are."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""

    def run(
        self, task: Callable[[Item], Result], items: Sequence[Item], tag: str = "", *, small: bool = False
    ) -> list[Result | Wal2LakeError]:
        """Run ``task`` for each item and give the outcomes in the items' order.

        ``task`` is an importable function; items and results travel pickled. An item's ``str`` names its table, its
        ``weight``, if it has one, says about how many bytes it is work for. Raises SparkLostError when the job itself
        fails. ``tag``: for ``cancel``, which any thread may call. ``small``: all of it takes little memory, and waits
        for nobody: it is done in this process, and cannot be cancelled.
        """

    def cancel(self, tag: str) -> None:
        """Give up the jobs under way that bear ``tag``."""


class BatchStream(Protocol):
    """A query over the log's positions that runs."""

    @property
    def running(self) -> bool: ...

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it ends. Raises SparkLostError when it failed."""

    def stop(self) -> None: ...


class Engine(Protocol):
    """Jobs and one stream, between ``__enter__`` and ``__exit__``."""

    def committed_lsn(self) -> int | None:
        """The end of the last batch that the checkpoint counts as done; None when there is none. At any time."""

    def __enter__(self) -> Jobs:
        """May take a while. A checkpoint that is damaged counts as none from then on."""

    def __exit__(self, *failure: object) -> None: ...

    def stream(self, beginning: int, batch: Batch, *, available_now: bool) -> BatchStream:
        """Call ``batch`` with (number, start, end) for each batch (start, end], in a thread of the stream's own.

        Each ends at the end LSN of a transaction, and is called again, the same, until it returned once. Without a
        checkpoint the first starts at ``beginning``, where the log begins.
        ``available_now``: end when the log as it is now is done. May be called again when the last one has failed.
        Raises SparkLostError; a WorkerLostError, here and from the stream, leaves nothing that would have to be
        started anew but the stream.
        """
