from __future__ import annotations

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
