"""The option sets that every scenario is decoded with, for each C plugin that judges; they stand in options.txt.

*Feeds* are the streams of pgoutput that ours is decoded from. "plain": whole transactions; "streamed": chunks of those
in progress; "two_phase": at PREPARE; "both". A set times a feed is a pair to compare. *Flags*: ``live``, it is also
used where decoding happens beside the scenario, which costs a slot each; ``two_phase``, it is for the slots that decode
at PREPARE; ``binary``, the C plugin writes binary; ``catalog``, it prints what pgoutput does not carry and the catalog
says; ``since=15``, the first server.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.plugins.scenario import Scenario

PLAIN, STREAMED, TWO_PHASE, BOTH = "plain", "streamed", "two_phase", "both"
_FILE = Path(__file__).parent / "options.txt"


@dataclass(frozen=True)
class OptionSet:
    """One line of options.txt."""

    plugin: str
    name: str
    feeds: tuple[str, ...]
    flags: frozenset[str]
    options: tuple[tuple[str, str], ...]

    @property
    def two_phase(self) -> bool:
        return "two_phase" in self.flags

    @property
    def binary(self) -> bool:
        return "binary" in self.flags

    def fits(self, scenario: Scenario, major: int) -> bool:
        """Whether the scenario is decoded with it on a server of this version."""
        since = max((int(flag.removeprefix("since=")) for flag in self.flags if flag.startswith("since=")), default=0)
        if major < since or (self.two_phase and not scenario.two_phase):
            return False
        if (scenario.options and self.name not in scenario.options) or (
            scenario.catalog_changes and "catalog" in self.flags
        ):
            return False
        return "live" in self.flags or not scenario.live


def _read() -> list[OptionSet]:
    sets = []
    for line in _FILE.read_text().splitlines():
        if not line.startswith("#"):
            plugin, name, feeds, flags, options = (part.strip() for part in line.split("|"))
            pairs = [pair.split("=", 1) for pair in options.split("; ") if pair]
            given = tuple((option, value) for option, value in pairs)
            sets.append(OptionSet(plugin, name, tuple(feeds.split()), frozenset(flags.split()), given))
    return sets


OPTION_SETS = _read()
