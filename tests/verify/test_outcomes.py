"""What is wrong with one table is that table's outcome; what keeps all of them from being compared is one sentence."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.verify.lakes import INT32, Shop
from tests.waiting import eventually
from wal2lake.changelog.events import read_events
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.tables import TableDocuments
from wal2lake.config import Config
from wal2lake.errors import PublicationError, VerifyError
from wal2lake.lsn import LSN
from wal2lake.monitor import notebook
from wal2lake.monitor.notebook import Comparing
from wal2lake.monitor.verified import read_verified
from wal2lake.tables.state import Quarantine, TableState
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.verify import VerifyReport, verify
from wal2lake.verify.report import uncompared
from wal2lake.verify.source_snapshot import source_snapshot

pytestmark = pytest.mark.server

_SCHEMA = pa.schema({"id": INT32})
_ROLE = "verify_outcomes"


class Outcomes(Shop):
    """``config`` is a role's that may not read everything."""

    @property
    def of_role(self) -> Config:
        dsn = self.config.source.dsn.replace("user=postgres", f"user={_ROLE}")
        return replace(self.config, source=replace(self.config.source, dsn=dsn))

    def quarantine(self, table: str, reason: str, *, skipped: bool = False, error: str = "SchemaChangeError") -> None:
        documents = TableDocuments(
            ChangeLog.open(self.config.log.path).storage, self.config.pipeline.name, self.name, table
        )
        why = Quarantine(error, reason, 0.0, skipped)
        documents.write_state(TableState("quarantined", LSN(0), quarantine=why).to_document())

    def know(self, table: str) -> None:
        documents = TableDocuments(
            ChangeLog.open(self.config.log.path).storage, self.config.pipeline.name, self.name, table
        )
        documents.write_state(TableState("ready").to_document())

    def sign_of_life(self) -> None:
        """Something runs, so that whoever is behind is waited for."""
        path = Path(self.config.log.path) / "status" / "capture.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")


@pytest.fixture(scope="module")
def shop(server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    shop = Outcomes.open(server, "outcomes", tmp_path_factory.mktemp("outcomes"))
    assert isinstance(shop, Outcomes)
    shop.sql(f"CREATE ROLE {_ROLE} LOGIN REPLICATION; GRANT USAGE ON SCHEMA outcomes TO {_ROLE}")
    for name in ("equal", "closed", "foreign_", "quarantined", "skipped", "left", "damaged"):
        shop.sql(f'CREATE TABLE "{name}" (id int PRIMARY KEY); INSERT INTO "{name}" SELECT generate_series(1, 10)')
        shop.land(name, _SCHEMA)
    shop.sql("ALTER TABLE foreign_ RENAME id TO other; CREATE TABLE unseen (id int)")
    shop.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA outcomes TO {_ROLE}; REVOKE SELECT ON closed FROM {_ROLE}")
    shop.sql('CREATE SCHEMA elsewhere; ALTER TABLE "left" SET SCHEMA elsewhere')
    for file in (Path(shop.uri("damaged")) / "_delta_log").glob("*.json"):
        file.write_text("{")
    yield shop
    shop.sql("DROP SCHEMA elsewhere CASCADE")
    shop.close()
    server.psql(f"DROP OWNED BY {_ROLE}; DROP ROLE {_ROLE}")


@pytest.fixture(scope="module")
def shown() -> list[Comparing]:
    """What a notebook had in its one place, one after another."""
    return []


@pytest.fixture(scope="module")
def report(shop: Outcomes, spark: SparkSession, shown: list[Comparing]) -> VerifyReport:
    """As a notebook has it; its display is IPython's as far as that is used."""

    def display(picture: Comparing, *, display_id: bool) -> SimpleNamespace:
        assert display_id
        shown.append(picture)
        return SimpleNamespace(update=shown.append)

    shop.know("left")
    shop.know("equal")
    shop.quarantine("quarantined", "A column was renamed.")
    shop.quarantine("unseen", "It cannot be read.")
    shop.quarantine("skipped", "Somebody wants it so.", skipped=True)
    shop.sign_of_life()
    ipython: Any = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    displays: Any = SimpleNamespace(display=display)
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "IPython", ipython)
        patch.setitem(sys.modules, "IPython.display", displays)
        found = notebook.verify(shop.of_role, spark, timeout_s=600)
    assert time.monotonic() - began < 300, "it waited for tables that are left out"
    return found


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "outcome", "ok", "says"),
    [
        ("equal", "equal", True, None),
        ("closed", "not compared", False, "permission denied.*GRANT"),
        ("foreign_", "not compared", False, "no column in common"),
        ("damaged", "not compared", False, "Delta table cannot be read"),
        ("quarantined", "quarantined", False, r"A column was renamed\."),
        ("unseen", "quarantined", False, r"It cannot be read\."),
        ("skipped", "skipped", True, r"Somebody wants it so\."),
        ("left", "not published", True, "not in the publication any more"),
    ],
)
def test_each_table_has_its_outcome(report: VerifyReport, name: str, outcome: str, ok: bool, says: str | None) -> None:
    result = next(table for table in report.tables if table.name == name)
    assert (result.outcome, result.ok, result.row()[1]) == (outcome, ok, outcome)
    if says is None:
        assert result.findings() == []
    else:
        (finding,) = result.findings()
        assert re.search(says, finding)
    told = {table["name"]: table["outcome"] for table in json.loads(report.to_json())["tables"]}
    assert told[name] == outcome


@pytest.mark.spark
def test_a_notebook_sees_how_far_it_is_and_what_it_found_is_left_for_all(
    shop: Outcomes, report: VerifyReport, shown: list[Comparing]
) -> None:
    shares = [picture.share for picture in shown if not picture.said]
    assert (shares[0], shares[-1], shares == sorted(shares)) == (0.0, 1.0, True) and 0.5 in shares
    assert "comparing: 50%" in Comparing(0.5, "<b>")._repr_html_() and "<b>" not in Comparing(0.5, "<b>")._repr_html_()
    verified, (event,) = read_verified(shop.config.log.path), read_events(shop.config.log.path, kinds={"verified"})
    assert verified is not None and verified.state == "done"
    assert list(verified.tables) == [str(table) for table in report.tables]
    assert (event.level, event.values["equal"]) == ("error", 1)


@pytest.mark.spark
def test_every_table_is_named_once(report: VerifyReport) -> None:
    assert sorted(table.name for table in report.tables) == [
        "closed", "damaged", "equal", "foreign_", "left", "quarantined", "skipped", "unseen",
    ]  # fmt: skip
    assert not report.ok


@pytest.mark.spark
def test_a_publication_without_tables_proves_nothing(shop: Outcomes, spark: SparkSession) -> None:
    shop.sql("CREATE PUBLICATION empty_one")
    empty = replace(shop.config, source=replace(shop.config.source, publication="empty_one"))
    try:
        with pytest.raises(PublicationError, match="empty_one has no table"):
            verify(empty, spark)
    finally:
        shop.sql("DROP PUBLICATION empty_one")


def test_a_report_of_what_is_left_out_alone_is_no_proof() -> None:
    skipped = uncompared("s", "t", LSN(0), "Somebody wants it so.", "skipped")
    assert skipped.ok and not VerifyReport(LSN(0), [skipped]).ok


def test_a_prepared_transaction_is_named_and_not_waited_for_without_end() -> None:
    named, said = "the prepared transaction 'for''gotten'", list[str]()
    with (
        EmbeddedPostgres(settings={"max_prepared_transactions": "2"}) as server,
        psycopg.connect(server.dsn, autocommit=True) as other,
    ):
        other.execute("CREATE TABLE t (id int)")
        other.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'for''gotten'")
        with (
            pytest.raises(VerifyError, match=f"{named}.*ROLLBACK PREPARED"),
            source_snapshot(server.dsn, 1.5, said.append),
        ):
            pass
        assert said == [f"Waiting for {named} to end, as a snapshot must."]
        other.execute("ROLLBACK PREPARED 'for''gotten'")
        eventually(lambda: not other.execute("SELECT 1 FROM pg_replication_slots").fetchall())
