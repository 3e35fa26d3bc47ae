"""A thread that looks as `wal2lake status` does, now and then: for the endpoint, and for whoever is told of findings.

The rule: whatever befalls it, what it watches goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from wal2lake.changelog.events import Events
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.status import CaptureStatus, PipelineStatus
from wal2lake.config import Config
from wal2lake.errors import Wal2LakeError
from wal2lake.monitor.alerts import Alerts
from wal2lake.monitor.problem import Problem

if TYPE_CHECKING:
    from wal2lake.monitor.endpoint import Endpoint
    from wal2lake.monitor.places import Places, PlacesReader
    from wal2lake.run.supervisor import Supervisor

LOOK_S: Final = 5.0
_FRESH_S: Final = 4.0  # what another thread has seen since is a look
_PART: Final = 9.0  # the pause after a look is that many times as long as it took: the lake may have hundreds of tables
_END_S: Final = 5.0  # for a look or a telling under way, when all ends
_logger = logging.getLogger("wal2lake.monitor")


def shared_places(config: Config) -> Callable[[], Places]:
    """How server, log and lake are looked at, by one look for all threads that watch: the endpoint's and the page's."""

    one_at_a_time = threading.Lock()
    made: list[PlacesReader] = []

    def read() -> Places:
        from wal2lake.monitor.places import PlacesReader  # noqa: PLC0415 - the core installs without Arrow
        from wal2lake.monitor.watch import LAKE_SHARE  # noqa: PLC0415

        with one_at_a_time:
            if not made:
                made.append(PlacesReader(config, LAKE_SHARE))
        return made[0].read(_FRESH_S)

    return read


@contextmanager
def monitoring(
    config: Config, supervisor: Supervisor | None = None, read_places: Callable[[], Places] | None = None
) -> Iterator[Callable[[], None]]:
    """Watch while the block lasts, as far as the settings want it. What it gives is to be called often by whoever is at
    work, who is not healthy otherwise. An error that ends the block is told at once. ``read_places``: of
    ``shared_places``, where somebody else looks as well.

    Raises ConfigError where the endpoint's address cannot be had.
    """
    settings = config.monitor
    if not settings.metrics_port and not settings.alerts:
        yield lambda: None
        return
    import wal2lake.monitor.status  # noqa: F401, PLC0415 - an extra: it is missing now, not when the thread looks

    with ExitStack() as stack:
        endpoint = None
        if settings.metrics_port:
            from wal2lake.monitor.endpoint import Endpoint, serving  # noqa: PLC0415 - an extra

            endpoint = Endpoint()
            stack.enter_context(serving(endpoint, settings.metrics_host, settings.metrics_port))
        watch = _Watch(config, supervisor, endpoint, read_places or shared_places(config))
        stack.enter_context(watch.running())
        try:
            yield endpoint.beat if endpoint else lambda: None
        except Wal2LakeError as error:
            watch.tell_of_end(error)
            raise


class _Watch:
    def __init__(
        self,
        config: Config,
        supervisor: Supervisor | None,
        endpoint: Endpoint | None,
        read_places: Callable[[], Places],
    ) -> None:
        self._config, self._supervisor, self._endpoint = config, supervisor, endpoint
        self._read_places = read_places
        self._alerts = Alerts(config)
        self._events = Events(config.log.path, "run")
        self._ended = threading.Event()
        self._telling = threading.Lock()
        self._failing = self._unheard = False

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="monitoring", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(_END_S)

    def tell_of_end(self, error: Wal2LakeError) -> None:
        """All ends for ``error``, and nobody will look again."""
        kind = getattr(error, "role", "capture")
        if self._config.monitor.alerts:
            with self._telling:
                self._alerts.see([Problem(kind, f"`wal2lake run` ended: {error}")], at_once=True)

    def _run(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                self._look()
                self._failing = False
            except Exception as error:  # noqa: BLE001 - what is watched goes on
                if not self._failing:
                    _logger.warning("Metrics and findings cannot be brought up to date: %s", error)
                self._failing = True
            self._ended.wait(max(LOOK_S, _PART * (time.monotonic() - began)))

    def _look(self) -> None:
        from wal2lake.monitor.status import status_of  # noqa: PLC0415 - the core installs without Arrow

        places = self._read_places()
        status = status_of(self._config, places)
        if self._endpoint is not None:
            from wal2lake.monitor.metrics import Look  # noqa: PLC0415 - an extra

            storage = storage_at(self._config.log.path)
            capture = CaptureStatus.read(storage) or CaptureStatus()
            pipeline = PipelineStatus.read(storage) or PipelineStatus()
            children = self._supervisor.children.values() if self._supervisor else ()
            starts = {child.role: child.starts for child in children}
            self._endpoint.metrics.look = Look(status, capture, pipeline, places.ts, starts)
        if self._config.monitor.alerts:
            with self._telling:
                if not self._ended.is_set():
                    self._alerts.see(status.problems)
            self._tell_of_silence()

    def _tell_of_silence(self) -> None:
        """That nobody takes what is told is an event."""
        failure = self._alerts.failure
        if failure and not self._unheard:
            self._events.record("failed", f"Findings reach nobody: {failure}", level="warning", role="alerts")
        self._unheard = failure is not None
