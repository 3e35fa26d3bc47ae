"""The data source's options, checked once; names are case-insensitive, as Spark's are.

``log`` (or ``.load(path)``), ``table``, ``startingLsn``, ``endingLsn`` (batch reads), ``maxBytesPerTrigger``,
``maxRowsPerTrigger``, ``consumer``, ``unrepresentable``, ``textColumns`` (comma-separated schema.table.column),
``typeEdition``, ``triggerSeconds``, ``plugin``, ``pluginOptions`` (a JSON object; null: no value).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from wal2lake.columnar.type_table import EDITION, FIRST_EDITION
from wal2lake.columnar.types import TypeRules
from wal2lake.errors import ConfigError
from wal2lake.lsn import LSN
from wal2lake.names import split_qualified
from wal2lake.tables.committed import DecodeRules

_NAMES = (
    "log", "path", "table", "startingLsn", "endingLsn", "maxBytesPerTrigger", "maxRowsPerTrigger", "consumer",
    "unrepresentable", "textColumns", "typeEdition", "triggerSeconds", "plugin", "pluginOptions",
)  # fmt: skip
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_CONSUMER = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query asks for.

    ``table`` is (namespace, name); ``plugin`` an output plugin's name; neither: control rows. The range is
    (starting_lsn, ending_lsn], by the end LSN of transactions; None is the log's own start or end. Limits are bytes
    and rows per micro-batch, ``trigger_s`` the seconds between the beginnings of two at least. Segments that
    ``consumer`` has not passed are kept; without a name the query holds nothing back.
    """

    log: str
    table: tuple[str, str] | None = None
    starting_lsn: LSN | None = None
    ending_lsn: LSN | None = None
    max_bytes: int | None = None
    max_rows: int | None = None
    consumer: str | None = None
    rules: DecodeRules = field(default_factory=DecodeRules)
    plugin: str | None = None
    plugin_options: tuple[tuple[str, str | None], ...] = ()
    trigger_s: float | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read Spark's options; an unknown one is an error that lists the known. Raises ConfigError."""
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(given.keys() - {name.lower() for name in _NAMES}):
            raise ConfigError(f"Unknown option {unknown[0]!r}.", hint=f"Known options: {', '.join(_NAMES)}.")
        log = given.get("log") or given.get("path")
        if not log:
            raise ConfigError("The option log is missing.", hint='Name the change log: .option("log", "/path").')
        return cls(
            log=log.removeprefix("file://"),
            table=_table(given.get("table")),
            starting_lsn=_lsn(given.get("startinglsn")),
            ending_lsn=_lsn(given.get("endinglsn")),
            max_bytes=_size("maxBytesPerTrigger", given.get("maxbytespertrigger")),
            max_rows=_size("maxRowsPerTrigger", given.get("maxrowspertrigger")),
            trigger_s=_seconds("triggerSeconds", given.get("triggerseconds")),
            consumer=_consumer(given.get("consumer")),
            rules=_rules(given.get("unrepresentable", "error"), given.get("textcolumns", ""), given.get("typeedition")),
            plugin=_plugin(given.get("plugin"), given.get("table")),
            plugin_options=_plugin_options(given.get("pluginoptions")),
        )


def _table(text: str | None) -> tuple[str, str] | None:
    if not text:
        return None
    match split_qualified(text):
        case (namespace, name):
            return namespace, name
    raise ConfigError(
        f"{text!r} is not a table.", hint='Write it with its schema: shop.orders, or shop."v1.orders" with its dot.'
    )


def _lsn(text: str | None) -> LSN | None:
    return LSN.parse(text) if text else None


def _size(name: str, text: str | None) -> int | None:
    """A positive integer, with k, m or g for its powers of 1024, as Spark's own sizes have."""
    if not text:
        return None
    match = re.fullmatch(r"\s*([0-9]+)\s*([kmg]?)b?\s*", text.lower())
    if match is None or int(match[1]) == 0:
        raise ConfigError(f"{name} must be a positive number, such as 1000000 or 64m; {text!r} is not.")
    return int(match[1]) * _UNITS[match[2]]


def _seconds(name: str, text: str | None) -> float | None:
    if not text:
        return None
    match = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*", text)
    if match is None:
        raise ConfigError(f"{name} must be a number of seconds, such as 0.5; {text!r} is not.")
    return float(match[1])


def _consumer(text: str | None) -> str | None:
    if text and not _CONSUMER.fullmatch(text):
        raise ConfigError(
            f"{text!r} cannot name a consumer.", hint="Use 1 to 100 letters, digits, dots, dashes, underscores."
        )
    return text or None


def _rules(unrepresentable: str, text_columns: str, edition: str | None) -> DecodeRules:
    policy = unrepresentable.lower()
    if policy not in ("error", "null"):
        raise ConfigError(f"unrepresentable must be error or null; {unrepresentable!r} is neither.")
    return DecodeRules(
        "null" if policy == "null" else "error",
        tuple(name.strip() for name in text_columns.split(",") if name.strip()),
        TypeRules(_edition(edition or str(FIRST_EDITION))),
    )


def _edition(text: str) -> int:
    """A query's columns are what they were, unless it asks for a newer edition of the type table."""
    if text not in map(str, range(FIRST_EDITION, EDITION + 1)):
        raise ConfigError(f"typeEdition must be a number from {FIRST_EDITION} to {EDITION}; {text!r} is not.")
    return int(text)


def _plugin(name: str | None, table: str | None) -> str | None:
    if name and table:
        raise ConfigError("The options plugin and table exclude each other.", hint="A plugin sees every table.")
    return name or None


def _plugin_options(text: str | None) -> tuple[tuple[str, str | None], ...]:
    """A JSON object: names have capitals and order, which Spark's own options have not."""
    if not text:
        return ()
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(value is None or isinstance(value, str) for value in given.values()):
        raise ConfigError(
            "pluginOptions must be a JSON object of strings and nulls.", hint='As in {"include-xids": "0"}.'
        )
    return tuple(given.items())
