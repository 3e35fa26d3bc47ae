"""`python -m tests.fuzz --seconds 60`, or `--count 10000000` for a night; a bug is printed and ends in exit code 1."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import closing
from random import Random
from typing import Final

from tests.fuzz.rounds import chosen, rounds
from tests.fuzz.run import BATCH, Bug

EXIT_INTERRUPTED: Final = 130
NEWS_S: Final = 60.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="how long (default 60, or as long as --count takes)")
    parser.add_argument("--count", type=int, help="how many mutated messages at least")
    parser.add_argument("--seed", type=int, default=Random().getrandbits(32), help="to repeat a run")
    parser.add_argument("--target", default="", help="only the targets whose name has this in it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    targets = [target.name for target in chosen(given.target)]
    if not targets:
        print(f"no target has {given.target!r} in its name", file=sys.stderr)
        return 2
    seconds = given.seconds or (float("inf") if given.count else 60.0)
    done, bugs, interrupted = 0, dict[str, Bug](), False
    began = news = time.monotonic()
    try:
        with closing(rounds(given.target, given.seed, given.jobs)) as results:
            for found in results:
                done += len(targets) * BATCH
                for bug in found:
                    if bugs.setdefault(bug.target, bug) is bug:
                        print(bug, flush=True)  # at once: a night is long
                now = time.monotonic()
                if now - began >= seconds or (given.count and done >= given.count):
                    break
                if now - news >= NEWS_S:
                    news = now
                    print(f"{done} mutants in {now - began:.0f} s, {len(bugs)} bugs", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        interrupted = True
    for name in targets:
        print(f"{done // len(targets):>9} {name}{': a bug' if name in bugs else ''}")
    print(f"{done} mutants, {len(targets)} targets, {len(bugs)} bugs, --seed {given.seed}")
    return 1 if bugs else EXIT_INTERRUPTED if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
