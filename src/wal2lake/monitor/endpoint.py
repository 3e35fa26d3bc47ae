"""The endpoint: /metrics for Prometheus, /healthz and /readyz for whoever starts and stops processes.

The rule: a request never asks the server, the log or the lake; it is answered from the last look, so no number of
requests costs the source anything. Nor does a number of connections: each has HELD_S in all, however slowly it says or
takes what it wants, and where MOST are open the one that came first makes room for the next, so there are never many
threads. What /healthz and /readyz mean stands in docs/monitoring.md.
"""

from __future__ import annotations

import io
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from wal2lake.errors import ConfigError
from wal2lake.monitor.metrics import Look, Metrics

if TYPE_CHECKING:
    from wsgiref.types import ErrorStream, StartResponse, WSGIEnvironment

HEALTHY_S: Final = 60.0  # within which a process at work is heard of
_INDEX: Final = "wal2lake: /metrics, /healthz, /readyz\n"
HELD_S: Final = 10.0  # for a client to say what it wants and to take it: Prometheus gives itself no longer either
MOST: Final = 64  # connections at a time, each with a thread; an honest one lasts milliseconds
_ALLOW: Final = ("Allow", "GET, HEAD, OPTIONS")
_logger = logging.getLogger("wal2lake.monitor")
_Answer = tuple[str, list[tuple[str, str]], bytes]  # status, headers, body


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
        method = environment.get("REQUEST_METHOD", "")
        try:
            status, headers, body = self._answer(method, environment)
        except Exception:
            _logger.exception("A request at the metrics' port could not be answered.")
            status, headers, body = _text("500 Internal Server Error", "Standard error has the reason.\n")
        start(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if method == "HEAD" else [body]

    def _answer(self, method: str, environment: WSGIEnvironment) -> _Answer:
        """HEAD is answered as GET would be (RFC 9110, 9.3.2)."""
        if method == "OPTIONS":
            return "200 OK", [_ALLOW], b""
        if method not in ("GET", "HEAD"):
            status, headers, body = _text("405 Method Not Allowed", "Only GET, HEAD and OPTIONS are answered.\n")
            return status, [*headers, _ALLOW], body
        match environment.get("PATH_INFO", ""):
            case "/metrics":
                return self.exposition(environment)
            case "/healthz":
                silent_s = self._clock() - self._beaten
                if silent_s < HEALTHY_S:
                    return _text("200 OK", "at work\n")
                return _text("503 Service Unavailable", f"silent for {silent_s:.0f} s\n")
            case "/readyz":
                ready, document = readiness(self.metrics.look)
                status = "200 OK" if ready else "503 Service Unavailable"
                return _text(status, json.dumps(document) + "\n", "application/json")
            case "/":
                return _text("200 OK", _INDEX)
        return _text("404 Not Found", _INDEX)

    def exposition(self, environment: WSGIEnvironment) -> _Answer:
        """The metrics, in the format that the request accepts."""
        said: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]]) -> None:
            said.append((status, headers))

        body = b"".join(self._metrics_app({**environment, "REQUEST_METHOD": "GET"}, start))
        return *said[0], body


def readiness(look: Look | None) -> tuple[bool, dict[str, Any]]:
    """Whether the lake is being kept up: capture streams and the pipeline does; and what stands against it."""
    if look is None:
        return False, {"ready": False, "capture": "not looked at yet", "pipeline": "not looked at yet", "problems": []}
    progress = look.status.progress
    states = {"capture": progress.capture_state, "pipeline": progress.pipeline_state}
    return progress.ready, {"ready": progress.ready, **states, "problems": list(map(str, look.status.problems))}


def _text(status: str, text: str, kind: str = "text/plain") -> _Answer:
    return status, [("Content-Type", f"{kind}; charset=utf-8")], text.encode()


class _Server(ThreadingMixIn, WSGIServer):
    """``_held``: the open connections with when they came, the oldest first."""

    daemon_threads = True
    request_queue_size = 128  # who comes while a burst of others is taken in

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._held: dict[socket.socket, float] = {}
        self._changing = threading.Lock()
        super().__init__(*arguments, **named)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            for oldest in list(self._held)[: max(0, len(self._held) - MOST + 1)]:
                self._give_up(oldest)
            self._held[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changing:
            self._held.pop(request, None)
            super().shutdown_request(request)

    def service_actions(self) -> None:
        """Twice a second, and after each connection that comes."""
        late = time.monotonic() - HELD_S
        with self._changing:
            for request in [request for request, came in self._held.items() if came < late]:
                self._give_up(request)

    def _give_up(self, request: socket.socket) -> None:
        """Its thread finds that there is nobody any more, and ends."""
        del self._held[request]
        with suppress(OSError):  # it has gone by itself
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was reset, or said nothing in time, is no news, whoever is behind it."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            _logger.debug("A connection to the metrics' port was given up: %s", error)
        else:
            _logger.error("A connection to the metrics' port failed.", exc_info=error)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """wsgiref writes to standard error what befalls a connection while it is answered: that is no news either. The
    application's own errors never get here."""

    timeout = HELD_S

    def handle(self) -> None:
        self._said = io.StringIO()
        super().handle()
        if said := self._said.getvalue().strip():
            _logger.debug("A connection to the metrics' port was given up: %s", said.rpartition("\n")[2])

    def get_stderr(self) -> ErrorStream:
        return self._said

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
