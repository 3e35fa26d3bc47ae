"""What a program gives is checked where it gives it: a wrong kind of value is one clear error, at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from wal2lake.errors import ConfigError
from wal2lake.lsn import LSN

Callback = TypeVar("Callback", bound=Callable[..., object] | None)


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


def as_flag(value: object, name: str) -> bool:
    """Raise ConfigError for what is neither True nor False: 'no' would count as true."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is True or False, not {_a(value)}.")
    return value


def as_callback(value: Callback, name: str) -> Callback:
    """Raise ConfigError for what is neither None nor can be called."""
    if not (value is None or callable(value)):
        raise ConfigError(f"{name} is a function or None, not {_a(value)}.")
    return value


def as_text(value: object, name: str) -> str:
    """Raise ConfigError for what is no text that a server can be sent."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} is a str, not {_a(value)}.")
    if "\0" in value:
        raise ConfigError(f"{name} has a zero byte, which no text of PostgreSQL has.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name} has a lone surrogate, which is no character.") from None
    return value


def as_name(value: object, name: str) -> str:
    """Raise ConfigError for what is no name."""
    if not as_text(value, name):
        raise ConfigError(f"{name} must not be empty.")
    return str(value)


def as_names(value: object, name: str) -> tuple[str, ...]:
    """One name or several; raise ConfigError for what is neither."""
    if isinstance(value, str):
        return (as_name(value, name),)
    if not isinstance(value, Iterable) or isinstance(value, bytes | bytearray | Mapping):
        raise ConfigError(f"{name} is a str or several, not {_a(value)}.")
    return tuple(as_name(one, name) for one in value)


def as_options(value: object, name: str) -> tuple[tuple[str, str | None], ...]:
    """A plugin's options, a mapping or pairs of name and value (None: without one); raise ConfigError for others."""
    given = value.items() if isinstance(value, Mapping) else value
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | bytearray):
        raise ConfigError(f"{name} is a mapping or pairs of name and value, not {_a(value)}.")
    return tuple(_option(pair, name) for pair in given)


def _option(pair: object, name: str) -> tuple[str, str | None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ConfigError(f"{name} is a mapping or pairs of name and value, and {_a(pair)} in it is none.")
    option, value = as_name(pair[0], f"an option's name in {name}"), pair[1]
    if not (value is None or isinstance(value, str)):
        hint = "Write it as the plugin reads it: 'true', '1'."
        raise ConfigError(f"The value of the option {option} is a str or None, not {_a(value)}.", hint=hint)
    return option, None if value is None else as_text(value, f"The option {option}")


def _a(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
