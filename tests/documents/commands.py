"""Every command of the command line, with its options and arguments, as its own --help says them."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from inspect import cleandoc
from typing import Any, Final

from typer.main import get_command

from wal2lake.cli.main import app

CONFIGURATION = "Configuration"  # the panel of the options that commands share
REQUIRED = "required"
_WORDS = {str: "text", int: "number", float: "number", bool: ""}


@dataclass(frozen=True)
class Option:
    """An option or argument; ``names`` of an argument is its one name in capitals."""

    names: tuple[str, ...]
    value: str
    default: str
    help: str
    is_argument: bool
    shared: bool

    @property
    def shown(self) -> str:
        """As one writes it, without a default."""
        return ", ".join(self.names) + (f" {self.value}" if self.value else "")


@dataclass(frozen=True)
class Command:
    """``name``: what is typed after wal2lake. ``help`` has paragraphs."""

    name: str
    help: str
    example: str
    options: tuple[Option, ...]

    @property
    def usage(self) -> str:
        arguments = " ".join(
            option.names[0] if option.default == REQUIRED else f"[{option.names[0]}]" for option in self._arguments
        )
        return " ".join(filter(None, ["wal2lake", self.name, arguments, "[OPTIONS]"]))

    @property
    def _arguments(self) -> list[Option]:
        return [option for option in self.options if option.is_argument]


@functools.cache
def _app() -> Any:
    return get_command(app)


@functools.cache
def commands() -> tuple[Command, ...]:
    """All of them, in the order of --help; those of a group follow each other."""
    return tuple(_command(" ".join(words), found) for words, found in _leaves(_app()))


def groups() -> dict[str, str]:
    """The groups of commands, with what each is for."""
    return {name: below.help for name, below in _app().commands.items() if hasattr(below, "commands")}


HELP: Final = Option(("--help",), "", "", "Show what the command does.", is_argument=False, shared=False)


def root_options() -> list[Option]:
    """The options of wal2lake itself."""
    return [_option(parameter) for parameter in _app().params]


def _leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _leaves(below, (*words, name))


def _command(name: str, found: Any) -> Command:
    help_text, example = cleandoc(found.help), (found.epilog or "").removeprefix("Example: ")
    if not example and "Example: " in help_text:
        help_text, _, example = help_text.partition("Example: ")
    return Command(name, help_text.strip(), example.strip(), tuple(map(_option, found.params)))


def _option(found: Any) -> Option:
    is_argument = found.param_type_name == "argument"
    value, many = _value(found.type_descriptor.annotation, found.metavar)
    names = (str(found.name).upper(),) if is_argument else (*found.opts, *found.secondary_opts)
    return Option(
        names=tuple(sorted(names, key=lambda name: not name.startswith("--"))),
        value="…" if is_argument and many else "" if is_argument else value,
        default=REQUIRED if found.required else _default(found),
        help=found.help or "",
        is_argument=is_argument,
        shared=getattr(found, "rich_help_panel", None) == CONFIGURATION,
    )


def _value(annotation: Any, metavar: str | None) -> tuple[str, bool]:
    """What stands behind the name, and whether it may be given several times."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        (annotation,) = (kind for kind in typing.get_args(annotation) if kind is not type(None))
    if typing.get_origin(annotation) is list:
        return _value(typing.get_args(annotation)[0], metavar)[0], True
    if typing.get_origin(annotation) is typing.Literal:
        return "|".join(typing.get_args(annotation)), False
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(member.value for member in annotation), False
    return metavar or _WORDS.get(annotation, annotation.__name__.upper()), False


def _default(found: Any) -> str:
    value = found.default
    if not value or not found.show_default:
        return ""
    if value is True:
        return str(found.opts[0])
    return str(value.value if isinstance(value, Enum) else value)
