"""A copy of the project for each process, in which one file at a time is another; the real one is never touched.

The tests are copied as well: whoever works on them meanwhile changes no result.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutants import COPY, DURATIONS, PROFILE
from tests.mutants.mutations import PACKAGES, ROOT, Mutant

_STOPPED: Final = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)


class Workshop:
    """``jobs`` copies below ``folder``; ``check`` first, then ``notices`` from as many threads."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder = folder
        self._limit_s: float | None = None
        self._running: set[subprocess.Popen[str]] = set()
        self._lock, self._closed = threading.Lock(), False
        self._copies: SimpleQueue[Path] = SimpleQueue()
        self._jobs = jobs

    def check(self) -> str | None:
        """Run the tests against the code as it is; returns what they say when they fail."""
        first, began = self._folder / "0", time.monotonic()
        for part in ("src", "tests", "bench", "docs"):
            shutil.copytree(ROOT / part, first / part)
        shutil.copy2(ROOT / "pyproject.toml", first)
        status, output = self._pytest(first, PACKAGES)
        self._limit_s = 60 + 6 * (time.monotonic() - began)  # a single test's own limit is less
        for job in range(self._jobs):
            copy = self._folder / str(job)
            if job:
                shutil.copytree(first, copy, ignore=shutil.ignore_patterns("tmp"))  # compiled by now
            self._copies.put(copy)
        return output if status else None

    def notices(self, mutant: Mutant) -> bool:
        """Whether a test fails, or does not end. Raises RuntimeError when somebody else ended the run."""
        copy, own = self._copies.get(), Path(mutant.file).parts[1]
        file = copy / "src" / mutant.file
        sound = shutil.copy2(file, file.with_suffix(".sound"))
        try:
            file.write_text(mutant.code)
            return any(
                self._fails(copy, packages, mutant) for packages in ((own,), tuple(p for p in PACKAGES if p != own))
            )
        finally:
            os.replace(sound, file)
            self._copies.put(copy)

    def _fails(self, copy: Path, packages: Sequence[str], mutant: Mutant) -> bool:
        try:
            status, _ = self._pytest(copy, packages)
        except subprocess.TimeoutExpired:
            return True
        if status in _STOPPED:
            raise RuntimeError(f"the tests of {mutant.file}:{mutant.number} were stopped by signal {-status}")
        return status != 0

    def close(self) -> None:
        """Stop what runs."""
        with self._lock:
            self._closed = True
            for process in self._running:
                os.killpg(process.pid, signal.SIGKILL)

    def _pytest(self, copy: Path, packages: Sequence[str]) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider"]
        command += ["-m", "not server and not spark and not servers", f"--hypothesis-profile={PROFILE}"]
        command += [f"--basetemp={copy / 'tmp'}", *(f"tests/{package}" for package in packages)]
        environment = os.environ | {
            "PYTHONPATH": str(copy / "src"),
            "PYTHONDONTWRITEBYTECODE": "1" if self._limit_s else "",  # of mutants nothing may be kept
            COPY: str(copy),
            DURATIONS: str(self._folder / "durations.json"),
        }
        out = subprocess.PIPE
        with self._lock:
            if self._closed:
                return -signal.SIGINT, ""
            process = subprocess.Popen(
                command, cwd=copy, env=environment, stdout=out, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
            self._running.add(process)
        try:
            output, _ = process.communicate(timeout=self._limit_s)
            return process.returncode, output
        except BaseException:  # it took too long, or Ctrl-C
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        finally:
            with self._lock:
                self._running.discard(process)
