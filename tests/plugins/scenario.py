"""Scenarios are SQL files: what is made first, and what is done while slots exist.

Lines that begin with ``--!`` direct: ``since: 15`` (major version), ``publication: FOR TABLE …`` (once for each; by
default FOR ALL TABLES), ``two_phase`` (the slots decode at PREPARE), ``live`` (decoded while it happens, not
afterwards), ``setup`` and ``run`` begin the parts; within ``run``, ``session: b`` goes on in another session and
``wait`` lets decoding catch up. ``options: default | 2`` leaves only the option sets of these names, ``catalog
changes`` leaves out those that print what the catalog says now: what both mean for the outputs stands in declared.txt.
``translated``: a stream of all tables is also translated to these publications. A statement ends with a semicolon at
the end of a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "scenarios"
WAIT = "wait"


@dataclass
class Scenario:
    """``steps``: session and statement, or session and WAIT."""

    name: str
    since: int = 13
    publications: list[str] = field(default_factory=list)
    two_phase: bool = False
    live: bool = False
    catalog_changes: bool = False
    translated: bool = False
    options: tuple[str, ...] = ()
    setup: list[str] = field(default_factory=list)
    steps: list[tuple[str, str]] = field(default_factory=list)

    @property
    def publication_names(self) -> tuple[str, ...]:
        return tuple(f"everything_{number}" for number, _ in enumerate(self.publications))


def scenarios() -> list[Scenario]:
    """All of them, by name."""
    return [read_scenario(path) for path in sorted(FOLDER.glob("*.sql"))]


def read_scenario(path: Path) -> Scenario:
    """Raises ValueError for a directive that is none."""
    scenario, part, session = Scenario(path.stem), "", "a"
    for directive, text in _statements(path.read_text()):
        name, _, value = (part_of.strip() for part_of in text.partition(":"))
        if not directive:
            if part == "setup":
                scenario.setup.append(text)
            else:
                scenario.steps.append((session, text))
        elif name == "since":
            scenario.since = int(value)
        elif name == "publication":
            scenario.publications.append(value)
        elif name == "options":
            scenario.options = tuple(option.strip() for option in value.split("|"))
        elif name in ("two_phase", "live", "catalog changes", "translated"):
            setattr(scenario, name.replace(" ", "_"), True)
        elif name in ("setup", "run"):
            part = name
        elif name == "session":
            session = value
        elif name == WAIT:
            scenario.steps.append((session, WAIT))
        else:
            raise ValueError(f"{path}: {text}")
    scenario.publications = scenario.publications or ["FOR ALL TABLES"]
    return scenario


def _statements(text: str) -> Iterator[tuple[bool, str]]:
    """Directives (True) and statements, in order."""
    pending: list[str] = []
    for line in text.splitlines():
        if line.startswith("--!"):
            yield True, line.removeprefix("--!").strip()
        elif line.strip():
            pending.append(line)
            if line.endswith(";"):
                yield False, "\n".join(pending)
                pending = []
