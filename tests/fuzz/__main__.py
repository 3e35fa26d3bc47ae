"""`python -m tests.fuzz --seconds 60`, or `--count 10000000` for a night; a bug is printed and ends in exit code 1."""

from __future__ import annotations

import argparse
import resource
import sys
from random import Random

from tests.fuzz import columnar, targets
from tests.fuzz.run import fuzz

MEMORY_LIMIT = 4 << 30  # bytes of address space: an allocation by an untrusted count becomes a MemoryError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="how long (default 60, or as long as --count takes)")
    parser.add_argument("--count", type=int, help="how many mutated messages at least")
    parser.add_argument("--seed", type=int, default=Random().getrandbits(32), help="to repeat a run")
    parser.add_argument("--target", help="only the targets whose name has this in it")
    arguments = parser.parse_args()
    seconds = arguments.seconds or (float("inf") if arguments.count else 60.0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))
    chosen = [target for target in (*targets.targets(), *columnar.targets()) if (arguments.target or "") in target.name]
    done, bugs = fuzz(chosen, Random(arguments.seed), seconds=seconds, count=arguments.count)
    print(*bugs, sep="\n")
    print(f"{done} mutants, {len(chosen)} targets, {len(bugs)} bugs, --seed {arguments.seed}")
    return 1 if bugs or not done else 0


if __name__ == "__main__":
    sys.exit(main())
