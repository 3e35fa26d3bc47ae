"""Progress as lines of a log, for whoever collects those: one now and then, with its figures."""

from __future__ import annotations

import logging
import time
from types import TracebackType

from wal2lake.monitor.progress import Progress
from wal2lake.monitor.view import line

_EVERY_S = 60.0
_logger = logging.getLogger("wal2lake.progress")


class LogView:
    """In the place of a View."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __enter__(self) -> LogView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """There is nothing to take down."""

    def show(self, progress: Progress, note: str = "") -> None:
        """Log ``progress`` when the last line is a minute old."""
        if time.monotonic() - self._last >= _EVERY_S:
            self._last = time.monotonic()
            figures = {
                "event": "progress",
                "capture": progress.capture_state,
                "pipeline": progress.pipeline_state,
                "changes": progress.changes,
                "lag_bytes": progress.lag_bytes,
                "lag_s": progress.lag_s,
            }
            _logger.info("%s", line(progress, note), extra={"wal2lake": figures})
