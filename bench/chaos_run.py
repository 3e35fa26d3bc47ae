"""`wal2lake run` as its user has it, started again whenever it ended, and a disk for the log that can be filled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil  # type: ignore[import-untyped]

from wal2lake.lsn import LSN

_TICK_S = 0.25
_MAY_END = (0, 13)  # asked to, or the disk is full: the user makes room and starts it again
_VERIFY_S = 300


class Disk:
    """A context manager: a file system of its own at ``path``, if this user may mount one, else a plain folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_small = False

    def __enter__(self) -> Self:
        self.path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", str(self.path)]
        self.is_small = subprocess.run(command, capture_output=True, check=False).returncode == 0
        if not self.is_small:
            print("No file system can be mounted by this user, so no disk will be full.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_small:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    @contextmanager
    def full(self) -> Iterator[None]:
        """Nothing more fits while the block lasts."""
        filler = self.path / "filler"
        try:
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        os.posix_fallocate(file.fileno(), file.tell(), 1 << 20)
                        file.seek(1 << 20, os.SEEK_CUR)
                except OSError:
                    pass
            yield
        finally:
            filler.unlink(missing_ok=True)


class PipelineRun:
    """A context manager: the process, and what its user does about it."""

    def __init__(self, dsn: str, folder: Path, disk: Disk) -> None:
        self.lake = folder / "lake"
        self._folder, self._disk = folder, disk
        self._options = ["--dsn", dsn, "--publication", "pub", "--log", str(disk.path), "--lake", str(self.lake)]
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()

    def _start(self) -> None:
        with (self._folder / "said.txt").open("ab") as said:
            command = [sys.executable, "-m", "wal2lake", "run", *self._options]
            self._process = subprocess.Popen(command, cwd=self._folder, stderr=said)

    def tend(self, seconds: float) -> None:
        """Let it be for so long; if it ends by itself in a way that its user can mend, start it again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            code = self._process.poll()
            if code is not None:
                if code not in (*_MAY_END, -signal.SIGKILL):
                    last = (self._folder / "said.txt").read_text(errors="replace").splitlines()[-3:]
                    raise RuntimeError(f"wal2lake run ended with {code}: {' '.join(last)}")
                self._start()
            time.sleep(_TICK_S)

    def kill(self) -> None:
        """SIGKILL the parent, and no other: its children see to themselves."""
        self._process.kill()
        self._process.wait()

    def kill_one(self, dice: random.Random) -> str:
        """SIGKILL one of its processes; returns what it was."""
        try:
            victim = dice.choice(psutil.Process(self._process.pid).children(recursive=True))
            name = _kind(victim)
            victim.kill()
        except (psutil.NoSuchProcess, IndexError):
            return "nobody"
        return name

    def drain(self, lsn: str, patience_s: float) -> str | None:
        """Wait until all tables stream and nothing up to ``lsn`` is in doubt; else what is missing, in words."""
        end = time.monotonic() + patience_s
        missing = "no status"
        while time.monotonic() < end:
            self.tend(1.0)
            missing = self._missing(LSN.parse(lsn))
            if not missing:
                return None
        return f"after {patience_s:.0f} s: {missing}"

    def _missing(self, lsn: LSN) -> str:
        try:
            status: dict[str, Any] = json.loads((self._disk.path / "status/pipeline.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return "no status"
        tables = {name: table for name, table in status["tables"].items() if table["state"] != "unpublished"}
        behind = [
            f"{name} {table['state']} {table['reason'] or ''}".strip()
            for name, table in tables.items()
            if table["state"] != "streaming" or LSN.parse(table["confirmed_lsn"]) < lsn
        ]
        return ", ".join(behind) if tables else "no tables"

    def verify(self) -> str | None:
        """What `wal2lake verify` says if not that all is equal."""
        command = [sys.executable, "-m", "wal2lake", "verify", *self._options, "--json"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, check=False, timeout=_VERIFY_S)
        answer, told = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        said = f"verify: exit {done.returncode}: {answer[-600:]}{told[-300:]}"
        return None if done.returncode == 0 else said


def _kind(process: psutil.Process) -> str:
    line = process.cmdline()
    for kind in ("java", "pyspark.daemon", "capture", "pipeline"):
        if any(kind in word for word in line[:6]):
            return kind
    return line[0] if line else "?"
