"""What happened is told as it happened: whole, in order, bounded, by several at once; and telling it ends nothing."""

from __future__ import annotations

import errno
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.changelog.memory import MemoryStorage
from wal2lake.changelog.documents import read_document, write_document
from wal2lake.changelog.events import KINDS, PAGE, Event, EventReader, Events, read_events
from wal2lake.changelog.local import LocalStorage
from wal2lake.changelog.places import EVERYTHING, event_page, events_of
from wal2lake.changelog.storage import Storage
from wal2lake.lsn import LSN

KEPT = {"run": 64, "batches": 128}  # pages


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "log") if request.param == "local" else MemoryStorage()


def _texts(found: list[Event]) -> list[str]:
    return [event.text for event in found]


def test_what_is_told_is_read_back(storage: Storage) -> None:
    Events(storage, "capture").record("promoted", "Promoted.", level="warning", lsn=LSN(0x1A2B), timeline=2)
    Events(storage, "pipeline", "p/1").record("quarantined", "Left out.", level="error", table="shop.o", error="X")
    promoted, quarantined = read_events(storage)
    assert (promoted.source, promoted.kind, promoted.level, promoted.table) == ("capture", "promoted", "warning", None)
    assert promoted.values == {"lsn": "0/1A2B", "timeline": 2}
    assert (quarantined.source, quarantined.table, str(quarantined)) == ("pipeline", "shop.o", "shop.o: Left out.")
    assert quarantined.ts >= promoted.ts
    assert quarantined.id != promoted.id
    told = json.loads(json.dumps(quarantined.to_json()))
    assert (told["values"], told["table"]) == ({"error": "X"}, "shop.o")
    assert told["time"][:19] == quarantined.line()[:19]
    assert quarantined.line().endswith("ERROR   pipeline: shop.o: Left out.")


def test_there_is_nothing_where_nobody_told_anything(storage: Storage) -> None:
    assert (read_events(storage), EventReader(storage).news()) == ([], [])


def test_the_newest_are_read_oldest_first(storage: Storage) -> None:
    run, batches = Events(storage, "run"), Events(storage, "pipeline", "p")
    for number in range(PAGE + 3):
        batches.record("batch", f"b{number}")
    run.record("restarted", "again")
    batches.record("batch", "last", table="a.b")
    assert _texts(read_events(storage, limit=3)) == [f"b{PAGE + 2}", "again", "last"]
    assert _texts(read_events(storage, limit=2, kinds={"batch"})) == [f"b{PAGE + 2}", "last"]
    assert _texts(read_events(storage, kinds={"restarted", "promoted"})) == ["again"]
    assert _texts(read_events(storage, table="a.b")) == ["last"]
    assert read_events(storage, limit=0) == []
    last = read_events(storage, limit=1)[0]
    assert _texts(read_events(storage, since=last.ts))[-1] == "last"
    assert read_events(storage, since=last.ts + 1) == []


def test_one_pipeline_does_not_see_another_s(storage: Storage) -> None:
    for name in ("p", "q", "p@q"):
        Events(storage, "pipeline", name).record("started", name)
    Events(storage, "capture").record("connected", "capture")
    assert _texts(read_events(storage, pipeline="p")) == ["p", "capture"]
    assert _texts(read_events(storage, pipeline="p@q")) == ["p@q", "capture"]
    assert len(read_events(storage)) == 4


@pytest.mark.parametrize("source", ["run", "batches"])
def test_the_oldest_pages_go(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it runs; and numbers go on."""
    monkeypatch.setattr("wal2lake.changelog.events.PAGE", 4)
    storage = MemoryStorage()
    events = Events(storage, "run")
    bound = KEPT[source]
    for number in range(4 * bound + 9):
        events.record("batch" if source == "batches" else "started", str(number))
        assert len(storage.names(events_of(source))) <= bound
    found = _texts(read_events(storage, limit=10_000))
    assert found == [str(number) for number in range(4 * bound + 9 - len(found), 4 * bound + 9)]
    assert 4 * (bound - 1) < len(found) <= 4 * bound


def test_a_text_is_cut(storage: Storage) -> None:
    Events(storage, "run").record("failed", "x" * 5000)
    (event,) = read_events(storage)
    assert (len(event.text), event.text[-3:]) == (2000, "x …")


def test_of_many_that_tell_at_once_nothing_is_lost(storage: Storage) -> None:
    """Each in an object of its own, as in processes of their own."""
    with ThreadPoolExecutor(3) as executor:
        list(executor.map(lambda number: Events(storage, "run").record("started", str(number)), range(30)))
    found = read_events(storage)
    assert sorted(_texts(found), key=int) == [str(number) for number in range(30)]
    assert {event.id for event in found} == {f"run-{number}" for number in range(30)}


def test_a_damaged_page_costs_itself_alone(storage: Storage) -> None:
    events = Events(storage, "run")
    events.record("started", "one")
    name = event_page("run", 0)
    storage.put(name, storage.get(name)[:-9])
    assert read_events(storage) == []
    events.record("started", "two")
    assert [(event.text, event.id) for event in read_events(storage)] == [("two", f"run-{PAGE}")]


def test_another_version_s_events_are_read_as_far_as_they_are_known(storage: Storage) -> None:
    events = Events(storage, "run")
    events.record("started", "one")
    events.record("started", "two")
    name = event_page("run", 0)
    whole = read_document(storage.get(name), name)["events"]
    for odd in (
        {"ts": "soon"},
        {"level": "party", "new": 1},
        {"text": None, "values": "x"},
        {"table": 5, "kind": "new"},
    ):
        storage.put(name, write_document({"events": [{**whole[0], **odd}, [], None, {}, whole[1]]}))
        found = read_events(storage)
        assert (found[-1].text, found[-1].id) == ("two", "run-4")
        assert len(found) == (1 if "ts" in odd or "values" in odd else 2)
        assert {event.level for event in found} <= {"info", "error"}
        json.dumps([event.to_json() for event in found])


def test_news_are_what_came_since(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wal2lake.changelog.events.PAGE", 4)
    run, capture = Events(storage, "run"), Events(storage, "capture")
    for number in range(3):
        run.record("started", f"old{number}")
    reader, none = EventReader(storage, limit=2), EventReader(storage, limit=0)
    assert (_texts(reader.news()), none.news()) == (["old1", "old2"], [])
    assert reader.news() == []
    for number in range(6):
        run.record("started", f"new{number}")
    capture.record("connected", "other")
    assert _texts(reader.news()) == [*(f"new{number}" for number in range(6)), "other"]
    run.record("started", "last")
    assert _texts(reader.news()) == ["last"]
    assert len(none.news()) == 8


def test_no_room_ends_nothing_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = LocalStorage(tmp_path / "log")
    events, swap = Events(storage, "run"), storage.swap

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage, "swap", full)
    for number in range(3):
        events.record("started", str(number))
    assert sum("cannot be written down" in message for message in caplog.messages) == 1
    monkeypatch.setattr(storage, "swap", swap)
    events.flush()
    assert _texts(read_events(storage)) == ["0", "1", "2"]


def test_what_is_told_is_logged(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Events(storage, "capture").record("schema_changed", "Added.", table="a.b", added=["c"])
    (record,) = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == ("wal2lake.capture", "INFO", "a.b: Added.")
    assert record.wal2lake == {"event": "schema_changed", "table": "a.b", "added": ["c"]}  # type: ignore[attr-defined]


def test_they_go_with_the_log() -> None:
    assert "events" in EVERYTHING


def test_the_documentation_has_every_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \|.*\|.*\|$", page.partition("| kind |")[2].partition("\n\n")[0], re.M)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(KINDS)
