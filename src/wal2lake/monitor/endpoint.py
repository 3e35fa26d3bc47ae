"""The endpoint: /metrics for Prometheus, /healthz and /readyz for whoever starts and stops processes.

The rule: a request never asks the server, the log or the lake; it is answered from the last look, so no number of
requests costs the source anything. What /healthz and /readyz mean stands in docs/monitoring.md.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socket import AF_INET6
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from wal2lake.errors import ConfigError
from wal2lake.monitor.metrics import Look, Metrics

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

HEALTHY_S: Final = 60.0  # within which a process at work is heard of
_READY: Final = "streaming"
_INDEX: Final = "wal2lake: /metrics, /healthz, /readyz\n"
_REQUEST_S: Final = 10.0  # for a client to say what it wants


class Endpoint:
    """A WSGI application. ``metrics.look`` is what it tells of; ``beat`` says that the process is at work."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.metrics = Metrics()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self.metrics)
        self._metrics_app = make_wsgi_app(registry)
        self._clock = clock
        self._beaten = clock()

    def beat(self) -> None:
        """The process is at work; whoever does not say so for HEALTHY_S is not healthy."""
        self._beaten = self._clock()

    def __call__(self, environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path, method = environment.get("PATH_INFO", ""), environment.get("REQUEST_METHOD", "")
        if method not in ("GET", "HEAD"):
            return _answer(start, "405 Method Not Allowed", "Only GET is answered.\n", method)
        match path:
            case "/metrics":
                return list(self._metrics_app(environment, start))
            case "/healthz":
                silent_s = self._clock() - self._beaten
                healthy = silent_s < HEALTHY_S
                text = "at work\n" if healthy else f"silent for {silent_s:.0f} s\n"
                return _answer(start, "200 OK" if healthy else "503 Service Unavailable", text, method)
            case "/readyz":
                ready, document = readiness(self.metrics.look)
                status = "200 OK" if ready else "503 Service Unavailable"
                return _answer(start, status, json.dumps(document) + "\n", method, "application/json")
            case "/":
                return _answer(start, "200 OK", _INDEX, method)
        return _answer(start, "404 Not Found", _INDEX, method)


def readiness(look: Look | None) -> tuple[bool, dict[str, Any]]:
    """Whether the lake is being kept up: capture streams and the pipeline does; and what stands against it."""
    if look is None:
        return False, {"ready": False, "capture": "not looked at yet", "pipeline": "not looked at yet", "problems": []}
    progress = look.status.progress
    ready = progress.capture_state == _READY and progress.pipeline_state == _READY
    states = {"capture": progress.capture_state, "pipeline": progress.pipeline_state}
    return ready, {"ready": ready, **states, "problems": list(map(str, look.status.problems))}


def _answer(start: StartResponse, status: str, text: str, method: str, kind: str = "text/plain") -> Iterable[bytes]:
    body = text.encode()
    start(status, [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body)))])
    return [] if method == "HEAD" else [body]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:
        """A request is no news."""


@contextmanager
def serving(endpoint: Endpoint, host: str, port: int) -> Iterator[int]:
    """Serve in threads of its own while the block lasts; gives the port, which ``port`` 0 leaves to the system.

    Raises ConfigError where the address cannot be had.
    """
    try:
        server = make_server(host, port, endpoint, _Server6 if ":" in host else _Server, _Handler)
    except OSError as error:
        raise ConfigError(
            f"Metrics cannot be served at {host}, port {port}: {error.strerror or error}.",
            hint="Choose another monitor.metrics_port or monitor.metrics_host.",
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
