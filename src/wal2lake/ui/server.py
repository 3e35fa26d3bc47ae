"""The page's process side: where it listens, how it begins, and how it ends.

The rule: it runs in threads of whoever starts it, and takes no signal of theirs; what it is told to end ends at once,
for a browser that keeps a connection open is nobody to wait for.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import uvicorn

from wal2lake.config import Config
from wal2lake.errors import ConfigError
from wal2lake.monitor.places import Places
from wal2lake.monitor.watch import Watcher
from wal2lake.ui.app import build_app
from wal2lake.ui.connections import Connection
from wal2lake.ui.guard import Access, is_loopback
from wal2lake.ui.verifier import Verifier

TOKEN_VARIABLE = "WAL2LAKE_UI_TOKEN"  # noqa: S105 - a name
_END_S = 5.0


@dataclass(frozen=True)
class UiOptions:
    """``host``, ``port``: where it listens (0: a free port); ``names``: what else leads to it; ``actions``: it may
    act."""

    host: str = "127.0.0.1"
    port: int = 0
    names: Collection[str] = ()
    actions: bool = False


class Server:
    """A context manager: it listens before the block begins. ``pids``, ``read_places`` as for Watcher.

    Raises ConfigError where it cannot listen, or the token that it was given is no good.
    """

    def __init__(
        self,
        config: Config,
        options: UiOptions,
        pids: Callable[[], Mapping[str, int]] = dict,
        read_places: Callable[[], Places] | None = None,
    ) -> None:
        given = os.environ.get(TOKEN_VARIABLE, "")
        self.access = Access.of(options.host, options.names, given, actions=options.actions)
        self._shows_token = not given
        self._socket = _listen(options.host, options.port)
        self.port: int = self._socket.getsockname()[1]
        self._watcher = Watcher(config, pids, read_places)
        self._verifier = Verifier(config)
        app = build_app(config, self._watcher, self._verifier, self.access, f"wal2lake_ui_{self.port}")
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", ws="none", http=Connection, loop="asyncio",
                proxy_headers=False, server_header=False, timeout_graceful_shutdown=1,
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="ui", daemon=True)

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        host = self.access.host
        name = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - it is compared
        name = f"[{name}]" if ":" in name else name
        return f"http://{name}:{self.port}/"

    @property
    def url_with_token(self) -> str:
        """The same, to be opened the first time; without a token that the user has set and so knows."""
        return f"{self.url}?token={self.access.token}" if self.access.token and self._shows_token else self.url

    def __enter__(self) -> Self:
        self._watcher.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(_END_S)
        self._watcher.__exit__(kind, error, trace)
        self._verifier.stop()
        self._socket.close()


def needs_token(options: UiOptions) -> bool:
    """Whether who opens the page has to show a token that the user did not set."""
    return not os.environ.get(TOKEN_VARIABLE) and (options.actions or not is_loopback(options.host))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"The page cannot listen on {host}, port {port}: {error.strerror or error}.",
            hint="Another page may be there already: choose another port, or 0 for any that is free.",
        ) from None
