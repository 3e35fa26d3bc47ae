"""The command `wal2lake`, and `python -m wal2lake`: signals are heard from the first moment on.

Importing what hears them takes a moment, in which Ctrl-C just ends the process: nothing has begun. Importing what the
command line is made of takes a good part of a second, and fails where there is no libpq.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # typing's own costs an import

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from wal2lake.errors import Wal2LakeError

_NO_LIBPQ = "pq wrapper"  # psycopg is pure Python as it comes, and looks for a libpq when it is imported


def main() -> None:
    """Run the command line and exit with the documented code (docs/errors.md)."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_what_is_closed()
    from wal2lake.cli.interrupts import answering_signals  # noqa: PLC0415
    from wal2lake.errors import InterruptedByUser  # noqa: PLC0415
    from wal2lake.signals import interrupt, on_signals  # noqa: PLC0415

    try:
        with on_signals(interrupt), answering_signals():
            try:
                _command_line()()
            except KeyboardInterrupt:
                _exit(InterruptedByUser("Interrupted."))
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the interpreter is ending, and would answer by a traceback


def _open_what_is_closed() -> None:
    """A daemon may have closed the standard streams: they lead nowhere then, and no file opened later is one."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
            stream = open(number, mode, closefd=False)  # noqa: SIM115 - as long as the process lives
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _command_line() -> Callable[[], None]:
    try:
        from wal2lake.cli.main import main as run  # noqa: PLC0415
    except ImportError as error:
        if _NO_LIBPQ not in str(error):
            raise
        from wal2lake.errors import ConfigError  # noqa: PLC0415

        hint = "Install one: pip install 'wal2lake[libpq]', or the system's (Debian and Ubuntu: libpq5)."
        _exit(ConfigError("There is no libpq, by which PostgreSQL is reached.", hint=hint))
    return run


def _exit(error: Wal2LakeError) -> NoReturn:
    print(f"wal2lake: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
