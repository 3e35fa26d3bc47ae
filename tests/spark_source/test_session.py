from __future__ import annotations

import subprocess
import sys

import pytest

from wal2lake.config import Config
from wal2lake.spark.session import session_settings


def test_the_users_settings_win() -> None:
    settings = session_settings(Config(spark={"spark.ui.enabled": "true", "spark.x": "y"}))
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.x"] == "y"
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.master"] == "local[*,4]"


def test_a_cluster_keeps_its_own_addresses_and_checkpoints() -> None:
    settings = session_settings(Config(spark={"spark.master": "spark://host:7077"}))
    assert not any(name.startswith(("spark.driver.", "spark.sql.streaming.")) for name in settings)


CTRL_C = """
import signal
from wal2lake.config import Config
from wal2lake.spark.session import build_session
signal.signal(signal.SIGINT, lambda *_: print("ours"))
build_session(Config(spark={"spark.master": "local[1]"}))
signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.spark
def test_ctrl_c_stays_with_the_command_when_spark_starts() -> None:
    done = subprocess.run([sys.executable, "-c", CTRL_C], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "ours\n"), done.stderr
