"""`python -m bench plugins`: our plugins beside the server's own C plugins, on every scenario and option set.

Server 15 has test_decoding, wal2json and pgoutput, the others all but wal2json. A pair is a scenario decoded with one
option set from one kind of stream; it is equal when every piece of ours is the C plugin's, or what
tests/plugins/declared.txt declares for exactly that piece. `--server 17 --scenario toast` chooses.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from tests.plugins.differential import Pair, encoder_pairs, pairs, recorded
from tests.plugins.oracle import WAL2JSON_MAJOR, oracle_server
from tests.plugins.scenario import Scenario, scenarios
from wal2lake.errors import Wal2LakeError
from wal2lake.testing.servers import VERSIONS

_SERVERS = (14, WAL2JSON_MAJOR, 18)  # what 13, 16 and 17 say otherwise is little; --server asks them
LEAST_PAIRS = 300
MOST_DECLARED = 0.01


def main(argv: list[str]) -> int:
    """Print the table and the differences; 1 when a pair differs, or a bar is missed."""
    chosen = _parser().parse_args(argv)
    found: list[Pair] = []
    for major in chosen.server or _SERVERS:
        try:
            found += _judge(major, [s for s in scenarios() if not chosen.scenario or s.name in chosen.scenario])
        except Wal2LakeError as error:
            print(f"{error.message} {error.hint or ''}", file=sys.stderr)
            return 1
    _print_table(found)
    return _verdict(found, whole=not (chosen.scenario or chosen.server))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench plugins", description=__doc__)
    parser.add_argument("--server", type=int, action="append", choices=sorted(VERSIONS), help="a major version")
    parser.add_argument("--scenario", action="append", help="the name of a file in tests/plugins/scenarios")
    return parser


def _judge(major: int, chosen: Iterable[Scenario]) -> list[Pair]:
    found: list[Pair] = []
    with oracle_server(major) as server:
        for scenario in chosen:
            if scenario.since <= major:
                with recorded(server, scenario, major) as recording:
                    mine = [*pairs(recording), *encoder_pairs(recording)]
                found += mine
                equal = sum(pair.equal for pair in mine)
                print(f"server {major}, {scenario.name}: {equal} of {len(mine)} pairs equal", flush=True)
                for pair in mine:
                    if not pair.equal:
                        print(f"{pair}: {pair.difference()}")
    return found


def _print_table(found: list[Pair]) -> None:
    table = Table("server", "plugin", "pairs", "equal", "lines", "declared")
    groups = Counter((pair.major, pair.chosen.plugin) for pair in found)
    for (major, plugin), count in sorted(groups.items()):
        group = [pair for pair in found if (pair.major, pair.chosen.plugin) == (major, plugin)]
        sums = (sum(pair.equal for pair in group), sum(pair.lines for pair in group), sum(p.declared for p in group))
        table.add_row(str(major), plugin, str(count), *(f"{number:,}" for number in sums))
    Console(width=100).print(table)


def _verdict(found: list[Pair], *, whole: bool) -> int:
    """The bars are for the whole, and count test_decoding and wal2json alone; whatever was chosen must be equal."""
    equal = sum(pair.equal for pair in found)
    judged = [pair for pair in found if pair.chosen.plugin != "pgoutput"]
    lines, declared = sum(pair.lines for pair in judged), sum(pair.declared for pair in judged)
    share = declared / max(lines, 1)
    print(f"declared exceptions: {declared:,} of {lines:,} lines, {share:.2%} (bar {MOST_DECLARED:.0%})")
    print(f"pairs equal: {equal:,} / {len(found):,} (bar: all, and {LEAST_PAIRS} of test_decoding and wal2json)")
    met = equal == len(found) and (not whole or (len(judged) >= LEAST_PAIRS and share <= MOST_DECLARED))
    return 0 if met else 1
