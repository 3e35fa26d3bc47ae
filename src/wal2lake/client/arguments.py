"""What a program gives is checked where it gives it: a wrong kind of value is one clear error, at once."""

from __future__ import annotations

from collections.abc import Iterable

from wal2lake.errors import ConfigError
from wal2lake.lsn import LSN


def as_lsn(value: object, name: str) -> LSN:
    """Raise ConfigError for what is no LSN."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(
            f"{name} is an LSN, an integer, not {_a(value)}.", hint="LSN.parse reads PostgreSQL's text of one."
        )
    return LSN(value)


def as_count(value: object, name: str) -> int:
    """Raise ConfigError for what is no integer from 1 on."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name} is an integer, not {_a(value)}.")
    if value < 1:
        raise ConfigError(f"{name} is 1 or more, not {value}.")
    return value


def as_xid(value: object, name: str) -> int:
    """Raise ConfigError for what is no full transaction id (64 bits), and not 0."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name} is a transaction id, an integer, not {_a(value)}.")
    if not 0 <= value < 1 << 64:
        raise ConfigError(f"{name} has 64 bits, which {value} has not.")
    return value


def as_seconds(value: object, name: str) -> float:
    """Raise ConfigError for what is no number of seconds from 0 on."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"{name} is a number of seconds, not {_a(value)}.")
    if not value >= 0:
        raise ConfigError(f"{name} is 0 or more, not {value}.")
    return float(value)


def as_name(value: object, name: str) -> str:
    """Raise ConfigError for what is no name."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} is a str, not {_a(value)}.")
    if not value:
        raise ConfigError(f"{name} must not be empty.")
    return value


def as_names(value: object, name: str) -> tuple[str, ...]:
    """One name or several; raise ConfigError for what is neither."""
    if isinstance(value, str):
        return (as_name(value, name),)
    if not isinstance(value, Iterable):
        raise ConfigError(f"{name} is a str or several, not {_a(value)}.")
    return tuple(as_name(one, name) for one in value)


def _a(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
