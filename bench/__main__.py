"""`python -m bench NAME [ARGS]` runs one benchmark, `python -m bench` all; the exit code says whether bars are met.

All of them together write a report, build/bench/report.md (`bench/report.py`).

`python -m bench NAME --against REF` runs it here and in a checkout of REF by turns (`bench/against.py`).
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from bench import against

REPORT = Path("build/bench")

ALL = (
    "capture", "capture-memory", "capture-remote", "capture-small", "catch-up", "chaos", "client", "copy", "decode",
    "docs", "hot", "iceberg", "land", "latency", "memory", "mirror", "mirror-disk", "mirror-scale", "packages",
    "plugins", "readers", "reorder", "silent", "snapshot", "spill", "streamed", "tables", "types", "uptime", "vectors",
)  # fmt: skip


def main(argv: list[str]) -> int:
    """Run the benchmark that ``argv`` names with the rest as its arguments, or all of them."""
    if any(argument.split("=")[0] == "--against" for argument in argv):
        return against.main(argv[0], argv[1:])
    if argv and not argv[0].startswith("-"):
        return int(importlib.import_module(f"bench.{argv[0].replace('-', '_')}").main(argv[1:]))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="NAMES", help="some of them, with commas between")
    parser.add_argument("--report", metavar="FOLDER", type=Path, default=REPORT, help="default: build/bench")
    given = parser.parse_args(argv)
    only = given.only.split(",") if given.only else ALL
    if unknown := sorted(set(only) - set(ALL)):
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(ALL)}")
    reports = importlib.import_module("bench.report")  # only now: its plots are in nobody's measured memory
    return int(reports.run(only, given.report))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
