"""`python -m tests.documents.reference` writes docs/reference, man page and completions; a test compares them."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import wal2lake
from tests.documents import completions, meanings
from tests.documents.commands import Command, Option, commands, groups, root_options
from tests.documents.manual import manual
from tests.documents.settings import settings
from wal2lake import client, decoding
from wal2lake.lsn import LSN
from wal2lake.monitor.places import LogStatus
from wal2lake.monitor.progress import Progress, TableProgress
from wal2lake.monitor.status import Status
from wal2lake.postgres.slots import SlotState

ROOT: Final = Path(__file__).parents[2]
_WRITTEN = "This page is written from the code by `python -m tests.documents.reference`; a test keeps them the same."


def files() -> dict[str, str]:
    """Every file that is written from the code, by its path in the repository."""
    return {
        "docs/reference/commands.md": _commands_page(),
        "docs/reference/settings.md": _settings_page(),
        "docs/reference/status.md": _status_page(),
        "docs/reference/api.md": _api_page(),
        "share/man/man1/wal2lake.1": manual(),
        "share/bash-completion/completions/wal2lake": completions.bash(),
        "share/zsh/site-functions/_wal2lake": completions.zsh(),
        "share/fish/vendor_completions.d/wal2lake.fish": completions.fish(),
    }


def main() -> None:
    for path, text in files().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)


def _page(title: str, *blocks: str) -> str:
    return "\n\n".join([f"# {title}", *filter(None, blocks)]) + "\n"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(header), ["---"] * len(list(header)), *map(list, rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells)


def _commands_page() -> str:
    found = commands()
    shared = {option.shown: option for command in found for option in command.options if option.shared}
    return _page(
        "Commands",
        f"{_WRITTEN} `wal2lake COMMAND --help` says the same.",
        "## wal2lake\n\n" + _options(root_options()),
        *(_command_section(command, below) for command, below in _with_groups(found)),
        "## Configuration\n\nOptions that commands share; each command names those that it takes."
        " [Settings](settings.md) has what the file may hold.",
        _options(shared.values()),
    )


def _with_groups(found: Iterable[Command]) -> Iterator[tuple[Command, str]]:
    """Each command; the first of a group with what the group is for."""
    told = dict(groups())
    for command in found:
        yield command, told.pop(command.name.partition(" ")[0], "") if " " in command.name else ""


def _command_section(command: Command, group: str) -> str:
    own = [option for option in command.options if not option.shared]
    shared = [f"`{option.names[0]}`" for option in command.options if option.shared]
    blocks = [
        group,
        f"## wal2lake {command.name}",
        f"    {command.usage}",
        _words(command.help),
        _options(own),
        f"[Configuration](#configuration): {', '.join(shared)}." if shared else "",
        f"Example: `{command.example}`" if command.example else "",
    ]
    return "\n\n".join(filter(None, blocks))


def _options(options: Iterable[Option]) -> str:
    rows = [(f"`{option.shown}`", _code(option.default), _words(option.help)) for option in options]
    return _table(("option", "default", "meaning"), rows) if rows else ""


def _words(text: str) -> str:
    """What would be a tag is text."""
    return text.replace("<", "&lt;")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _settings_page() -> str:
    blocks = []
    for section in dict.fromkeys(setting.section for setting in settings()):
        rows = (
            (f"`{s.key}`", _code(s.default), f"`{s.variable}`", _words(s.meaning))
            for s in settings()
            if s.section == section
        )
        blocks.append(f"## [{section}]\n\n" + _table(("setting", "default", "environment", "meaning"), rows))
    return _page(
        "Settings",
        f"{_WRITTEN} `wal2lake init` writes a `wal2lake.toml` with all of them; the environment goes before the file,"
        " and a flag (`--set section.key=value`) before both. Relative paths start at the file's folder.",
        *blocks,
        "## [spark]\n\nSpark's own settings by their names, passed through as they are. They have no variables; on the"
        " command line they are `--conf spark.name=value`, and `--master`.",
    )


def _status_page() -> str:
    return _page(
        "Status as JSON",
        f"{_WRITTEN} `wal2lake status --json` prints one object; [status.md](../status.md) says what is found, and what"
        ' the states mean. An LSN is text as PostgreSQL writes it (`"0/1A2B3C4"`).',
        _members("The object", meanings.STATUS, {**typing.get_type_hints(Status), "ok": bool, "ready": bool}),
        _members("`log`", meanings.LOG, typing.get_type_hints(LogStatus)),
        _members("`progress`", meanings.PROGRESS, typing.get_type_hints(Progress)),
        _members("Each of `progress.tables`", meanings.TABLE, typing.get_type_hints(TableProgress)),
        _members(
            "`slot`", dict.fromkeys(slot_fields(), "as in pg_replication_slots"), typing.get_type_hints(SlotState)
        ),
        "A column that the server's version does not have is null.",
    )


def slot_fields() -> list[str]:
    """What stands under ``slot``."""
    return [field.name for field in fields(SlotState)]


def _members(title: str, told: dict[str, str], types: dict[str, Any]) -> str:
    rows = ((f"`{name}`", _json_type(types[name]), meaning) for name, meaning in told.items())
    return f"## {title}\n\n" + _table(("key", "type", "meaning"), rows)


def _json_type(hint: Any) -> str:
    kinds = [_json_word(kind) for kind in (typing.get_args(hint) if _is_union(hint) else (hint,))]
    return " or ".join(dict.fromkeys(kinds))


def _is_union(hint: Any) -> bool:
    return type(hint).__name__ in ("UnionType", "Union") or typing.get_origin(hint) is typing.Union


def _json_word(kind: Any) -> str:
    words = {LSN: "LSN", str: "text", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    if typing.get_origin(kind) in (list, tuple):
        return "array"
    return "text" if typing.get_origin(kind) is typing.Literal else words.get(kind, "object")


def api() -> dict[str, list[str]]:
    """The names that a program may import, by module."""
    return {
        "wal2lake": [name for name in wal2lake.__all__ if not name.startswith("__")],
        "wal2lake.decoding": list(decoding.__all__),
    }


def _api_page() -> str:
    return _page(
        "Python API",
        f"{_WRITTEN} [library.md](../library.md) is the guide to the first part, [plugins.md](../plugins.md) to the"
        " second.",
        *(block for module, names in api().items() for block in _module(module, names)),
    )


def _module(module: str, names: list[str]) -> Iterator[str]:
    owner = {"wal2lake": wal2lake, "wal2lake.decoding": decoding}[module]
    yield f"## {module}\n\n" + _plain((client if owner is wal2lake else owner).__doc__ or "")
    for name in names:
        yield _name(name, getattr(owner, name))


def _name(name: str, found: Any) -> str:
    text = _plain(inspect.getdoc(found) or "") if callable(found) or not isinstance(found, str | int) else ""
    return f"### {name}\n\n" + (f"    {_signature(name, found)}\n\n" if callable(found) else "") + text


def _signature(name: str, found: Callable[..., Any]) -> str:
    try:
        shown = str(inspect.signature(found))
    except ValueError:
        return name
    return re.sub(r"\bwal2lake[.\w]*\.(\w+)", r"\1", f"{name}{shown}").replace("'", "")


def _plain(text: str) -> str:
    return inspect.cleandoc(text).replace("``", "`")


if __name__ == "__main__":
    main()
