"""What the C plugins say and pgoutput cannot carry, piece by piece: no other difference is accepted.

The pieces stand in declared.txt, under the reason, which docs/plugins.md gives too. ``== scenario | plugin | option
sets`` heads them; ``3 -…`` is the C plugin's piece at place 3 of its output, ``3 +…`` what ours has in its stead, if
anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests.plugins.options import OptionSet

_FILE = Path(__file__).parent / "declared.txt"
_PIECE = re.compile(r"(\d+) ([-+])(.*)")


@dataclass(frozen=True)
class Declared:
    """``ours`` None: there is none."""

    place: int
    theirs: str
    ours: str | None = None


def declared(scenario: str, chosen: OptionSet) -> list[Declared]:
    """The exceptions of a scenario and option set."""
    return _read().get((scenario, chosen.plugin, chosen.name), [])


@cache
def _read() -> dict[tuple[str, str, str], list[Declared]]:
    exceptions: dict[tuple[str, str, str], list[Declared]] = {}
    gathered: list[Declared] = []
    for line in _FILE.read_text().splitlines():
        piece = _PIECE.match(line)
        if line.startswith("== "):
            scenario, plugin, *names = line.removeprefix("== ").split(" | ")
            gathered = []
            exceptions |= {(scenario, plugin, name): gathered for name in names}
        elif piece is not None and piece[2] == "-":
            gathered.append(Declared(int(piece[1]), piece[3]))
        elif piece is not None:
            gathered[-1] = replace(gathered[-1], ours=piece[3])
        elif line and not line.startswith("#"):
            raise ValueError(f"{_FILE}: {line}")
    return exceptions
