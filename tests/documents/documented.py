"""What there is to document, from the code, and what the pages have of it, from their text: two sets of names each."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from tests.documents.commands import commands
from tests.documents.reference import api, slot_fields
from tests.documents.settings import sections
from wal2lake import errors
from wal2lake.errors import Wal2LakeError
from wal2lake.monitor.places import LogStatus
from wal2lake.monitor.progress import Progress, TableProgress
from wal2lake.monitor.status import Status

DOCS = Path(__file__).parents[2] / "docs"
_ROW = re.compile(r"^\| `([^`]+)` \|.* \| (.+) \|$", re.M)


@dataclass(frozen=True)
class Documented:
    """A kind of thing: the names that exist, and those that a page explains in words."""

    kind: str
    page: str
    existing: frozenset[str]
    documented: frozenset[str]

    @property
    def difference(self) -> list[str]:
        return sorted(self.existing ^ self.documented)


def kinds() -> list[Documented]:
    """Everything that is counted."""
    return [_commands(), _options(), _settings(), _status(), _errors(), _api()]


def _sections(page: str) -> Iterator[tuple[str, str]]:
    """Each heading of second rank, with what stands below it."""
    for part in (DOCS / page).read_text().split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        yield title, text


def _commands() -> Documented:
    page = "reference/commands.md"
    told = frozenset(title for title, text in _sections(page) if "    wal2lake" in text)
    return Documented("commands", page, frozenset(f"wal2lake {found.name}" for found in commands()), told)


def _options() -> Documented:
    page = "reference/commands.md"
    existing = {f"{found.name} {name}" for found in commands() for option in found.options for name in option.names}
    told = set()
    shared = {name for title, text in _sections(page) if title == "Configuration" for name in _names(text)}
    for title, text in _sections(page):
        named = re.search(r"^\[Configuration\]\(#configuration\): (.*)\.$", text, re.M)
        taken = set(re.findall(r"`(-[^`]+)`", named[1])) if named else set()
        short = {"-c": "--config", "-d": "--dsn"}
        inherited = {name for name in shared if short.get(name, name) in taken}
        told |= {f"{title.removeprefix('wal2lake ')} {name}" for name in [*_names(text), *inherited]}
    here = {found.name for found in commands()}
    told = {name for name in told if name.rpartition(" ")[0] in here}
    # -d is libpq's letter, and the protocol's commands alone have it
    told -= {f"{found.name} -d" for found in commands() if not any("-d" in option.names for option in found.options)}
    return Documented("options", page, frozenset(existing), frozenset(told))


def _names(text: str) -> list[str]:
    """The options and arguments of a table, those without a word left out."""
    shown = [option for option, meaning in _ROW.findall(text) if meaning.strip()]
    return [name.split(" ")[0] for option in shown for name in option.split(", ")]


def _settings() -> Documented:
    page = "reference/settings.md"
    existing = {f"{section}.{field.name}" for section, kind in sections().items() for field in fields(kind)}
    told = {f"{title.strip('[]')}.{key}" for title, text in _sections(page) for key, _ in _ROW.findall(text)}
    return Documented("settings", page, frozenset(existing), frozenset(told))


def _status() -> Documented:
    page = "reference/status.md"
    objects: dict[str, list[str]] = {
        "The object": [*typing.get_type_hints(Status), "ok", "ready"],
        "`log`": list(typing.get_type_hints(LogStatus)),
        "`progress`": list(typing.get_type_hints(Progress)),
        "Each of `progress.tables`": [field.name for field in fields(TableProgress)],
        "`slot`": slot_fields(),
    }
    existing = {f"{title}: {name}" for title, names in objects.items() for name in names}
    told = {f"{title}: {key}" for title, text in _sections(page) for key, _ in _ROW.findall(text)}
    return Documented("status fields", page, frozenset(existing), frozenset(told))


def _errors() -> Documented:
    page = "errors.md"
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Wal2LakeError)]
    told = re.findall(r"^\| (\d+) \| `(\w+)` \| .+ \|$", (DOCS / page).read_text(), re.M)
    existing = frozenset(f"{kind.exit_code} {kind.__name__}" for kind in kinds)
    return Documented("errors", page, existing, frozenset(f"{code} {name}" for code, name in told))


def _api() -> Documented:
    page = "reference/api.md"
    existing = {f"{module}.{name}" for module, names in api().items() for name in names}
    told = {
        f"{module}.{name}"
        for module, text in _sections(page)
        for name, said in re.findall(r"^### (\w+)\n+(.*?)(?=^### |\Z)", text, re.M | re.S)
        if [line for line in said.splitlines() if line and not line.startswith("    ")]
    }
    return Documented("API names", page, frozenset(existing), frozenset(told))
