"""A password that a command prints is asked for when a connection is made, and forgotten soon.

Tokens last for minutes, and a command that makes one may take a second: so what it printed serves the connections of
the next KEPT_S seconds too, of this process alone, unless the server refuses it. One that was kept and is refused may
just have ended, so the command is run once more; one that is fresh and is refused is wrong.

Whatever the command prints may be the secret, on its stderr too (a shell's trace, say): so nothing of it is repeated
but to the server, by libpq. It has no terminal, no stdin and a group of its own, which is killed where it takes too
long, or whoever waits is stopped.

Source: libpq's documentation, "password" in "Database Connection Control Functions"; Amazon RDS User Guide, "IAM
database authentication" (tokens of 15 minutes).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import IO, NamedTuple

from psycopg.waiting import Wait

from wal2lake.errors import ConfigError, ConnectError, InterruptedByUser
from wal2lake.login import Login
from wal2lake.postgres.waiting import Exchange, Waiting, wait, wait_async
from wal2lake.signals import interruptible

KEPT_S = 30.0
TIMEOUT_S = 10.0
LONGEST = 65_535  # bytes of a password that a server reads, PG_MAX_AUTH_TOKEN_LENGTH
_END_TICK_S = 0.01
_BY_HAND = "Run it by hand, as the same user in the same environment: what it prints may be secret and is not repeated."
_kept: dict[Login, tuple[str, float]] = {}


class Password(NamedTuple):
    """``kept``: it served a connection before."""

    text: str
    kept: bool = False


def ask(login: Login) -> Password | None:
    """The password of the next connection; None where ``login`` has no command.

    Raises ConfigError for a command that cannot be started, ConnectError for one that fails, prints none or takes
    longer than TIMEOUT_S, InterruptedByUser where a signal's handler does not raise by itself.
    """
    if not login.password_command or (found := _look_up(login)) is not None:
        return found if login.password_command else None
    try:
        with interruptible(), _started(login.password_command) as (process, output):
            return _keep(login, wait(_first_line(process, output), output.fileno()))
    except KeyboardInterrupt:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise
        raise InterruptedByUser("Stopped while the password command ran.") from None


async def ask_async(login: Login) -> Password | None:
    """ask for an event loop."""
    if not login.password_command or (found := _look_up(login)) is not None:
        return found if login.password_command else None
    with _started(login.password_command) as (process, output):
        return _keep(login, await wait_async(_first_line(process, output), output.fileno()))


def refused(login: Login, password: Password | None) -> bool:
    """The server does not take ``password``, which is used no more; whether a fresh one is worth a try."""
    if password is not None and _kept.get(login, ("", 0.0))[0] == password.text:
        del _kept[login]
    return password is not None and password.kept


def _look_up(login: Login) -> Password | None:
    now = time.monotonic()
    for known, (_, until) in list(_kept.items()):
        if now >= until:
            _kept.pop(known, None)
    found = _kept.get(login)
    return None if found is None else Password(found[0], kept=True)


def _keep(login: Login, text: str) -> Password:
    _kept[login] = text, time.monotonic() + KEPT_S
    return Password(text)


@contextlib.contextmanager
def _started(command: tuple[str, ...]) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """The command as it runs; at the block's end it does not run any more."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no command"
        program = command[0].split()[0]  # what stands behind a blank may be more than a name
        raise ConfigError(
            f"The password command {program} cannot be started: {reason}.",
            hint="Name a program that is in the PATH of this process, or its whole path; a shell is not asked.",
        ) from None
    assert process.stdout is not None
    with process.stdout as output:
        try:
            yield process, output
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _first_line(process: subprocess.Popen[bytes], output: IO[bytes]) -> Exchange[str]:
    """What the command prints first, when it has ended well."""
    os.set_blocking(output.fileno(), False)
    until, said, open_ = time.monotonic() + TIMEOUT_S, b"", True
    while open_ or process.poll() is None:
        if time.monotonic() >= until:
            raise ConnectError(f"The password command did not end within {TIMEOUT_S:g} s.", hint=_BY_HAND)
        yield Waiting(Wait.R, until) if open_ else Waiting(0, min(until, time.monotonic() + _END_TICK_S))
        with contextlib.suppress(BlockingIOError):
            piece = os.read(output.fileno(), LONGEST) if open_ else b""
            open_, said = bool(piece), (said + piece)[: LONGEST + 1]
    if process.returncode:
        how = f"ended with exit code {process.returncode}"
        if process.returncode < 0:
            how = f"was ended by signal {-process.returncode}"
        raise ConnectError(f"The password command {how}.", hint=_BY_HAND)
    return _read_line(said)


def _read_line(said: bytes) -> str:
    line = said.partition(b"\n")[0].removesuffix(b"\r")
    if not line:
        raise ConnectError("The password command printed no password: its first line is empty.", hint=_BY_HAND)
    if len(line) > LONGEST or b"\0" in line:
        raise ConfigError(f"The password command printed what is no password: it has zero bytes or over {LONGEST}.")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise ConfigError("The password command printed what is no UTF-8.") from None
