from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.changelog.conftest import IDENTITY
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config
from wal2lake.spark.session import session_settings, workers_python

SPARK, WORKER = Path(pyspark.__file__).parent, Path(sys.executable).with_name("wal2lake-worker")


def test_the_users_settings_win() -> None:
    settings = session_settings(Config(spark={"spark.ui.enabled": "true", "spark.x": "y"}))
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.x"] == "y"
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.master"] == "local[*,4]"


def test_a_cluster_keeps_its_own_addresses_and_checkpoints() -> None:
    settings = session_settings(Config(spark={"spark.master": "spark://host:7077"}))
    assert not any(name.startswith(("spark.driver.", "spark.sql.streaming.")) for name in settings)


SCRIPT = r"""
import os, signal, sys
from wal2lake.config import Config
from wal2lake.spark.session import build_session
signal.signal(signal.SIGINT, lambda *_: print("ours"))
awkward = {"spark.a": " x = : # ! y\\n", "spark.b": "ä\n\t é", "spark.c": "C:\\dir\\", "spark.d": ""}
spark = build_session(Config(spark={"spark.master": "local[1]", "spark.driver.memory": "700m", **awkward}))
signal.raise_signal(signal.SIGINT)
print(spark.read.format("wal2lake").load(sys.argv[1]).count())
conf = spark.sparkContext.getConf()
assert {name: conf.get(name) for name in awkward} == awkward, [conf.get(name) for name in awkward]
assert conf.get("spark.given") == "before"
assert 600 << 20 < spark._jvm.Runtime.getRuntime().maxMemory() <= 700 << 20
assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--conf spark.given=before pyspark-shell"
assert not any(name.endswith(".conf") for name in os.listdir(os.environ["TMPDIR"]))
"""


@pytest.mark.spark
def test_a_script_that_its_interpreters_path_started(tmp_path: Path) -> None:
    """`venv/bin/python x.py`: PATH's Python has no wal2lake. Ctrl-C stays with the script when Spark has started.

    Spark has its settings whole, whatever characters they have; and what else was handed to spark-submit still counts.
    """
    ChangeLog.create(tmp_path / "log", IDENTITY)
    (tmp_path / "x.py").write_text(SCRIPT)
    (tmp_path / "python3").symlink_to("/bin/false")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = os.pathsep.join([str(tmp_path), "/usr/local/bin", "/usr/bin", "/bin"])
    environment |= {"PYSPARK_SUBMIT_ARGS": "--conf spark.given=before pyspark-shell", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "x.py", "log"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ours\n0\n"), done.stderr
    assert "incubator" not in done.stderr


def test_who_names_a_python_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert workers_python({"spark.master": "spark://elsewhere:7077"}) == sys.executable
    assert workers_python({"spark.master": "local[2]"}) == str(WORKER)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/theirs/python")
    assert workers_python({}) == "/opt/theirs/python"
    assert workers_python({"spark.pyspark.python": "/opt/set/python"}) == "/opt/set/python"


def test_its_python_processes_run_the_pyspark_that_has_byte_code(spark: SparkSession) -> None:
    assert str(spark.sparkContext.pythonExec) == str(WORKER)
    rows = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert rows == [pyspark.__file__]
    zipped = f"{SPARK}/python/lib/pyspark.zip:/kept:{SPARK}/python/lib/py4j-0.1-src.zip"
    done = subprocess.run(
        [WORKER, "-c", "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:])", "a b"],
        env={**os.environ, "PYTHONPATH": zipped}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "/kept a b\n"


def test_the_documentation_says_it_first() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    assert "PYSPARK_PYTHON" in page.split("```python", 2)[1].split("SparkSession")[0]
    assert page.index("PYSPARK_PYTHON") < page.index("readStream")


@pytest.mark.parametrize(
    ("end", "transient"),
    [("kill -KILL $$", True), ("exit 137", True), ("exit 1", False), ("echo no Java >&2; exit 3", False)],
)
def test_a_java_that_was_killed_is_started_again_and_one_that_refuses_is_not(
    tmp_path: Path, end: str, transient: bool
) -> None:
    """The kernel kills whoever is large when memory runs out; what [spark] has wrong no new start mends."""
    submit = tmp_path / "bin/spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\n{end}\n")
    submit.chmod(0o755)
    program = (
        "from wal2lake.config import Config; from wal2lake.errors import SparkError\n"
        "from wal2lake.spark.session import build_session\n"
        "try: build_session(Config())\n"
        "except SparkError as error: print(error.transient)"
    )
    environment = os.environ | {"SPARK_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{transient}\n", done.stderr
