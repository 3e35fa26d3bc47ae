"""Starting the JVM, so that its command line tells nothing: every user of the machine can read it.

PySpark hands all settings over as ``--conf`` arguments, and [spark] may have the secrets of an object store. Here they
go by a file that its owner alone can read, which is gone when the JVM has read it. What the JVM itself is started with
(``spark.driver.extraJavaOptions`` above all) still ends up among its arguments, so no secret belongs there.

Source: Spark documentation, "Submitting Applications", "Loading Configuration from a File"; java.util.Properties.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway

from wal2lake.errors import InterruptedByUser
from wal2lake.signals import interruptible
from wal2lake.tables.failures import SparkLostError

# Spark itself asks for the module, and the JVM warns of it at each start; nobody can act on it.
_INCUBATOR = b"WARNING: Using incubator modules: jdk.incubator.vector"
_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
_PREFIX, _SUFFIX = "wal2lake-spark-", ".conf"
_READ_S = 3600.0  # a JVM has read its file long before
_ESCAPED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM with ``settings``, unless this process has one.

    Raises PySparkException when it does not start, SparkLostError when somebody killed it by then (a system that runs
    out of memory, say), InterruptedByUser at a signal meanwhile.
    """
    if SparkContext._gateway is not None:  # noqa: SLF001 - as PySpark asks; there is no public name for it
        return
    remove_stale(Path(tempfile.gettempdir()))
    reading, writing = os.pipe()
    forwarder = threading.Thread(
        target=_forward_stderr, args=(os.fdopen(reading, "rb"),), name="wal2lake jvm", daemon=True
    )
    forwarder.start()
    with os.fdopen(writing, "wb") as stderr:
        try:
            with _submit_arguments(settings), interruptible():
                gateway = launch_gateway(popen_kwargs={"stderr": stderr})  # type: ignore[no-untyped-call]
        except KeyboardInterrupt as error:
            if (process := _process_of(error)) is not None:
                process.kill()
                process.wait()
            raise InterruptedByUser("Stopped while Java was being started.") from None
        except BaseException as error:
            stderr.close()
            forwarder.join(2.0)  # why Java did not start is said before anybody says that it did not
            process = _process_of(error)
            if process is not None and process.poll() in (-signal.SIGKILL, 128 + signal.SIGKILL):
                raise SparkLostError("Java was killed while it started for Spark.") from error
            raise
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - as PySpark's own start does


def remove_stale(folder: Path) -> None:
    """Remove the files of settings in ``folder`` that nobody reads any more: who wrote one was killed meanwhile."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # another user's, or removed by another process
            if time.time() - path.stat().st_mtime > _READ_S:
                path.unlink()


def _process_of(error: BaseException) -> subprocess.Popen[bytes] | None:
    """Java, or the shell that starts it. PySpark has it to itself, in the frame through which ``error`` came."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        process = frame.f_locals.get("proc")
        if isinstance(process, subprocess.Popen):
            return process
    return None


@contextlib.contextmanager
def _submit_arguments(settings: Mapping[str, str]) -> Iterator[None]:
    """Have spark-submit read ``settings`` from a file, besides all that it reads anyway."""
    before = os.environ.get(_SUBMIT_ARGS)
    with tempfile.NamedTemporaryFile("w", prefix=_PREFIX, suffix=_SUFFIX, encoding="utf-8") as file:
        file.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
        file.flush()  # mode 0600, as every temporary file
        os.environ[_SUBMIT_ARGS] = f"--properties-file {file.name} --load-spark-defaults {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            os.environ.pop(_SUBMIT_ARGS)
            if before is not None:
                os.environ[_SUBMIT_ARGS] = before


def _escaped(text: str) -> str:
    """As java.util.Properties reads it: no character of a name or value parts them, continues or comments the line."""
    return re.sub(r"[\\:=#!\s]", lambda found: _ESCAPED.get(found[0], "\\" + found[0]), text)


def _forward_stderr(stderr: IO[bytes]) -> None:
    """Pass on what the JVM says, line by line, to where standard error goes at the time."""
    with stderr:
        for line in stderr:
            if line.strip() != _INCUBATOR:
                with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                    print(line.decode(errors="replace"), end="", file=sys.stderr, flush=True)
