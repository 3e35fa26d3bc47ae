"""Two children share nothing but the change log; the parent starts again what dies, until a reason time cannot mend.

A child that ends with EXIT_TRANSIENT, by a signal or by a crash is started again after a pause that doubles up to
30 s and starts anew once the child has lived for a minute. Any other exit code is a reason that a new start would only
meet again: everything stops with that child's one sentence.

But a pipeline that has lived for a minute was set up well, and whatever ends it later (a full disk, say) must not cost
the server its WAL: capture goes on alone, and the pipeline is tried again after pauses of half a minute to five.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from wal2lake import __version__
from wal2lake.changelog.events import Events
from wal2lake.changelog.places import child_log
from wal2lake.config import Config
from wal2lake.errors import InterruptedByUser, Wal2LakeError
from wal2lake.monitor.progress import Progress, read_progress
from wal2lake.retry import Backoff
from wal2lake.run.child import EXIT_TRANSIENT
from wal2lake.run.process import Child

# How a child that was stopped may end. What waiting mends the next run meets no more; SIGTERM ends one that had not
# begun, InterruptedByUser one that had not come far.
_NO_FAILURE = (None, 0, EXIT_TRANSIENT, InterruptedByUser.exit_code, -signal.SIGTERM)
_OVERDUE = {
    "pipeline": "The pipeline did not finish its batch within {} s of the stop and was killed; the next run does that"
    " batch again.",
    "capture": "Capture did not end within {} s of the stop and was killed; what it had not made durable the server"
    " sends again.",
}


class ChildFailedError(Wal2LakeError):
    """A child ended for a reason of its own, which stands in the message; ``code`` is what `run` ends with."""

    def __init__(self, role: str, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.role = role
        self.code = code


@dataclass(frozen=True)
class RestartPolicy:
    """All in seconds: the first and the longest pause before what died is started again, and before a pipeline is
    tried again that capture goes on without; the age from which a child counts as settled; what each has to stop in."""

    pauses_s: tuple[float, float] = (0.5, 30.0)
    pauses_alone_s: tuple[float, float] = (30.0, 300.0)
    settled_s: float = 60.0
    stop_s: Mapping[str, float] = field(default_factory=lambda: {"pipeline": 60.0, "capture": 20.0})


class Supervisor:
    """Owns both children. ``start``, then ``tick`` often, at the end ``stop``; only stop may take long."""

    def __init__(self, config: Config, policy: RestartPolicy | None = None) -> None:
        self.config = config
        self.policy = policy or RestartPolicy()
        self.children = {role: Child(role, child_log(config.log.folder, role)) for role in ("capture", "pipeline")}
        self.backoff = {role: Backoff(*self.policy.pauses_s) for role in self.children}
        self.backoff_alone = Backoff(*self.policy.pauses_alone_s)
        self.events = Events(config.log.path, "run")
        self._down: ChildFailedError | None = None  # what ended a settled pipeline, until it has settled again

    def start(self) -> None:
        """Start both."""
        self.events.record("started", "`wal2lake run` begins.", version=__version__)
        for child in self.children.values():
            child.start(self.config)

    def pids(self) -> dict[str, int]:
        """Of the children that live, by role."""
        pids = {role: child.pid for role, child in self.children.items()}
        return {role: pid for role, pid in pids.items() if pid is not None}

    def progress(self) -> tuple[Progress, str]:
        """How far both are, and what is worth telling: why one is started again, or what it waits for."""
        progress = read_progress(self.config.log.path, self.pids())
        pipeline_waits_for = progress.pipeline_reason if progress.pipeline_state == "waiting" else None
        note = self.note or self.children["capture"].waits_for(progress.capture_state) or pipeline_waits_for
        return progress, note or ""

    @property
    def note(self) -> str:
        """Why a child is being started again; empty while both live."""
        dead = [child for child in self.children.values() if child.process is None]
        notes = {child.role: f"{child.role} starts again after: {child.reason}" for child in dead}
        if self._down is not None:
            notes["pipeline"] = f"capture goes on without the pipeline, which is tried again after: {self._down}"
        return "; ".join(notes.values())

    def tick(self) -> None:
        """Start again what has died and is due; raise ChildFailedError for what must not be started again."""
        for child in self.children.values():
            if child.process is None:
                if time.monotonic() >= child.due_at:
                    child.start(self.config)
                continue
            if time.monotonic() - child.started_at > self.policy.settled_s:
                child.settled = True
                self.backoff[child.role].reset()
                if child.role == "pipeline":
                    self.backoff_alone.reset()
                    self._down = None
            if child.process.poll() is not None:
                self._restart_or_raise(child, child.process.returncode)

    def stop(self) -> None:
        """End cleanly: the pipeline finishes its batch, then capture makes durable what it holds."""
        for role in ("pipeline", "capture"):
            child = self.children[role]
            child.signal(signal.SIGTERM)
            child.wait(self.policy.stop_s[role])
            if child.overdue:
                self.events.record("failed", _OVERDUE[role].format(self.policy.stop_s[role]), level="error", role=role)
        self.events.record("stopped", "`wal2lake run` ends.")

    def require_clean_end(self) -> None:
        """After ``stop``: raise ChildFailedError for what was not finished, or was down by then."""
        found = [failure for child in self.children.values() if (failure := self._failure_at_end(child)) is not None]
        if found:
            raise ChildFailedError(found[0].role, " ".join(str(failure) for failure in found), found[0].code)

    def kill(self) -> None:
        """End at once; everything resumes from what is durable."""
        for child in self.children.values():
            child.kill()

    def _restart_or_raise(self, child: Child, code: int) -> None:
        child.wait(0)
        # signals (negative), crashes (1) and clean ends nobody asked for (0); a reason with its own code is not
        if code in (0, 1, EXIT_TRANSIENT) or code < 0 or code > 128:
            self._restart_later(child, self.backoff[child.role].pause_s(), f"{child.role} starts again")
            return
        failure = ChildFailedError(child.role, child.reason, code)
        if child.role == "capture" or not child.settled:
            self.events.record("failed", child.reason, level="error", role=child.role, exit_code=code)
            raise failure
        self._down = failure
        self._restart_later(child, self.backoff_alone.pause_s(), "capture goes on alone, and pipeline is tried again")

    def _restart_later(self, child: Child, pause_s: float, what: str) -> None:
        text = f"{what} in {pause_s:g} s after: {child.reason}"
        child.back_off(pause_s)
        self.events.record(
            "restarted",
            text,
            level="warning",
            role=child.role,
            pause_s=pause_s,
            exit_code=child.code,
            starts=child.starts,
        )

    def _failure_at_end(self, child: Child) -> ChildFailedError | None:
        if child.overdue:
            overdue = _OVERDUE[child.role].format(self.policy.stop_s[child.role])
            return ChildFailedError(child.role, overdue, Wal2LakeError.exit_code)
        if child.code not in _NO_FAILURE and not child.killed:
            code = child.code if child.code is not None and 0 < child.code < 128 else Wal2LakeError.exit_code
            return ChildFailedError(child.role, child.reason, code)
        return self._down if child.role == "pipeline" else None
