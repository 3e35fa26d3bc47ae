"""`python -m bench NAME [ARGS]` runs one benchmark, `python -m bench` all; the exit code says whether bars are met.

`python -m bench NAME --against REF` runs it here and in a checkout of REF by turns (`bench/against.py`).
"""

from __future__ import annotations

import importlib
import sys

from bench import against

ALL = (
    "capture", "chaos", "client", "decode", "docs", "hot", "land", "mirror-disk", "mirror-scale", "packages", "plugins",
    "reorder", "silent", "snapshot", "spill", "streamed", "types",
)  # fmt: skip


def main(argv: list[str]) -> int:
    """Run the benchmark that ``argv`` names with the rest as its arguments, or all of them."""
    if any(argument.split("=")[0] == "--against" for argument in argv):
        return against.main(argv[0], argv[1:])
    if argv:
        return _run(argv[0], argv[1:])
    missed = []
    for name in ALL:
        print(f"== {name}", flush=True)
        if _run(name, []):
            missed.append(name)
    print(f"bars missed: {', '.join(missed)}" if missed else "all bars met")
    return 1 if missed else 0


def _run(name: str, argv: list[str]) -> int:
    return int(importlib.import_module(f"bench.{name.replace('-', '_')}").main(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
