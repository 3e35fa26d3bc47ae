"""What every task needs to know of one table's target, and nothing of Spark: where it lies and how rows go into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wal2lake.columnar.cells import Policy
from wal2lake.columnar.types import FIRST_RULES, TypeRules
from wal2lake.names import qualified
from wal2lake.sinks.base import Sink
from wal2lake.sinks.factory import open_sink
from wal2lake.tables.committed import DecodeRules

if TYPE_CHECKING:
    from wal2lake.config import Config, LakeConfig, Mode


@dataclass(frozen=True, slots=True)
class Target:
    """One table of the lake, for the pipeline ``pipeline``; ``text_columns`` and ``unrepresentable`` as configured,
    and in ``policies`` what is so of single columns, by name.

    ``types``: by which the table is read, or was."""

    lake: LakeConfig
    pipeline: str
    namespace: str
    name: str
    text_columns: tuple[str, ...]
    unrepresentable: Policy
    types: TypeRules = FIRST_RULES
    policies: tuple[tuple[str, Literal["error", "null"]], ...] = ()

    @classmethod
    def of(cls, config: Config, namespace: str, name: str) -> Target:
        """The table ``namespace.name`` of the configured lake."""
        return cls(
            lake=config.lake,
            pipeline=config.pipeline.name,
            namespace=namespace,
            name=name,
            text_columns=config.pipeline.text_columns,
            unrepresentable=config.pipeline.unrepresentable,
            policies=config.pipeline.policies(namespace, name),
        )

    def __str__(self) -> str:
        return qualified(self.namespace, self.name)

    @property
    def rules(self) -> DecodeRules:
        """By which the log's changes are decoded for it."""
        return DecodeRules(self.unrepresentable, self.text_columns, self.types)

    @property
    def mode(self) -> Mode:
        return self.lake.mode

    def sink(self) -> Sink:
        return open_sink(self.lake, self.pipeline, self.namespace, self.name)
