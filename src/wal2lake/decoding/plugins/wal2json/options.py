"""wal2json's options: each by its own name, read as PostgreSQL reads booleans and as wal2json reads lists.

Source: github.com/eulerto/wal2json, README and pg_decode_startup; the behaviour is version 2.5's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Final

from wal2lake.decoding.sql import parse_bool
from wal2lake.errors import ConfigError

ACTIONS: Final = ("insert", "update", "delete", "truncate")
_ANY: Final = None


@dataclass(frozen=True, slots=True)
class TableSelection:
    """One ``schema.table`` of filter-tables or add-tables; None stands for ``*``, any."""

    schema: str | None
    table: str | None

    def __contains__(self, name: tuple[str, str]) -> bool:
        return self.schema in (_ANY, name[0]) and self.table in (_ANY, name[1])


@dataclass(slots=True)
class Wal2JsonOptions:
    """The names are wal2json's, with underscores; the defaults are its own."""

    format_version: int = 1
    include_transaction: bool = True
    include_xids: bool = False
    include_timestamp: bool = False
    include_origin: bool = False
    include_schemas: bool = True
    include_types: bool = True
    include_type_oids: bool = False
    include_typmod: bool = True
    include_domain_data_type: bool = False
    include_column_positions: bool = False
    include_not_null: bool = False
    include_default: bool = False
    include_pk: bool = False
    include_lsn: bool = False
    pretty_print: bool = False
    write_in_chunks: bool = False
    numeric_data_types_as_string: bool = False
    actions: frozenset[str] = frozenset(ACTIONS)
    filter_origins: frozenset[int] = frozenset()
    filter_tables: tuple[TableSelection, ...] = ()
    add_tables: tuple[TableSelection, ...] = (TableSelection(_ANY, _ANY),)
    filter_msg_prefixes: tuple[str, ...] = ()
    add_msg_prefixes: tuple[str, ...] = ()

    @classmethod
    def read(cls, given: Iterable[tuple[str, str | None]]) -> Wal2JsonOptions:
        """Of an option that is given again the last counts, and of most lists all do, as in wal2json.

        Raise ConfigError for an option that wal2json does not have, or a value that it could not parse.
        """
        options = cls()
        for name, value in given:
            read = _READERS.get(name)
            if read is None:
                raise ConfigError(f'wal2json has no option "{name}".', hint=f"It has {', '.join(sorted(_READERS))}.")
            try:
                chosen, attribute = read(value), name.replace("-", "_")
                setattr(options, attribute, _ADDED[attribute](options, chosen) if attribute in _ADDED else chosen)
            except ValueError:
                raise ConfigError(f'wal2json could not parse value "{value}" for parameter "{name}".') from None
        return options

    def selects_table(self, schema: str, table: str) -> bool:
        """filter-tables first, then add-tables."""
        name = (schema, table)
        return not any(name in item for item in self.filter_tables) and any(name in item for item in self.add_tables)

    def selects_message(self, prefix: str) -> bool:
        """filter-msg-prefixes first, then add-msg-prefixes, where there is one."""
        return prefix not in self.filter_msg_prefixes and (not self.add_msg_prefixes or prefix in self.add_msg_prefixes)


def _boolean(value: str | None) -> bool:
    parsed = True if value is None else parse_bool(value)
    if parsed is None:
        raise ValueError
    return parsed


def _format_version(value: str | None) -> int:
    version = 2 if value is None else int(value)
    if version not in (1, 2):
        raise ValueError
    return version


def _items(value: str | None) -> list[str]:
    """Split at commas. White space around an item does not count; a backslash stays, and keeps what follows it."""
    items: list[str] = []
    text, place = (value or "").strip(), 0
    while text:
        start = place
        while place < len(text) and text[place] != "," and not text[place].isspace():
            place += 2 if text[place] == "\\" else 1
        items.append(text[start:place])
        while place < len(text) and text[place].isspace():
            place += 1
        if not items[-1] or (place < len(text) and text[place] != ","):
            raise ValueError
        if place >= len(text):
            break
        place += 1
        while place < len(text) and text[place].isspace():
            place += 1
    return items


def _prefixes(value: str | None) -> tuple[str, ...]:
    return tuple(_items(value))


def _origins(value: str | None) -> frozenset[int]:
    return frozenset(map(int, _items(value)))


def _actions(value: str | None) -> frozenset[str]:
    chosen = frozenset(ACTIONS if value is None else _items(value))
    if not chosen <= frozenset(ACTIONS):
        raise ValueError
    return chosen


def _tables(value: str | None) -> tuple[TableSelection, ...]:
    return tuple(map(_table, _items(value)))


def _table(item: str) -> TableSelection:
    """``*`` alone means any; escaped it is a name."""
    place = 0
    while place < len(item) and item[place] != ".":
        place += 2 if item[place] == "\\" else 1
    if place >= len(item):
        raise ValueError
    schema, table = item[:place], item[place + 1 :]
    return TableSelection(_ANY if schema == "*" else _unescaped(schema), _ANY if table == "*" else _unescaped(table))


def _unescaped(name: str) -> str:
    plain, place = [], 0
    while place < len(name):
        place += name[place] == "\\"
        plain.append(name[place : place + 1])
        place += 1
    return "".join(plain)


_SPECIAL: Final[dict[str, Callable[[str | None], Any]]] = {
    "format_version": _format_version,
    "actions": _actions,
    "filter_origins": _origins,
    "filter_tables": _tables,
    "add_tables": _tables,
    "filter_msg_prefixes": _prefixes,
    "add_msg_prefixes": _prefixes,
}
_ADDED: Final[dict[str, Callable[[Wal2JsonOptions, Any], Any]]] = {
    "filter_origins": lambda before, more: before.filter_origins | more,
    "filter_tables": lambda before, more: before.filter_tables + more,
    "filter_msg_prefixes": lambda before, more: before.filter_msg_prefixes + more,
    "add_msg_prefixes": lambda before, more: before.add_msg_prefixes + more,
}
_READERS: Final = {
    option.name.replace("_", "-"): _SPECIAL.get(option.name, _boolean) for option in fields(Wal2JsonOptions)
}
