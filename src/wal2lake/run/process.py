"""A child as its parent has it: a process, what it tells, and how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import IO

from wal2lake.config import Config
from wal2lake.run.child import ERROR_PREFIX
from wal2lake.run.logs import Line, read_line, relay

LOG_BYTES = 16 << 20


@dataclass
class Child:
    """One role and its present process. ``starts`` counts them; ``pid`` is None between two.

    ``settled``: one of them has lived long. ``code`` is how the last one ended: None while there is one, negative for
    a signal. ``overdue``: it did not end in the time that it was given; ``killed``: it was given none.
    ``log_format``: what it tells is told by its parent too, in this format.
    """

    role: str
    log_file: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    started_at: float = 0.0
    settled: bool = False
    due_at: float = 0.0
    sentence: str = ""
    code: int | None = None
    overdue: bool = False
    killed: bool = False
    log_format: str = ""
    tail: deque[Line] = field(default_factory=lambda: deque(maxlen=30))
    _reader: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """The process to look at, or to kill in a test."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def start(self, config: Config) -> None:
        """Start the process in a session of its own, so the terminal's Ctrl-C reaches the parent alone."""
        self.sentence, self.code, self.log_format = "", None, config.monitor.log_format
        self.tail.clear()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wal2lake.run.child", self.role],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self._reader = threading.Thread(target=self.read_output, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        self.starts += 1
        self.started_at = time.monotonic()
        try:
            self.process.stdin.write(json.dumps(asdict(config)).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.tail.append(Line("", f"The {self.role} process ended before it read its configuration."))

    @property
    def reason(self) -> str:
        """Why it ended: its one sentence, or else what its log ends with, as far as that is not routine. What it warned
        of before it went on may be over, so that has its time."""
        if self.sentence:
            return self.sentence
        told = [line for line in self.tail if line.text]
        last = list(takewhile(lambda line: not line.is_routine, reversed(told)))[2::-1]
        warned = [line for line in told if line.time and not line.is_routine]
        ends = ""
        if last:
            ends = f" It ends: {' | '.join(line.text for line in last)}"
        elif warned:
            ends = f" It went on after a warning at {warned[-1].time}: {warned[-1].text}"
        ended = f"ended with exit code {self.code}"
        if self.code is not None and self.code < 0:
            ended = f"was ended by signal {-self.code} ({signal.strsignal(-self.code)})"
        return f"The {self.role} process {ended}; its log is {self.log_file}.{ends}"

    def waits_for(self, state: str) -> str:
        """The last that it told, as long as that is what keeps it from its work; ``state``: its own word for it."""
        if not self.tail or state == "streaming":
            return ""
        last = self.tail[-1]
        return "" if last.is_routine and state != "starting" else last.text

    def signal(self, number: int) -> None:
        """Send ``number`` if there is a process."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def back_off(self, seconds: float) -> None:
        """Be without a process for so long."""
        self.process = None
        self.due_at = time.monotonic() + seconds

    def wait(self, timeout: float) -> None:
        """Wait for the end and for the last line; past ``timeout`` seconds the process group is killed."""
        if self.process is None:
            return
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.overdue = True
            self._kill()
        self._collect_exit()

    def kill(self) -> None:
        """SIGKILL to the child and to all that it started."""
        self.killed |= self.pid is not None
        self._kill()
        self._collect_exit()

    def _kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _collect_exit(self) -> None:
        if self.process is not None:
            self.code = self.process.returncode
        if self._reader is not None:
            self._reader.join(2.0)
        if self.process is not None and self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(BrokenPipeError):  # a configuration that nobody has read is nobody's loss now
                self.process.stdin.close()

    def read_output(self, pipe: IO[bytes]) -> None:
        """Keep the end of what the child says, and all of it in its log file as long as that can be written."""
        with pipe, _LogFile(self.log_file) as log:
            for raw in pipe:
                line = raw.decode(errors="replace").rstrip("\n")
                if line.startswith(ERROR_PREFIX) and (sentence := _sentence(line.removeprefix(ERROR_PREFIX))):
                    self.sentence = sentence
                else:
                    self.tail.append(read_line(line))
                    if self.log_format:
                        relay(line, self.role, self.log_format)
                log.write(raw)


def _sentence(text: str) -> str | None:
    """What a child's last line says; None where it is torn, or something else wrote into it."""
    try:
        said = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return said if isinstance(said, str) else None


class _LogFile:
    """A log that a full disk silences instead of ending what it tells of. Past LOG_BYTES it becomes ``….log.1``, in the
    place of the one before, and a new one is begun."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._size = 0
        self.lost = 0

    def __enter__(self) -> _LogFile:
        try:
            for folder in (self._path.parent.parent, self._path.parent):  # the change log's, and its status
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open()
        except OSError:
            self.lost += 1
        return self

    def _open(self) -> None:
        self._file = open(self._path, "ab", buffering=0, opener=_private)  # noqa: SIM115 - closed where the block ends
        self._size = os.fstat(self._file.fileno()).st_size

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, line: bytes) -> None:
        """Append ``line``; count it as lost when the disk takes it no more."""
        if self._file is None:
            self.lost += 1
            return
        try:
            self._size += self._file.write(line)
            if self._size > LOG_BYTES:
                self._file.close()
                os.replace(self._path, f"{self._path}.1")
                self._open()
        except OSError:
            self.lost += 1


def _private(path: str, flags: int) -> int:
    """What is told names tables and servers; it is for who runs the pipeline."""
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor
