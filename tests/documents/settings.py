"""Every setting of wal2lake.toml: its default from the code, its meaning from the comment that `init` writes above."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from importlib.resources import files
from typing import Any, Literal, get_args, get_origin, get_type_hints

from wal2lake.config import Config

TEMPLATE = (files("wal2lake.cli") / "template.toml").read_text()
_SETTING = re.compile(r"^(\w+) = ")


@dataclass(frozen=True)
class Setting:
    """``values``: which it may have, if they are few; ``meaning`` has each of them."""

    section: str
    key: str
    default: str
    values: tuple[str, ...]
    meaning: str

    @property
    def variable(self) -> str:
        return f"WAL2LAKE_{self.section}_{self.key}".upper()


def settings() -> list[Setting]:
    """All of them, in the template's order; Spark's own are not ours to list."""
    found = dict(_meanings())
    return [
        Setting(section, field.name, _literal(field), _values(kind, field.name), found.get((section, field.name), ""))
        for section, kind in sections().items()
        for field in fields(kind)
    ]


def sections() -> dict[str, Any]:
    """The sections that are dataclasses, by name."""
    kinds = get_type_hints(Config)
    return {field.name: kinds[field.name] for field in fields(Config) if field.name != "spark"}


def template_values() -> dict[str, Any]:
    """What `wal2lake init` writes where nothing is said."""
    text = re.sub(r"@(\w+)@", r'"@\1@"', TEMPLATE)
    return tomllib.loads(text)


def _literal(field: Any) -> str:
    value = field.default if field.default_factory is MISSING else field.default_factory()
    assert value is not MISSING, field.name
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return "[]" if value == () else f"{value:_}".removesuffix(".0")


def _values(kind: type, name: str) -> tuple[str, ...]:
    hint = get_type_hints(kind)[name]
    return get_args(hint) if get_origin(hint) is Literal else ()


def _meanings() -> Iterator[tuple[tuple[str, str], str]]:
    section, comment = "", list[str]()
    for line in TEMPLATE.splitlines():
        if line.startswith("["):
            section, comment = line.strip("[]"), []
        elif line.startswith("#"):
            comment.append(line[1:].strip())
        elif (match := _SETTING.match(line)) is not None:
            yield (section, match[1]), " ".join(comment)
            comment = []
