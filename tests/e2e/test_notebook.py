"""The example notebook runs as it stands, cell by cell, and what it shows came out of a run without an error."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from wal2lake.testing.embedded import EmbeddedPostgres

NOTEBOOK = json.loads((Path(__file__).parents[2] / "docs" / "notebook.ipynb").read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def _shown(cell: dict[str, Any], names: dict[str, Any]) -> object:
    """Run the cell; its last expression's value, as a notebook has it."""
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "notebook", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "notebook", "eval"), names)


def _html(outputs: list[dict[str, Any]]) -> Iterator[str]:
    return ("".join(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {}))


@pytest.fixture
def database(server: EmbeddedPostgres) -> Iterator[str]:
    """The DSN of a database of its own."""
    server.psql("CREATE DATABASE notebook")
    yield server.dsn.replace("dbname=postgres", "dbname=notebook")
    server.psql("DROP DATABASE notebook WITH (FORCE)")


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.slow
def test_the_notebook_runs(spark: SparkSession, database: str) -> None:
    """With a server and a Spark that are there: the cells that start and stop them are left out."""
    names: dict[str, Any] = {"dsn": database}
    shown = {}
    try:
        for cell in CODE:
            if "server" not in cell["metadata"].get("tags", []):
                shown[cell["id"]] = _shown(cell, names)
    finally:
        if "stop" in names:
            names["stop"].set()
            for thread in names["threads"]:
                thread.join()
    assert names["report"].ok
    for cell in CODE:
        for stored in _html([output for output in cell["outputs"] if output["output_type"] == "execute_result"]):
            found = shown[cell["id"]]._repr_html_()  # type: ignore[attr-defined] # it has one, as it had
            assert re.findall("<th>(.*?)</th>", found) == re.findall("<th>(.*?)</th>", stored) != []
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT FROM pg_replication_slots WHERE database = 'notebook'").fetchall() == []


def test_what_it_shows_came_out_of_a_run() -> None:
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    outputs = [output for cell in CODE for output in cell["outputs"]]
    watched = [output for output in outputs if output["output_type"] == "display_data"]  # which changed in its place
    assert [output["output_type"] for output in outputs if output not in watched] == ["execute_result"] * 6
    assert ["shop.orders</td><td>streaming" in shown for shown in _html(watched)] == [True, True]
    assert sum(1 for _ in _html(outputs)) == 6
    text = json.dumps(NOTEBOOK)
    for word in ("schema_changed", "equal", "by hand"):
        assert word in json.dumps(outputs), word
    assert not [word for word in ("/tmp/", "/root/", "/home/", "password") if word in text]
