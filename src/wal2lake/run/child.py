"""A child of `wal2lake run`: one role, its configuration on the first line of standard input, its end by signal.

Standard input stays open as long as the parent lives. When it ends, the parent is gone, and the child stops as cleanly
as on SIGTERM, so nothing goes on unseen. Credentials come by this pipe and are in no argument list or environment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable

from rich.console import Console

from wal2lake.config import Config
from wal2lake.errors import Wal2LakeError
from wal2lake.extras import missing_extra
from wal2lake.run.logs import configure_logging
from wal2lake.signals import stop_on_signals

ERROR_PREFIX = "wal2lake-error: "
EXIT_TRANSIENT = 75  # EX_TEMPFAIL of sysexits.h: the parent may start this child again


Work = Callable[[Config, threading.Event], None]


def _capture() -> Work:
    from wal2lake.capture import run_capture  # noqa: PLC0415 - each role loads only what it needs

    return run_capture


def _pipeline() -> Work:
    from wal2lake.pipeline.tracing import tracing  # noqa: PLC0415
    from wal2lake.spark.pipeline import run_pipeline  # noqa: PLC0415

    def run_traced(config: Config, stop: threading.Event) -> None:
        with tracing():
            run_pipeline(config, stop)

    return run_traced


def _verify() -> Work:
    """It changes nothing, so whoever wants it to stop needs not wait for it; its Java is of its process group."""
    from wal2lake.run.verifying import verify_lake  # noqa: PLC0415

    def verify(config: Config, stop: threading.Event) -> None:
        def end_when_told() -> None:
            stop.wait()
            os.killpg(os.getpgrp(), signal.SIGKILL)

        threading.Thread(target=end_when_told, name="stop", daemon=True).start()
        verify_lake(config, Console(stderr=True))

    return verify


# Each loads what it needs, and raises ModuleNotFoundError where that is not installed, before anything begins.
ROLES: dict[str, Callable[[], Work]] = {
    "capture": _capture,
    "pipeline": _pipeline,
    "verify": _verify,
}


def run_role(role: str, config: Config, stop: threading.Event) -> int:
    """Run ``role`` until ``stop``; return the exit code, with the error's one line on standard error."""
    try:
        ROLES[role]()(config, stop)
    except Wal2LakeError as error:
        return _tell(error)
    except ModuleNotFoundError as error:
        missing = missing_extra(error, "run")
        if missing is None:
            raise
        return _tell(missing)
    return 0


def _tell(error: Wal2LakeError) -> int:
    print(ERROR_PREFIX + json.dumps({"error": str(error), "exit_code": error.exit_code}), file=sys.stderr, flush=True)
    return EXIT_TRANSIENT if error.transient else error.exit_code


def _stop_with_parent(stop: threading.Event) -> None:
    """Block on the pipe until the parent closes it, by will or by death."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    stop.set()


def main() -> int:
    """Entry of ``python -m wal2lake.run.child ROLE``."""
    line = bytearray()
    while not line.endswith(b"\n"):  # unbuffered, so that the rest of the pipe is left to the watcher
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            return EXIT_TRANSIENT
        line += byte
    role, config = sys.argv[1], Config.from_dict(json.loads(line))
    configure_logging(config.monitor, role)
    with stop_on_signals() as stop:
        threading.Thread(target=_stop_with_parent, args=(stop,), name="parent-watch", daemon=True).start()
        return run_role(role, config, stop)


if __name__ == "__main__":
    sys.exit(main())
