"""What a pipeline does is told as it happens, table by table, and by all that ran before as well."""

from __future__ import annotations

import pytest

from tests.pipeline.conftest import LocalEngine, Site
from wal2lake.changelog.events import Event, EventReader
from wal2lake.changelog.requests import Requests
from wal2lake.errors import UnrepresentableError
from wal2lake.pipeline.loop import Pipeline

pytestmark = pytest.mark.server


def run(site: Site) -> None:
    site.capture()
    Pipeline(site.config, LocalEngine(site), site.stop).run()


def told(reader: EventReader) -> list[tuple[str, str | None]]:
    return [(event.kind, event.table) for event in reader.news()]


def test_a_table_s_life(site: Site) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY, day date)", "INSERT INTO a VALUES (1)")
    site.publish("a")
    reader = EventReader(site.config.log.path)
    site.sql("INSERT INTO a VALUES (2)")
    run(site)
    assert told(reader) == [("started", None), ("copied", "public.a"), ("batch", None), ("stopped", None)]

    site.sql("ALTER TABLE a ADD COLUMN note text, DROP COLUMN day", "INSERT INTO a VALUES (3, 'x'), (4, 'y')")
    run(site)
    begun, changed, batch, _ = found = reader.news()
    assert [event.kind for event in found] == ["started", "schema_changed", "batch", "stopped"]
    assert (changed.table, changed.values["added"], changed.values["gone"]) == ("public.a", ["note"], ["day"])
    assert changed.text == "Its schema changed: added note; gone day."
    assert {name: batch.values[name] for name in ("batch", "tables", "changes")} == {
        "batch": 0, "tables": 1, "changes": 2,
    }  # fmt: skip
    assert (begun.values["lsn"], batch.values["end_lsn"]) == (batch.values["start_lsn"], str(site.log().last_end_lsn))
    assert batch.values["seconds"] > 0

    site.sql("ALTER TABLE a RENAME COLUMN note TO remark", "INSERT INTO a VALUES (5, 'z')")
    with pytest.raises(Exception, match="quarantined"):
        run(site)
    assert told(reader) == [("started", None), ("quarantined", "public.a"), ("batch", None), ("failed", None)]

    requests = Requests(site.config.log.path, site.config.pipeline.name)
    requests.put("public", "a", "skip")
    run(site)
    assert ("skipped", "public.a") in told(reader)
    requests.put("public", "a", "resync")
    run(site)
    assert ("copied", "public.a") in told(reader)
    site.same("public.a")


def test_a_quarantine_says_why_and_a_retry_is_told(left_out: Site) -> None:
    def quarantines() -> list[Event]:
        return [event for event in EventReader(left_out.config.log.path).news() if event.kind == "quarantined"]

    (event,) = quarantines()
    assert (event.level, event.values["error"]) == ("error", "UnrepresentableError")
    assert event.text.startswith("It is left out: ")
    with pytest.raises(UnrepresentableError):
        left_out.run()
    assert len(quarantines()) == 2
