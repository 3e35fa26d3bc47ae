"""An output plugin over the log: the functions without a JVM, the command line, and Spark's executors."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.spark_source.conftest import LogScript, completed
from wal2lake.changelog.decoding import decode_log
from wal2lake.errors import ConfigError
from wal2lake.spark import decoded
from wal2lake.spark.options import SourceOptions
from wal2lake.tables.committed import open_log
from wal2lake.testing.stream import insert, relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD = "table public.t: INSERT: id[bigint]:"


def _lines(log: LogScript, start: int | None = None, end: int | None = None) -> list[str]:
    pieces = decode_log(open_log(log.path), "test_decoding", [("include-xids", "0")], start=start, end=end)
    return [str(piece.data) for piece in pieces]


def test_a_range_gives_its_transactions_by_the_shapes_of_their_time(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")], [relation(columns=("id", "w")), insert(2, "b")])
    log.transactions([insert(3, "c")], [relation(), insert(4, "d")])
    rows = [f"{HEAD}1 v[text]:'a'", f"{HEAD}2 w[text]:'b'", f"{HEAD}3 w[text]:'c'", f"{HEAD}4 v[text]:'d'"]
    assert _lines(log) == [line for row in rows for line in ("BEGIN", row, "COMMIT")]
    for first in range(4):
        start = log.start if first == 0 else log.ends[first - 1]
        assert _lines(log, start, log.ends[first])[1] == rows[first]


def test_a_transaction_may_span_segments(log: LogScript) -> None:
    payloads = log.stream.transaction(relation(), insert(1, "a"), insert(2, "b"))
    log.append(payloads[:3])
    log.append(payloads[3:])
    assert _lines(log) == ["BEGIN", f"{HEAD}1 v[text]:'a'", f"{HEAD}2 v[text]:'b'", "COMMIT"]


def test_the_command_prints_them(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")], [insert(2, "b")])
    command = [sys.executable, "-m", "wal2lake", "log", "decode", "--log", log.path, "--plugin", "test_decoding"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[:2] == ["BEGIN 701", f"{HEAD}1 v[text]:'a'"]
    start, end = (f"0/{lsn:X}" for lsn in log.ends)
    command += ["--start-lsn", start, "--end-lsn", end, "--json", "-o", "include-xids=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert [json.loads(line)["data"] for line in done.stdout.splitlines()] == [
        "BEGIN",
        f"{HEAD}2 v[text]:'b'",
        "COMMIT",
    ]


def test_partitions_end_at_commits(log: LogScript, monkeypatch: pytest.MonkeyPatch) -> None:
    log.transactions([relation()], *([insert(i, "a"), insert(-i, "b")] for i in range(1, 6)))
    monkeypatch.setattr(decoded, "PARTITION_ROWS", 8)
    options = SourceOptions.parse({"log": log.path, "plugin": "test_decoding"})
    spans = decoded.plan_decoded(open_log(log.path), log.start, log.ends[-1])
    assert [start for start, _ in spans[1:]] == [end for _, end in spans[:-1]]
    assert (spans[0][0], spans[-1][1]) == (log.start, log.ends[-1])
    assert len(spans) > 1 and {end for _, end in spans} <= set(log.ends)
    parts = [
        row["data"] for span in spans for batch in decoded.read_decoded(options, *span) for row in batch.to_pylist()
    ]
    assert len(parts) == 2 * 6 + 10


@pytest.mark.parametrize(
    "given, why",
    [
        ({"table": "a.b"}, "exclude each other"),
        ({"pluginOptions": "[]"}, "JSON object"),
        ({"pluginOptions": '{"a": 1}'}, "JSON object"),
        ({"pluginOptions": "{"}, "JSON object"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SourceOptions.parse({"log": "log", "plugin": "test_decoding", **given})


def test_the_plugin_says_whether_data_is_text(log: LogScript) -> None:
    log.transactions([relation()])
    for given, kind in (('{"force-binary": "1"}', "binary"), ('{"force-binary": "0", "include-xids": null}', "string")):
        options = SourceOptions.parse({"log": log.path, "plugin": "test_decoding", "pluginOptions": given})
        assert str(decoded.decoded_schema(options).field("data").type) == kind


@pytest.mark.spark
def test_executors_run_the_plugin(log: LogScript, spark: SparkSession) -> None:
    from wal2lake.spark import register

    register(spark)
    log.transactions([relation(), insert(1, "a")], [insert(2, "b")])
    reader = spark.readStream.format("wal2lake").option("log", log.path).option("plugin", "test_decoding")
    stream = reader.option("pluginOptions", '{"include-xids": "0"}').load()
    completed(stream.writeStream.format("memory").queryName("decoded").trigger(availableNow=True).start)
    rows = spark.table("decoded").collect()
    assert [row.data for row in rows] == _lines(log)
    assert [row.xid for row in rows] == [701] * 3 + [702] * 3
