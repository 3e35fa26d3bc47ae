"""Text that the database's encoding does not explain: its tables are left out with that reason, the others go on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.pipeline.conftest import Site, opened
from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.tables.asking import ask
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


class Captured(Site):
    """Its log is filled by capture itself."""

    def capture(self) -> None:
        row = self.connection.execute("SELECT pg_current_wal_flush_lsn()::text::bytea").fetchone()
        assert row is not None
        end, stop, failed = LSN.parse(row[0].decode()), threading.Event(), list[Exception]()

        def run() -> None:
            try:
                Capture(self.config).run(stop)
            except Wal2LakeError as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            log = Path(self.config.log.path)
            eventually(lambda: ChangeLog.exists(log) and ChangeLog.open(log).durable_lsn() >= end, failed)
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize(("encoding", "octets"), [("SQL_ASCII", "e9"), ("WIN1252", "81")])
def test_text_without_utf8_costs_its_own_table(
    server: EmbeddedPostgres, tmp_path: Path, encoding: str, octets: str
) -> None:
    site = Captured(server, tmp_path, f"TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    bad = f"convert_from('\\x{octets}', getdatabaseencoding())"
    with opened(site, server):
        site.sql(*(f"CREATE TABLE public.{name} (id int PRIMARY KEY, v text)" for name in "abc"))
        site.sql(f"INSERT INTO a VALUES (1, {bad})", "INSERT INTO b VALUES (1, 'x')", "INSERT INTO c VALUES (1, 'y')")
        site.sql("CREATE PUBLICATION pub FOR TABLE a, b, c")
        with pytest.raises(Wal2LakeError, match=r"1 table.* are quarantined. public.a: .*no form in UTF-8"):
            site.run()
        site.sql(f"INSERT INTO b VALUES (2, {bad})", "INSERT INTO c VALUES (2, 'z')")
        with pytest.raises(Wal2LakeError, match=r"2 table.*public.b: .*it is not UTF-8.*`wal2lake resync`"):
            site.run()
        assert site.lake("public.c") == [(1, "y"), (2, "z")]
        site.sql("UPDATE a SET v = 'mended'", "UPDATE b SET v = 'mended'")
        ask(site.config, ["public.b"], "resync")
        site.run()
        assert site.lake("public.a") == [(1, "mended")]
        assert site.lake("public.b") == [(1, "mended"), (2, "mended")]
