"""An S3 server of this process (moto), which may refuse, or answer what it does not say: as a network does."""

from __future__ import annotations

import gc
import io
import logging
import os
import re
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "changes"
SECRET = os.environ["WAL2LAKE_TEST_SECRET"]
Fault = Literal["503", "lost", "denied", "unknown_key", "unconditional"]  # lost: it is done, and answered otherwise
_CODES = {"denied": "AccessDenied", "unknown_key": "InvalidAccessKeyId"}


class S3Server:
    """``requests``: (method, object or query) of each so far. ``fault`` is asked what is wrong with the next one."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._putting = threading.Lock()
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], Fault | None] = lambda method, path: None
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")).close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def url(self, prefix: str, bucket: str = BUCKET) -> str:
        """With all that it takes to go there."""
        options = "access_key_id=test&region=us-east-1&secret_access_key=$WAL2LAKE_TEST_SECRET"
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&{options}"

    @contextmanager
    def failing(self, *faults: Fault, method: str = "PUT", name: str = "") -> Iterator[None]:
        """The next requests of ``method`` for an object with ``name`` in it fail, one in each way."""
        left = list(faults)

        def fault(asked: str, path: str) -> Fault | None:
            return left.pop(0) if left and asked == method and name in path else None

        before, self.fault = self.fault, fault
        try:
            yield
        finally:
            self.fault = before
        assert not left, f"nobody met {left}"

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix(f"/{BUCKET}/")
        self.requests.append((method, path if path != f"/{BUCKET}" else f"?{environ['QUERY_STRING']}"))
        fault = self.fault(method, path)
        if fault == "lost":
            list(self._done(environ, lambda *_: lambda _: None))
        if fault == "unconditional":
            environ.pop("HTTP_IF_NONE_MATCH", None), environ.pop("HTTP_IF_MATCH", None)
            fault = None
        if fault in ("lost", "503"):
            start("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        if fault is not None:
            key = re.sub("[<>&]", "", str(environ.get("HTTP_AUTHORIZATION")))
            text = f"<Error><Code>{_CODES[fault]}</Code><AWSAccessKeyId>{key}</AWSAccessKeyId></Error>".encode()
            start("403 Forbidden", [("Content-Length", str(len(text)))])
            return [text]
        return self._done(environ, start)

    def _done(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """It may be answered without having been read, and a client whose connection is closed on what it sends never
        sees the answer: so it is read first."""
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        with self._one_put() if environ["REQUEST_METHOD"] == "PUT" else nullcontext():
            answer: Iterable[bytes] = self._app(environ, start)
            return answer

    @contextmanager
    def _one_put(self) -> Iterator[None]:
        """One after another, for moto looks at a condition first, and puts then. What the tests left behind is not
        collected by this thread meanwhile: it may put something as it ends."""
        with self._putting:
            gc.disable()
            try:
                yield
            finally:
                gc.enable()
