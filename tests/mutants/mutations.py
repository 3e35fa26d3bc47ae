"""Which changes there are: comparisons, numbers one off, and/or, conditions negated; one drawn for each place.

A place is as likely as any other, whatever the number of changes that it can suffer.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src"
PACKAGES: Final = ("apply", "columnar", "changelog", "pgoutput", "wire")
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
_COMPARISONS: Final = (
    "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt",
    "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is",
)  # fmt: skip
_OPERATORS: Final = (
    *(f"core/ReplaceComparisonOperator_{name}" for name in _COMPARISONS),
    *("core/NumberReplacer", "core/ReplaceAndWithOr", "core/ReplaceOrWithAnd"),
    *("core/AddNot", "core/ReplaceUnaryOperator_Delete_Not"),
)
_Line = tuple[str, str, str]  # file, line, and what became of it


@dataclass(frozen=True)
class Mutant:
    """``code``: the whole file; ``before`` and ``after``: its line ``number``."""

    file: str
    number: int
    before: str
    after: str
    code: str

    @property
    def line(self) -> _Line:
        """By what a list of equivalents knows it: numbers change, and lines seldom do."""
        return self.file, self.before.strip(), self.after.strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.number}\n  - {self.before.strip()}\n  + {self.after.strip()}"


def mutants(seed: int, only: str) -> Iterator[Mutant]:
    """One of each place in random order, without those that cannot be noticed; ``only``: of files named like this."""
    random, places = Random(seed), defaultdict[tuple[str, int, int], list[tuple[str, int]]](list)
    files = [file for package in PACKAGES for file in sorted((SOURCE / "wal2lake" / package).rglob("*.py"))]
    codes = {str(file.relative_to(SOURCE)): file.read_text() for file in files}
    equivalent = _equivalent(codes)
    for file in (name for name in codes if only in name):
        nodes = list(ast_nodes(get_ast(codes[file])))
        for name in _OPERATORS:
            operator = get_operator(name)()
            found = [start for node in nodes for start, _ in operator.mutation_positions(node)]
            for occurrence, (line, column) in enumerate(found):
                places[file, line, column].append((name, occurrence))
    order = sorted(places)
    random.shuffle(order)
    for place in order:
        name, occurrence = random.choice(places[place])
        mutant = _mutant(place[0], codes[place[0]], name, occurrence)
        if mutant.line not in equivalent and mutant.before.strip() != "if TYPE_CHECKING:":
            yield mutant


def _mutant(file: str, code: str, name: str, occurrence: int) -> Mutant:
    mutated = mutate_code(code, get_operator(name)(), occurrence)
    lines = zip(code.splitlines(), mutated.splitlines(), strict=True)
    number, before, after = next((n, old, new) for n, (old, new) in enumerate(lines, 1) if old != new)
    return Mutant(file, number, before, after, mutated)


def _equivalent(codes: dict[str, str]) -> set[_Line]:
    """Raises ValueError for a line that is no longer there: its reason may have gone with it."""
    found = set[_Line]()
    for entry in tomllib.loads(EQUIVALENT.read_text())["equivalent"]:
        if entry["line"] not in map(str.strip, codes[entry["file"]].splitlines()):
            raise ValueError(f"{EQUIVALENT.name}: {entry['file']} has no line {entry['line']!r} any more")
        found |= {(entry["file"], entry["line"], mutant) for mutant in entry["mutants"]}
    return found
