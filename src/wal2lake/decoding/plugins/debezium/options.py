"""Debezium's own connector options, as far as they say what an event looks like; the defaults are Debezium's.

Source: Debezium documentation, "Debezium connector for PostgreSQL", Connector properties.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wal2lake.decoding.sql import parse_bool
from wal2lake.errors import ConfigError

_CHOICES: Final = {
    "decimal.handling.mode": ("precise", "double", "string"),
    "binary.handling.mode": ("bytes", "base64", "hex"),
    "time.precision.mode": ("adaptive", "adaptive_time_microseconds"),
    "interval.handling.mode": ("numeric", "string"),
}
_TEXTS: Final = ("topic.prefix", "database.dbname", "unavailable.value.placeholder")
_BOOLEANS: Final = ("provide.transaction.metadata",)
_OPERATIONS: Final = "skipped.operations"
_NAMES: Final = (*_TEXTS, *_CHOICES, *_BOOLEANS, _OPERATIONS)


@dataclass(slots=True)
class DebeziumOptions:
    """``skipped_operations``: letters of ``c``, ``u``, ``d``, ``t``."""

    topic_prefix: str = "wal2lake"
    database_dbname: str = ""
    decimal_handling_mode: str = "precise"
    binary_handling_mode: str = "bytes"
    time_precision_mode: str = "adaptive"
    interval_handling_mode: str = "numeric"
    unavailable_value_placeholder: str = "__debezium_unavailable_value"
    provide_transaction_metadata: bool = False
    skipped_operations: frozenset[str] = frozenset("t")

    @classmethod
    def read(cls, given: Iterable[tuple[str, str | None]]) -> DebeziumOptions:
        """Raise ConfigError for an option or a value that is not known here."""
        options = cls()
        for name, value in given:
            if name not in _NAMES:
                raise ConfigError(f'debezium has no option "{name}".', hint=f"It has {', '.join(sorted(_NAMES))}.")
            setattr(options, name.replace(".", "_"), _read(name, value))
        return options


def _read(name: str, value: str | None) -> str | bool | frozenset[str]:
    text = "" if value is None else value
    if name in _CHOICES and text not in _CHOICES[name]:
        raise ConfigError(f'debezium\'s {name} cannot be "{text}".', hint=f"It is {' or '.join(_CHOICES[name])}.")
    if name in _BOOLEANS:
        flag = True if value is None else parse_bool(text)
        if flag is None:
            raise ConfigError(f'debezium\'s {name} cannot be "{text}".', hint="It is true or false.")
        return flag
    if name != _OPERATIONS:
        return text
    letters = frozenset(letter.strip() for letter in text.split(",")) - {"", "none"}
    if not letters <= frozenset("cudt"):
        raise ConfigError(f'debezium\'s {name} cannot be "{text}".', hint="It is none, or some of c, u, d, t.")
    return letters
