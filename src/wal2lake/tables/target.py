"""What every task needs to know of one table's target, and nothing of Spark: where it lies and how rows go into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wal2lake.sinks.base import Sink
from wal2lake.sinks.delta import DeltaSink, table_uri

if TYPE_CHECKING:
    from wal2lake.config import Config, Mode


@dataclass(frozen=True, slots=True)
class Target:
    """One table of the lake, for the pipeline ``pipeline``; ``text_columns`` and ``unrepresentable`` as configured."""

    uri: str
    pipeline: str
    mode: Mode
    text_columns: tuple[str, ...]
    unrepresentable: Literal["error", "null"]

    @classmethod
    def of(cls, config: Config, namespace: str, name: str) -> Target:
        """The table ``namespace.name`` of the configured lake."""
        return cls(
            uri=table_uri(config.lake.path, namespace, name),
            pipeline=config.pipeline.name,
            mode=config.lake.mode,
            text_columns=config.pipeline.text_columns,
            unrepresentable=config.pipeline.unrepresentable,
        )

    def sink(self) -> Sink:
        return DeltaSink(self.uri, self.pipeline)
