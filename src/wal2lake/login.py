"""Who connects where: libpq's connection string and, where passwords do not last, the command that prints one.

The rule: it travels as it is, to other processes too, and shows nothing of itself; a password is made of it where a
connection is opened, and nowhere else.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from wal2lake.arguments import as_names, as_text
from wal2lake.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Login:
    """``dsn``: libpq's keywords or URI; '' means its environment. ``password_command``: a program and its arguments,
    started without a shell in this process's environment; the first line that it prints is the password of the next
    connection. (): the password is where libpq finds it."""

    dsn: str = field(default="", repr=False)
    password_command: tuple[str, ...] = field(default=(), repr=False)


Dsn = str | Login
Command = str | Sequence[str]


def as_login(dsn: object, password_command: object = ()) -> Login:
    """Raise ConfigError for what says of no server where it is, or has two commands."""
    command = as_command(password_command, "password_command")
    if isinstance(dsn, Login):
        if command and dsn.password_command:
            raise ConfigError("There are two password commands.", hint="Leave one of them out.")
        return Login(dsn.dsn, dsn.password_command or command)
    return Login(as_text(dsn, "dsn"), command)


def as_command(value: object, name: str) -> tuple[str, ...]:
    """A program and its arguments, or the text of both, split as a shell would; () is none. Raises ConfigError."""
    try:
        words = tuple(shlex.split(as_text(value, name)) if isinstance(value, str) else as_names(value, name))
    except ValueError as error:
        raise ConfigError(f"{name} cannot be split into words: {error}.") from None
    if words and not words[0].strip():
        raise ConfigError(f"{name} has no program in front.", hint="Name the program first, then its arguments.")
    return words
