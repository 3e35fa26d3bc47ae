"""docs/object-store.md, followed word for word; the store is an S3 server of ours, by the tools' own variables."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.documents.shell import Shell, follow, libpq, to_run
from tests.documents.shown import Shown, ran
from tests.s3 import SECRET, S3Server
from tests.waiting import eventually
from wal2lake.changelog.local import storage_at
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.documents, pytest.mark.server, pytest.mark.spark, pytest.mark.slow]

PAGE = "docs/object-store.md"


def test_log_and_lake_in_an_object_store(
    server: EmbeddedPostgres, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket's name is the page's; a recipe that names none of our server's options reaches it all the same."""
    urllib.request.urlopen(urllib.request.Request(f"{s3.endpoint}/my-bucket", method="PUT")).close()
    server.psql("CREATE DATABASE shopstore")
    server.psql(
        "CREATE TABLE orders (id int PRIMARY KEY, total numeric(10, 2));"
        "INSERT INTO orders SELECT n, n FROM generate_series(1, 20) n; CREATE PUBLICATION wal2lake FOR ALL TABLES",
        database="shopstore",
    )
    variables = {
        "AWS_ENDPOINT_URL": s3.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": SECRET, "SHOP_LOG_SECRET": SECRET, "SHOP_LAKE_SECRET": SECRET,
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    (settings,) = to_run(PAGE, "toml")
    (tmp_path / "wal2lake.toml").write_text(settings.text)
    ran(settings)
    with Shell(tmp_path, server, **libpq(server, "shopstore"), **variables) as shell:

        def streams() -> bool:
            try:
                found = json.loads(storage_at(f"{_log(settings)}?region=eu-west-1").get("status/pipeline.json"))
            except FileNotFoundError:
                return False
            return [table["state"] for table in found["tables"].values()] == ["streaming"]

        def run(_: Shown, text: str) -> None:
            shell.begin(text)
            eventually(streams, timeout_s=300, poll_s=0.5, alive=lambda: "wal2lake: " not in shell.said())

        def look(_: Shown, text: str) -> None:
            said.append(shell.type(text))

        def python(text: str) -> None:
            (tmp_path / "look.py").write_text(text)
            assert shell.type("python look.py").strip() == "20"

        follow(
            [item for item in to_run(PAGE) if item.language != "toml"], shell,
            special={"wal2lake run": run, "wal2lake ": look}, otherwise={"python": python},
        )  # fmt: skip
        shell.end("wal2lake run")
        said.append(shell.said())
        shell.type("wal2lake drop --with-log --yes")
    assert "takes tables" in said[0] and "Ready" in said[0]
    assert "s3://my-bucket/shop/lake/public/orders" in "".join(said)
    assert not any(SECRET in text for text in said)
    assert not any(path.suffix in (".arrow", ".parquet") for path in tmp_path.rglob("*"))
    server.psql("DROP DATABASE shopstore WITH (FORCE)")


def _log(settings: Shown) -> str:
    return next(line.split('"')[1] for line in settings.text.splitlines() if line.startswith("path"))
