"""The man page wal2lake(1), in the macros of man(7)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.documents.commands import HELP, Command, Option, commands, root_options
from wal2lake import errors
from wal2lake.errors import Wal2LakeError


def manual() -> str:
    """The whole page."""
    found = commands()
    lines = [
        '.TH WAL2LAKE 1 "" wal2lake "User Commands"',
        ".SH NAME",
        r"wal2lake \- PostgreSQL logical replication into lakehouse tables",
        ".SH SYNOPSIS",
        r".B wal2lake",
        r".I COMMAND",
        r"[\fIOPTIONS\fR]",
        ".br",
        r".B wal2lake",
        r"[\fB\-\-version\fR | \fB\-\-help\fR]",
        ".SH DESCRIPTION",
        _text(
            "Lands the tables of a PostgreSQL publication in Delta tables: a consistent snapshot, then every change"
            " exactly once. A file wal2lake.toml in the present folder says what to work on; each setting may also come"
            " from the environment, or from a flag."
        ),
        ".SH OPTIONS",
        *_options([*root_options(), HELP]),
        ".SH COMMANDS",
        *(line for command in found for line in _command(command)),
        ".SH CONFIGURATION",
        _text("Options that commands share. Each command names in its --help those that it takes."),
        *_options({option.shown: option for command in found for option in command.options if option.shared}.values()),
        ".SH EXIT STATUS",
        *_exit_codes(),
        ".SH FILES",
        ".TP",
        ".I wal2lake.toml",
        _text("The configuration; wal2lake init writes one, with a comment for each setting."),
    ]
    return "\n".join(lines) + "\n"


def _command(command: Command) -> Iterable[str]:
    yield f".SS {_text(command.usage)}"
    for number, paragraph in enumerate(command.help.split("\n\n")):
        if number:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))
    yield from _options(option for option in command.options if not option.shared)
    if command.example:
        yield ".PP"
        yield _text(f"Example: {command.example}")


def _options(options: Iterable[Option]) -> Iterable[str]:
    for option in options:
        yield ".TP"
        yield rf"\fB{_text(option.shown)}\fR"
        yield _text(option.help + (f" (default: {option.default})" if option.default else ""))


def _exit_codes() -> Iterable[str]:
    found = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Wal2LakeError))
    yield from (".TP", "0", "All is done.")
    for kind in sorted(found, key=lambda kind: kind.exit_code):
        yield from (".TP", str(kind.exit_code), _text(" ".join((kind.__doc__ or "").split("\n\n")[0].split())))


def _text(text: str) -> str:
    """No character of it is a request or an escape; an option's dashes stay dashes."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("``", "").replace("`", "")
    plain = "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in escaped)
    return re.sub(r"^([.'])", r"\&\1", plain)
