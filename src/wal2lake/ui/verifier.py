"""`wal2lake verify` as somebody asks for it on the page: a process of its own, one at a time.

What it finds it leaves in the log's folder (monitor/verified.py), as any verify does; here is only whether it runs.
"""

from __future__ import annotations

import threading

from wal2lake.changelog.places import child_log
from wal2lake.config import Config
from wal2lake.run.process import Child


class Verifier:
    """Starts it; ``stop`` at the end kills one that runs, which changes nothing."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._child = Child("verify", child_log(config.log.folder, "verify"))
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        return self._child.pid is not None

    @property
    def failure(self) -> str:
        """Why the last one that was started here ended without a result; empty where it did not."""
        with self._lock:
            self._collect()
            return self._child.reason if self._child.code else ""

    def start(self) -> None:
        """Start one, unless one runs."""
        with self._lock:
            if self.running:
                return
            self._collect()
            self._child.start(self._config)

    def stop(self) -> None:
        with self._lock:
            self._child.kill()

    def _collect(self) -> None:
        if self._child.process is not None and not self.running:
            self._child.wait(0)
