"""An HTTP server that takes OpenTelemetry's traces."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Taken = list[ExportTraceServiceRequest]


@contextmanager
def collecting() -> Iterator[tuple[str, Taken]]:
    """Its URL, and what it was sent."""
    taken: Taken = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            taken.append(ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not here."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", taken
    server.shutdown()
    server.server_close()
    thread.join()


def names(taken: Taken) -> set[str]:
    """Of all spans."""
    scopes = [scope for request in taken for resource in request.resource_spans for scope in resource.scope_spans]
    return {span.name for scope in scopes for span in scope.spans}
