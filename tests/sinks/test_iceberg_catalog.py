"""The catalog of an Iceberg lake: whose it is, how it is opened, and what is said where it is not."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.test_delta import ROWS, as_table, land
from tests.sinks.test_iceberg import filled, opened, sink
from wal2lake.config import Config, LakeConfig
from wal2lake.errors import ConfigError
from wal2lake.run.readiness import readiness
from wal2lake.sinks.base import Sink, SinkUnavailableError
from wal2lake.sinks.factory import check_lake

__all__ = ["filled", "sink"]  # fixtures


def test_a_catalog_that_is_busy_or_away_is_tried_again(filled: Sink, tmp_path: Path) -> None:
    busy = load_catalog_with_patience(tmp_path, 0.1)
    with sqlite3.connect(tmp_path / "_catalog.db") as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SinkUnavailableError, match="locked"):
            busy.state()
    (tmp_path / "_catalog.db").rename(tmp_path / "away")
    assert filled.state() is None and not filled.is_gone()


def load_catalog_with_patience(folder: Path, seconds: float) -> Sink:
    uri = f"sqlite:///{folder}/_catalog.db?timeout={seconds}"
    return opened(folder, catalog_properties={"type": "sql", "uri": uri})


def test_settings_of_a_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="need a catalog"):
        LakeConfig("s3://bucket/lake", format="iceberg")
    with pytest.raises(ConfigError, match=r"lake\.format is another"):
        LakeConfig(catalog="mine")
    for secret in ({"token": "t0p"}, {"uri": "postgresql+psycopg2://u:t0p@host/db"}, {"s3.secret-access-key": "t0p"}):
        with pytest.raises(ConfigError, match="has a secret") as caught:
            LakeConfig(format="iceberg", catalog_properties=secret)
        assert "t0p" not in str(caught.value)
    open_ones = {"token": "${TOKEN}", "s3.access-key-id": "me", "uri": "postgresql://me@host/db"}
    LakeConfig(format="iceberg", catalog_properties=open_ones)
    named_so = {"type": "sql", "uri": "$CATALOG_URI"}
    with pytest.raises(ConfigError, match="CATALOG_URI, which is not set"):
        opened(tmp_path, catalog_properties=named_so).state()
    monkeypatch.setenv("CATALOG_URI", f"sqlite:///{tmp_path}/elsewhere.db")
    land(opened(tmp_path, catalog_properties=named_so), as_table(ROWS), 10, None)
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"sqlite:///{tmp_path}/mine.db")
    assert (tmp_path / "elsewhere.db").exists() and not (tmp_path / "_catalog.db").exists()


def test_check_asks_the_catalog(filled: Sink, tmp_path: Path) -> None:
    def lake(**settings: Any) -> LakeConfig:
        return LakeConfig(**{"path": str(tmp_path), "format": "iceberg", **settings})

    check_lake(lake())
    check_lake(lake(path=str(tmp_path / "not there yet")))
    away = {"type": "sql", "uri": f"sqlite:///{tmp_path}/no/such/folder.db"}
    for settings, error, said in (
        ({"catalog": "nobody knows it"}, ConfigError, "URI missing"),
        ({"catalog_properties": {"type": "unheard of"}}, ConfigError, "unheard of"),
        ({"catalog_properties": away}, SinkUnavailableError, "unable to open"),
    ):
        with pytest.raises(error, match=said):
            check_lake(lake(**settings))
    found = {finding.name: finding for finding in readiness(Config(lake=lake(catalog_properties=away)), None)}
    assert found["lake_format"].level == "error"
