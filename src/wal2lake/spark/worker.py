"""`wal2lake-worker`: this environment's Python as Spark is to start it, with pyspark from where it is installed.

Spark puts a zip of pyspark before everything else in its Python processes' path. It has no byte code in it, so each
process compiles what it imports anew: 1.4 s of CPU instead of 0.5, of the ten seconds that Spark gives it to start.

Source: org.apache.spark.api.python.PythonUtils (sparkPythonPath).
"""

from __future__ import annotations

import os
import sys

_ZIPS = ("pyspark.zip", "-src.zip")  # the latter is py4j's


def main() -> None:
    """Become the interpreter, with the same arguments."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in path if not entry.endswith(_ZIPS))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - ourselves
