"""Two children share nothing but the change log; the parent starts again what dies, until a reason time cannot mend.

A child that ends with EXIT_TRANSIENT, by a signal or by a crash is started again after a pause that doubles up to
30 s and starts anew once the child has lived for a minute. Any other exit code is a reason that a new start would only
meet again: everything stops with that child's one sentence.
"""

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
from pathlib import Path
from typing import IO

from wal2lake.config import Config
from wal2lake.errors import Wal2LakeError
from wal2lake.monitor.progress import Progress, read_progress
from wal2lake.run.child import ERROR_PREFIX, EXIT_TRANSIENT
from wal2lake.run.logs import Line, read_line

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_SETTLED_S = 60.0
_STOP_S = {"pipeline": 60.0, "capture": 20.0}


class ChildFailedError(Wal2LakeError):
    """A child ended for a reason of its own, which stands in the message; ``exit_code`` is the child's."""

    def __init__(self, role: str, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.role = role
        self.code = code


@dataclass
class Child:
    """One role and its present process. ``starts`` counts them; ``pid`` is None between two."""

    role: str
    log_file: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    started_at: float = 0.0
    pause: float = _FIRST_PAUSE_S
    due_at: float = 0.0
    sentence: str = ""
    code: int | None = None
    tail: deque[Line] = field(default_factory=lambda: deque(maxlen=30))
    _reader: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """The process to look at, or to kill in a test."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def start(self, config: Config) -> None:
        """Start the process in a session of its own, so the terminal's Ctrl-C reaches the parent alone."""
        self.sentence = ""
        self.tail.clear()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wal2lake.run.child", self.role],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
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
        """Why it ended: its one sentence, or else what it told last that was not routine."""
        if self.sentence:
            return self.sentence
        told = [line.text for line in self.tail if line.text and not line.is_routine][-3:]
        ends = f" It ends: {' | '.join(told)}" if told else ""
        return f"The {self.role} process {_ending(self.code)}; its log is {self.log_file}.{ends}"

    def signal(self, number: int) -> None:
        """Send ``number`` if there is a process."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, timeout: float) -> None:
        """Wait for the end and for the last line; past ``timeout`` seconds the process group is killed."""
        if self.process is None:
            return
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self._settle()

    def kill(self) -> None:
        """SIGKILL to the child and to all that it started."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._settle()

    def _settle(self) -> None:
        if self._reader is not None:
            self._reader.join(2.0)
        if self.process is not None and self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(BrokenPipeError):  # a configuration that nobody has read is nobody's loss now
                self.process.stdin.close()

    def _read(self, pipe: IO[bytes]) -> None:
        """Keep the end of what the child says, and all of it in its log file as long as that can be written."""
        with pipe, _LogFile(self.log_file) as log:
            for raw in pipe:
                line = raw.decode(errors="replace").rstrip("\n")
                if line.startswith(ERROR_PREFIX):
                    self.sentence = json.loads(line.removeprefix(ERROR_PREFIX))["error"]
                else:
                    self.tail.append(read_line(line))
                log.write(raw)


class _LogFile:
    """A log that a full disk silences instead of ending what it tells of."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self.lost = 0

    def __enter__(self) -> _LogFile:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
        except OSError:
            self.lost += 1
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, line: bytes) -> None:
        """Append ``line``; count it as lost when the disk takes it no more."""
        if self._file is None:
            self.lost += 1
            return
        try:
            self._file.write(line)
        except OSError:
            self.lost += 1


class Supervisor:
    """Owns both children. ``start``, then ``tick`` often, at the end ``stop``; only stop may take long."""

    def __init__(self, config: Config) -> None:
        self.config = config
        logs = Path(config.log.path) / "status"
        self.children = {role: Child(role, logs / f"{role}.log") for role in ("capture", "pipeline")}

    def start(self) -> None:
        """Start both."""
        for child in self.children.values():
            child.start(self.config)

    def look(self) -> tuple[Progress, str]:
        """How far both are, and what is worth telling: why one is started again, or what capture waits for."""
        pids = {role: child.pid for role, child in self.children.items()}
        progress = read_progress(self.config.log.path, {role: pid for role, pid in pids.items() if pid is not None})
        return progress, self.note or _waits_for(self.children["capture"], progress.capture_state)

    @property
    def note(self) -> str:
        """Why a child is being started again; empty while both live."""
        down = [child for child in self.children.values() if child.process is None]
        return "; ".join(f"{child.role} starts again after: {child.reason}" for child in down)

    def tick(self) -> None:
        """Start again what has died and is due; raise ChildFailedError for what must not be started again."""
        for child in self.children.values():
            if child.process is None:
                if time.monotonic() >= child.due_at:
                    child.start(self.config)
            elif child.process.poll() is not None:
                self._ended(child, child.process.returncode)

    def stop(self) -> None:
        """End cleanly: the pipeline finishes its batch, then capture makes durable what it holds."""
        for role in ("pipeline", "capture"):
            child = self.children[role]
            child.signal(signal.SIGTERM)
            child.wait(_STOP_S[role])

    def kill(self) -> None:
        """End at once; everything resumes from what is durable."""
        for child in self.children.values():
            child.kill()

    def _ended(self, child: Child, code: int) -> None:
        child.wait(0)
        child.code = code
        if not _worth_another_start(code):
            raise ChildFailedError(child.role, child.reason, code)
        if time.monotonic() - child.started_at > _SETTLED_S:
            child.pause = _FIRST_PAUSE_S
        child.process = None
        child.due_at = time.monotonic() + child.pause
        child.pause = min(child.pause * 2, _LONGEST_PAUSE_S)


def _worth_another_start(code: int) -> bool:
    """Signals (negative), crashes (1) and clean ends nobody asked for (0) are; a reason with its own code is not."""
    return code in (0, 1, EXIT_TRANSIENT) or code < 0 or code > 128


def _waits_for(child: Child, state: str) -> str:
    """The last that the child told, as long as it is what keeps it from its work."""
    if not child.tail or state == "streaming":
        return ""
    last = child.tail[-1]
    return "" if last.is_routine and state != "starting" else last.text


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"ended with exit code {code}"
