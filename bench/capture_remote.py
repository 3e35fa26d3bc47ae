"""capture-remote: the same changes by the ways that users' servers are reached, against pg_recvlogical on that way.

TLS with verify-full over loopback; a pair of virtual devices between two network namespaces, without TLS and with it.
Making namespaces takes root, and TLS a server and a pg_recvlogical that have it (Debian's do, the wheel's do not): what
cannot be measured here is named, and counts as missed. The last ratio is the least of all.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import common
from bench.capture import Backlog
from wal2lake.testing.binaries import unprivileged_user
from wal2lake.testing.embedded import EmbeddedPostgres

BAR = 1.3
CHANGES = 900_000
NEAR, FAR = "10.213.77.1", "10.213.77.2"
_HOST = "bench.test"
_NEWNET = 0x40000000


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench capture-remote", description=__doc__)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    logging.getLogger("wal2lake.capture").setLevel(logging.ERROR)
    logging.getLogger("wal2lake.connection").setLevel(logging.ERROR)
    install = _debian_install()
    if install is None or shutil.which("openssl") is None:
        print("not measured: no PostgreSQL under /usr/lib/postgresql with pg_recvlogical, or no openssl")
        return 1
    with tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as name, namespace() as space:
        folder = Path(name)
        folder.chmod(0o755)
        with _secured(install, folder) as postgres:
            backlog = Backlog(postgres, folder, given.changes)
            return _verdict({way: _ratio(backlog, way, space, given.rounds) for way in WAYS})


WAYS = ("TLS over loopback", "between namespaces", "between namespaces, TLS")


def _ratio(backlog: Backlog, way: str, space: str | None, rounds: int) -> float:
    """Ours to the baseline's; 0 where that cannot be measured."""
    print(f"-- {way}")
    if "namespaces" in way and space is None:
        print("not measured: no right to make network namespaces")
        return 0.0
    dsn = _dsn(backlog.postgres, NEAR if "namespaces" in way else "127.0.0.1", backlog.folder if "TLS" in way else None)
    program, entering = [str(backlog.postgres.client_dir / "pg_recvlogical")], _stay
    if "namespaces" in way and space is not None:
        program, entering = ["ip", "netns", "exec", space, *program], partial(_enter, space)
    medians = backlog.alternate(dsn, rounds, program=program, entering=entering)
    ours, baseline = medians.values()
    print(f"{way}: {ours / baseline:.2f}", flush=True)
    return ours / baseline


def _verdict(ratios: dict[str, float]) -> int:
    for way, ratio in ratios.items():
        print(f"{way}: {ratio:.2f} (bar {BAR})" if ratio else f"{way}: not measured")
    least = min(ratios.values())
    print(f"ratio: {least:.2f} (bar {BAR})")
    return 0 if least >= BAR else 1


def _stay() -> None:
    """Where we are."""


def _enter(space: str) -> None:
    """Have this thread, and those that it starts, be in the namespace; the rest of the process stays where it is."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(f"/run/netns/{space}", os.O_RDONLY)
    try:
        if libc.setns(handle, _NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(handle)


@contextmanager
def namespace() -> Iterator[str | None]:
    """A network namespace that reaches this one by a pair of devices, from FAR to NEAR; None without the rights."""
    space, device = f"bench-{os.getpid()}", f"vb{os.getpid()}"
    within = ["ip", "netns", "exec", space, "ip"]
    steps: Sequence[Sequence[str]] = [
        ["ip", "netns", "add", space],
        ["ip", "link", "add", device, "type", "veth", "peer", "name", "far", "netns", space],
        ["ip", "addr", "add", f"{NEAR}/30", "dev", device],
        ["ip", "link", "set", device, "up"],
        [*within, "addr", "add", f"{FAR}/30", "dev", "far"],
        [*within, "link", "set", "far", "up"],
        [*within, "link", "set", "lo", "up"],
    ]
    made = shutil.which("ip") is not None and all(not _run(step).returncode for step in steps)
    try:
        yield space if made else None
    finally:
        if shutil.which("ip") is not None:
            _run(["ip", "link", "del", device])
            _run(["ip", "netns", "del", space])


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, check=False, capture_output=True)


def _debian_install() -> Path | None:
    """The newest of the distribution's PostgreSQLs that has its programs."""
    found = Path("/usr/lib/postgresql").glob("*/bin/pg_recvlogical")
    return max((path.parent.parent for path in found), key=lambda path: int(path.name), default=None)


@contextmanager
def _secured(install: Path, folder: Path) -> Iterator[EmbeddedPostgres]:
    """A server with a certificate, which whoever has the password reaches from both sides."""
    key, certificate = folder / "server.key", folder / "server.crt"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key)]
    subject = ["-out", str(certificate), "-subj", f"/CN={_HOST}", "-addext", f"subjectAltName=DNS:{_HOST}"]
    subprocess.run([*command, *subject], check=True, capture_output=True)
    if (user := unprivileged_user()) is not None:
        os.chown(key, user.pw_uid, user.pw_gid)
    settings = {
        **common.SERVER, "listen_addresses": "*",
        "ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key),
    }  # fmt: skip
    with EmbeddedPostgres(settings=settings, install=install) as postgres:
        with (postgres.data_dir / "pg_hba.conf").open("a") as hba:
            hba.write(f"host all postgres {FAR}/32 scram-sha-256\nhost replication postgres {FAR}/32 scram-sha-256\n")
        postgres.psql("SELECT pg_reload_conf()")
        yield postgres


def _dsn(postgres: EmbeddedPostgres, address: str, certificates: Path | None) -> str:
    rest = postgres.tcp_dsn.removeprefix("host=127.0.0.1 ")
    tls = "sslmode=disable" if certificates is None else f"sslmode=verify-full sslrootcert={certificates}/server.crt"
    return f"host={_HOST} hostaddr={address} {rest} {tls} gssencmode=disable"
