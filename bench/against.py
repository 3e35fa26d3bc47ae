"""`python -m bench NAME --against REF`: this working tree beside a clean checkout of REF, by turns, in one invocation.

Each run is a process of its own, with its side's checkout first in Python's path: its benchmark measures its code. The
interpreter, the libraries and the machine are the same for both, so that only the project's own code differs; what a
library gained or lost since REF is no part of the ratio. What else the machine does can only slow a round, so each
side's fastest round counts; the medians are printed beside it.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

BAR = 0.95
PAIRS = 3
ROOT = Path(__file__).parent.parent
_ROUND = re.compile(r"^round \d+: .*? ([\d,]+)/s", re.MULTILINE)  # the first contestant of a round is ours


@dataclass(frozen=True)
class Side:
    """One of the two checkouts, and the changes or rows per second that its rounds reached."""

    name: str
    checkout: Path
    rates: list[float] = field(default_factory=list)

    def run(self, argv: Sequence[str]) -> None:
        """Run ``python -m bench`` with these arguments in the checkout and note its rounds. Whether it met its own
        bar does not matter here. Raises SystemExit, naming the side, for one that measured nothing."""
        found = [float(rate.replace(",", "")) for rate in _ROUND.findall(self._python("-m", "bench", *argv))]
        if not found:
            raise SystemExit(f"{self.name}: bench {argv[0]} printed no rate of a round; see above.")
        self.rates.extend(found)
        print(f"{self.name}: " + ", ".join(f"{rate:,.0f}/s" for rate in found), flush=True)

    def check(self, name: str) -> None:
        """Raise SystemExit if the checkout lacks the benchmark, or its processes would import another's code."""
        if not (self.checkout / "bench" / f"{name}.py").is_file():
            raise SystemExit(f"{self.name} has no benchmark named {name}.")
        imported = Path(self._python("-c", "import wal2lake; print(wal2lake.__file__)").strip())
        if not imported.is_relative_to(self.checkout.resolve()):
            raise SystemExit(f"{self.name} would measure {imported}, which is not its own code.")

    def _python(self, *argv: str) -> str:
        path = os.pathsep.join((str(self.checkout), str(self.checkout / "src")))
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, *argv]
        done = subprocess.run(
            command, cwd=self.checkout, env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
        return done.stdout


def main(name: str, argv: Sequence[str]) -> int:
    """Compare; 0 if this working tree reaches ``BAR`` of REF's throughput, else 1."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=__doc__)
    parser.add_argument("--against", metavar="REF", required=True, help="a commit, branch or tag of this repository")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="how often each side runs (default: %(default)s)")
    given, rest = parser.parse_known_args(argv)
    return compare(ROOT, given.against, [name, *rest], given.pairs)


def compare(root: Path, ref: str, argv: Sequence[str], pairs: int) -> int:
    """Run ``python -m bench`` with ``argv`` in ``root`` and in a checkout of ``ref``, each that often, and judge."""
    with tempfile.TemporaryDirectory(prefix="wal2lake-against-") as folder:
        check_out(root, ref, Path(folder))
        ours, theirs = Side("this tree", root), Side(ref, Path(folder))
        for side in (ours, theirs):
            side.check(argv[0])
        for turn in range(pairs):
            for side in (ours, theirs) if turn % 2 else (theirs, ours):  # neither is always the first of a pair
                side.run(argv)
    return verdict(ours, theirs)


def check_out(root: Path, ref: str, folder: Path) -> None:
    """Write the files of ``ref`` to ``folder``; the repository keeps no trace of it. Raises SystemExit for no such."""
    archive = subprocess.run(["git", "-C", root, "archive", "--format=tar", ref], capture_output=True, check=False)
    if archive.returncode:
        raise SystemExit(f"{ref} cannot be checked out: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def verdict(ours: Side, theirs: Side) -> int:
    """Print both throughputs and, last, the ratio; 0 when it reaches the bar, else 1."""
    for side in (ours, theirs):
        median, fastest = statistics.median(side.rates), max(side.rates)
        print(f"{side.name}: {len(side.rates)} rounds, median {median:,.0f}/s, fastest {fastest:,.0f}/s")
    ratio = max(ours.rates) / max(theirs.rates)
    print(f"ratio: {ratio:.2f} (bar {BAR})")
    return 0 if ratio >= BAR else 1
