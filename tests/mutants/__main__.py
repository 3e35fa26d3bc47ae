"""`python -m tests.mutants --seed 7`: prints what no test noticed, then noticed / tried; exit code 1 below the bar."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from typing import Final

from tests.mutants.mutations import Mutant, mutants
from tests.mutants.workshop import Workshop

BAR: Final = 0.92
EXIT_UNUSABLE, EXIT_INTERRUPTED = 2, 130


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many mutants (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="which of them (default: 1)")
    parser.add_argument("--only", default="", help="of files with this in their name, as columnar/binary")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    return parser.parse_args()


def results(workshop: Workshop, chosen: list[Mutant], jobs: int) -> Iterator[tuple[Mutant, bool]]:
    with ThreadPoolExecutor(jobs) as pool:
        try:
            asked = {pool.submit(workshop.notices, mutant): mutant for mutant in chosen}
            for done in as_completed(asked):
                yield asked[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            workshop.close()


def run(chosen: list[Mutant], jobs: int) -> int:
    noticed, tried, interrupted = 0, 0, False
    with tempfile.TemporaryDirectory(prefix="wal2lake-mutants-") as folder:
        workshop = Workshop(Path(folder), jobs)
        try:
            print("the tests against the code as it is", file=sys.stderr, flush=True)
            if (failed := workshop.check()) is not None:
                print(f"{failed}\nThe tests fail without a mutant; mend that first.", file=sys.stderr)
                return EXIT_UNUSABLE
            for mutant, was_noticed in results(workshop, chosen, jobs):
                noticed, tried = noticed + was_noticed, tried + 1
                if not was_noticed:
                    print(f"unnoticed: {mutant}", flush=True)
                print(f"{noticed} of {tried} noticed, {len(chosen) - tried} to go", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            interrupted = True
            workshop.close()
    ratio = noticed / max(tried, 1)
    print(f"{noticed} / {tried}")
    print(f"ratio: {ratio:.2f} (bar {BAR})")
    return EXIT_INTERRUPTED if interrupted else int(ratio < BAR)


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = list(islice(mutants(given.seed, given.only), given.count))
    if not chosen:
        print(f"no file has {given.only!r} in its name", file=sys.stderr)
        return EXIT_UNUSABLE
    if given.list:
        print(*chosen, sep="\n")
        return 0
    print(f"{len(chosen)} mutants, --seed {given.seed}", file=sys.stderr)
    return run(chosen, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
