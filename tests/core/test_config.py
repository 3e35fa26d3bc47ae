from __future__ import annotations

import json
import pickle
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.documents.shown import on_page, ran
from wal2lake.config import Config
from wal2lake.errors import ConfigError
from wal2lake.lakes import Lake, Place


def _write(folder: Path, text: str) -> Path:
    path = folder / "wal2lake.toml"
    path.write_text(text, errors="surrogateescape")
    return path


def test_later_places_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path, '[source]\nslot = "file"\npublication = "file"\ndsn = "file"\n')
    monkeypatch.setenv("WAL2LAKE_SOURCE_SLOT", "environment")
    monkeypatch.setenv("WAL2LAKE_SOURCE_PUBLICATION", "environment")
    config = Config.load(path, {"source.slot": "flag"})
    assert (config.source.slot, config.source.publication, config.source.dsn) == ("flag", "environment", "file")


def test_paths_start_at_the_file(tmp_path: Path) -> None:
    config = Config.load(_write(tmp_path, '[log]\npath = "l"\n[lake]\npath = "s3://bucket/lake"\n'))
    assert (config.log.path, config.lake.path) == (str(tmp_path / "l"), "s3://bucket/lake")


def test_spark_settings_pass_through_quoted_or_nested(tmp_path: Path) -> None:
    text = '[spark]\nmaster = "local[1]"\n"spark.sql.x" = 1\nsql.ansi.enabled = true\nspark.ui.enabled = false\n'
    assert Config.load(_write(tmp_path, text)).spark == {
        "spark.master": "local[1]",
        "spark.sql.x": "1",
        "spark.sql.ansi.enabled": "true",
        "spark.ui.enabled": "false",
    }


def test_environment_values_get_the_settings_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAL2LAKE_LOG_SEGMENT_BYTES", "1024")
    monkeypatch.setenv("WAL2LAKE_PIPELINE_TEXT_COLUMNS", "a.b.c,d.e.f")
    monkeypatch.setenv("WAL2LAKE_SOURCE_FAILOVER", "True")
    config = Config.load(None)
    assert (config.log.segment_bytes, config.pipeline.text_columns) == (1024, ("a.b.c", "d.e.f"))
    assert (config.source.failover, Config().source.failover) == (True, False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[sauce]\n", "Unknown section .sauce."),
        ('[source]\nslott = "x"\n', "Unknown setting source.slott"),
        ('[source]\nslot = "Not A Slot"\n', "cannot name a replication slot"),
        ('[source]\npublication = ""\n', "source.publication is empty"),
        ('[lake]\nmode = "upsert"\n', "lake.mode must be one of mirror, append"),
        ('[lake]\nformat = "csv"\n', "lake.format must be one of delta"),
        ("[lake]\nretention_seconds = -1\n", "lake.retention_seconds must be 0 or greater"),
        ("[lake]\nretention_bytes = -1\n", "lake.retention_bytes must be 0 or greater"),
        ("[lake]\nmin_retention_seconds = -1\n", "lake.min_retention_seconds must be 0 or greater"),
        ("[lake]\nretention_seconds = 0.5\n", "lake.retention_seconds must be a whole number"),
        ('[log]\npath = "ftp://host/log"\n', "begins with ftp://"),
        ('[log]\npath = "s3://bucket/log"\noptions = {session_token = "x"}\n', "session_token has a secret"),
        ('[log]\noptions = {region = "x"}\n', "log.path is a folder"),
        ('[log]\npath = "s3://bucket/log"\noptions = {region = []}\n', "log.options must be a table of texts"),
        ('[log]\npath = "s3://bucket/log"\noptions = "region"\n', "name=value&name=value"),
        ("[log]\nsegment_bytes = 0\n", "log.segment_bytes must be greater than 0"),
        ("[log]\nretention_seconds = -1\n", "log.retention_seconds must be 0 or greater"),
        ('[log]\nsegment_bytes = "many"\n', "log.segment_bytes must be a whole number"),
        ("[log]\nsegment_bytes = 1.5\n", "must be a whole number"),
        ("[log]\nsegment_bytes = true\n", "must be a whole number"),
        ("[lake]\npath = 1\n", "lake.path must be text"),
        ("[source]\nfailover = 1\n", "source.failover must be true or false"),
        ('[source]\nfailover = "yes"\n', "source.failover must be true or false"),
        ('[source]\nstreaming = "parallel"\n', "source.streaming must be true or false"),
        ('[pipeline]\nunbounded_numeric = "decimal(39,0)"\n', "decimal.*at most 38 digits"),
        ('[pipeline]\nunbounded_numeric = "float"\n', "text, double, or decimal"),
        ('[pipeline]\ntext_columns = ["a.b"]\n', "'a.b'. Write schema.table.column"),
        ("[pipeline]\ntext_columns = [[]]\n", "pipeline.text_columns must be a list of texts"),
        ('[pipeline]\nnull_columns = ["a.b.c", 1]\n', "pipeline.null_columns must be a list of texts"),
        ('[pipeline]\nerror_columns = {"a.b.c" = 1}\n', "pipeline.error_columns must be a list of texts"),
        ("[pipeline]\ntrigger_seconds = 1" + "0" * 400 + "\n", "pipeline.trigger_seconds must be a number"),
        ("[lake]\nretention_bytes = inf\n", "lake.retention_bytes must be a whole number"),
        ("[lake]\nretention_bytes = " + "1" * 5000 + "\n", "not valid TOML"),
        ('[log]\npath = "a\\u0000b"\n', "log.path has a zero byte"),
        ('[pipeline]\ntext_columns = ["a.b.\\u0000"]\n', "pipeline.text_columns has a zero byte"),
        ('[spark]\nx = "\\u0000"\n', "A setting of .spark. has a zero byte"),
        ('[spark]\n"spark.jars" = ["x"]\n', "is a list"),
        ("[log\n", "not valid TOML"),
        ("\udcff", "not valid TOML"),
        ("source = 3\n", "sets source outside of a section"),
        ('dsn = "x"\n', "sets dsn outside of a section"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Config.load(_write(tmp_path, text))


def test_a_misspelled_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAL2LAKE_SOURCE_DNS", "host=db")
    with pytest.raises(
        ConfigError, match=r"source.dns \(environment variable WAL2LAKE_SOURCE_DNS\). Known in .source.: dsn"
    ):
        Config.load(None)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wal2lake init"):
        Config.load(tmp_path / "none.toml")


def test_it_survives_the_way_to_a_child_and_hides_the_dsn() -> None:
    config = Config.from_dict({"source": {"dsn": "password=secret"}, "spark": {"spark.master": "local[1]"}})
    assert Config.from_dict(asdict(config)) == config
    assert "secret" not in repr(config)


def test_the_options_of_an_object_store_become_part_of_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "wal2lake.toml"
    path.write_text(
        '[log]\npath = "s3://bucket/a b/log?region=eu"\n'
        'options = {endpoint = "http://localhost:9000", allow_http = true, secret_access_key = "$MINE"}\n'
    )
    log = Config.load(path).log
    assert log.path == (
        "s3://bucket/a%20b/log?allow_http=true&endpoint=http://localhost:9000&region=eu&secret_access_key=$MINE"
    )
    assert Config.from_dict(json.loads(json.dumps(asdict(Config.load(path))))).log == log
    assert Path(log.folder).parent == tmp_path / "wal2lake/local"
    monkeypatch.setenv("WAL2LAKE_LOG_OPTIONS", "region=us&profile=mine")
    assert Config.load(path).log.path == "s3://bucket/a%20b/log?profile=mine&region=us"
    monkeypatch.delenv("WAL2LAKE_LOG_OPTIONS")
    local = Config.load(None, {"log.path": f"file://{tmp_path}/a%20b"}).log
    assert (local.path, local.folder) == (f"{tmp_path}/a b",) * 2


def test_a_lake_in_an_object_store_is_a_place_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "wal2lake.toml"
    path.write_text(
        '[lake]\npath = "s3://bucket/a/lake?region=eu"\noptions = {allow_http = true, secret_access_key = "${MINE}"}\n'
    )
    lake = Config.load(path).lake
    assert lake.path == lake.place.uri == "s3://bucket/a/lake"
    assert dict(lake.place.options) == {"allow_http": "true", "region": "eu", "secret_access_key": "${MINE}"}
    assert Config.from_dict(json.loads(json.dumps(asdict(Config.load(path))))).lake == lake
    assert lake.place.table("shop", "a b") == Place("s3://bucket/a/lake/shop/a~20b", lake.place.options)
    assert Path(lake.local_path) == tmp_path / "wal2lake/local"
    monkeypatch.setenv("MINE", "canary")
    assert (lake.place.storage_options() or {})["secret_access_key"] == "canary"
    assert "canary" not in repr(lake) + repr(lake.place) + str(lake.place.url)
    assert b"canary" not in pickle.dumps(lake.place)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[lake]\noptions = {region = "eu"}', "lake.options are of an object store, and lake.path is a folder"),
        ('[lake]\npath = "s3://b/l"\noptions = {token = "canary"}', "lake.options.token has a secret"),
        (
            '[lake]\npath = "s3://b/l"\noptions = {endpoint = "http://me:canary@x"}',
            "lake.options.endpoint has",
        ),
        ('[lake]\npath = "s3://me:canary@b/l"', "lake.path is a s3:// URL that is more"),
        ('[lake]\npath = "ftp://b/l"', "lake.path begins with ftp://"),
        ('[lake]\npath = "s3://b/a b%25"', "lake.path has characters"),
        ('[log]\npath = "s3://b/x?region=eu"\n[lake]\npath = "s3://b/x/lake"', "one lies in the other"),
        ('[log]\npath = "s3://b/x/log"\n[lake]\npath = "s3://b/x"', "one lies in the other"),
    ],
)
def test_a_lake_that_is_no_place_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        Config.load(_write(tmp_path, text))
    assert "canary" not in str(caught.value)


@pytest.mark.documents
def test_the_settings_of_a_page_are_settings(tmp_path: Path) -> None:
    (block,) = on_page("docs/object-store.md", "toml")
    path = _write(tmp_path, block.text)
    config = Config.load(path)
    assert config.log.path == "s3://my-bucket/shop/log?region=eu-west-1&secret_access_key=$SHOP_LOG_SECRET"
    options = (("region", "eu-west-1"), ("secret_access_key", "${SHOP_LAKE_SECRET}"))
    assert config.lake.place == Lake("s3://my-bucket/shop/lake", options)
    ran(block)
