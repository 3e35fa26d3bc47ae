"""A PostgreSQL server of one's own: made in a fresh folder, reached by its owner alone, gone at the end.

Its superuser could run programs as whoever owns the server, so no other user of the machine may be that superuser: it
is trusted over a Unix socket in a folder of the owner's, and over loopback asked for a password that chance has made.
It runs as an unprivileged user also when this process is root. What it prints goes to ``server.log`` in its data
folder, which is shown when it does not start.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wal2lake.errors import ServerConfigError
from wal2lake.testing.binaries import unprivileged_user, wheel_install

_START_SECONDS = 60
_LAST_LINES = 5
_DEFAULTS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "fsync": "off",
    "synchronous_commit": "off",
    "max_wal_size": "8GB",
}


class EmbeddedPostgres:
    """A context manager around one server.

    ``settings`` go to postgresql.conf over the defaults (logical WAL, loopback only, no fsync: a server for trying
    things out). ``install`` names another installation folder; else the wheel's ``major`` is used. ``data_dir``
    keeps an existing or named folder; else a temporary one is made and removed at the end. Where an installation has no
    client programs, ``client_dir`` is the wheel's.
    """

    def __init__(
        self,
        major: int = 18,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: Path | None = None,
        install: Path | None = None,
    ) -> None:
        self.install = install or wheel_install(major)
        self.bin_dir = self.install / "bin"
        has_clients = (self.bin_dir / "psql").exists()
        self.client_dir = self.bin_dir if has_clients else wheel_install() / "bin"
        self.settings = {**_DEFAULTS, **(settings or {})}
        self._user = unprivileged_user()
        self._keep = data_dir is not None
        self._root = data_dir or Path(tempfile.mkdtemp(prefix="wal2lake-pg-"))
        self.data_dir = self._root / "data"
        self.port = 0
        self._sockets = Path(tempfile.mkdtemp(prefix="wal2lake-pg-"))  # short: a socket's path has 107 bytes at most
        self._password: str | None = None
        self._password_lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """libpq's keywords for the superuser over the Unix socket, which needs no secret."""
        return f"host={self._sockets} port={self.port} user=postgres dbname=postgres"

    @property
    def tcp_dsn(self) -> str:
        """The same over loopback, with a password, which is set anew where the data folder was there before."""
        with self._password_lock:
            if self._password is None:
                password = secrets.token_hex(16)
                self.psql(f"SET synchronous_commit = on; ALTER ROLE postgres PASSWORD '{password}'")
                self._password = password
        return f"host=127.0.0.1 port={self.port} user=postgres password={self._password} dbname=postgres"

    def __enter__(self) -> Self:
        try:
            self._give_to_server(self._root)
            self._give_to_server(self._sockets)
            if not (self.data_dir / "PG_VERSION").exists():
                self._initialize()
            self.start()
        except BaseException:
            self.stop()
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._remove()

    def _initialize(self) -> None:
        self._password = secrets.token_hex(16)
        file = self._root / "password"
        file.touch(mode=0o600)
        if self._user is not None:
            os.chown(file, self._user.pw_uid, self._user.pw_gid)
        file.write_text(self._password)
        self.run_program(
            "initdb", "-D", str(self.data_dir), "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync",
            "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={file}",
        )  # fmt: skip
        file.unlink()

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start on the same port as before (a free one the first time) and wait until it answers."""
        self.settings.update(settings or {})
        self.port = self.port or _free_port()
        options = {**self.settings, "port": str(self.port), "unix_socket_directories": str(self._sockets)}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self._root / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.bin_dir / "postgres"), "-D", str(self.data_dir), *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._as_user(),
            )  # fmt: skip
        self._await_ready(self._process)

    def stop(self, mode: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(mode)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait(30)

    def restart(self, settings: Mapping[str, str] | None = None) -> None:
        """Stop fast and start again, with changed settings."""
        self.stop()
        self.start(settings)

    def kill(self) -> None:
        """Crash it: every process of the server ends at once, without a checkpoint."""
        self.stop(signal.SIGQUIT)

    def psql(self, sql: str, *arguments: str, database: str = "postgres") -> str:
        """Run ``sql`` through psql (unaligned, tuples only) and return what it prints."""
        command = [
            str(self.client_dir / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
            "-h", str(self._sockets), "-p", str(self.port), "-U", "postgres", "-d", database, *arguments,
        ]  # fmt: skip
        done = subprocess.run(command, input=sql, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerConfigError(f"psql failed: {done.stderr.strip()}")
        return done.stdout.strip()

    def run_program(self, name: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run one of PostgreSQL's programs as the server's user; raises ServerConfigError with how its stderr ends."""
        command: Sequence[str] = [str(self.bin_dir / name), *arguments]
        done = subprocess.run(command, capture_output=True, check=False, **self._as_user())
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
            raise ServerConfigError(f"{name} ended with code {done.returncode}. It said last:\n" + "\n".join(said))
        return done

    def _as_user(self) -> dict[str, Any]:
        # the caller's libpq variables must not reach the server's own programs
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")} | {"LC_ALL": "C"}
        base: dict[str, Any] = {"cwd": str(self._root), "env": environment}
        if self._user is None:
            return base
        return {**base, "user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _give_to_server(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)
        path.chmod(0o700)

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        command = [str(self.client_dir / "pg_isready"), "-q", "-h", str(self._sockets), "-p", str(self.port)]
        while time.monotonic() < deadline and process.poll() is None:
            if subprocess.run(command, check=False).returncode == 0:
                return
            time.sleep(0.05)
        self.stop()
        tail = (self._root / "server.log").read_text(errors="replace")[-2000:]
        raise ServerConfigError(f"The embedded PostgreSQL did not start. Its log ends:\n{tail}")

    def _remove(self) -> None:
        shutil.rmtree(self._sockets, ignore_errors=True)
        if not self._keep:
            shutil.rmtree(self._root, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
