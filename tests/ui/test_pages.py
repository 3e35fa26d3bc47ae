"""What the pages say, and that a name which somebody chose is text wherever it is shown."""

from __future__ import annotations

import html
import math
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

import pytest

from tests.ui.conftest import Open
from tests.ui.shown import REASON, SLOT, Shown
from wal2lake.changelog.documents import write_document
from wal2lake.changelog.events import Events
from wal2lake.lsn import LSN
from wal2lake.monitor.problem import Problem
from wal2lake.monitor.watch import Sample, Watcher, remembered, wal_kept
from wal2lake.names import qualified
from wal2lake.tables.state import TableState
from wal2lake.tables.table_folder import TableFolder
from wal2lake.ui.plots import HEIGHT, WIDTH, plot
from wal2lake.ui.words import few

NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a'b&amp;c",
    "{{ 7*7 }}",
    "tab\u202ele\x1b[31m",
    "../../etc",
)
BELOW = "https://proxy.example/data/lake/"  # where a proxy may put the page
VOID = {"meta", "link", "img", "input", "br", "hr", "path", "rect"}


class Tree(HTMLParser):
    """Every element that is opened is closed, no id is there twice, and what is referred to is there."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.referred: list[str] = []
        self.words: list[str] = []
        self.unlabelled: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.referred += [value for name, value in attrs if name in ("for", "aria-labelledby") and value]
        if (tag == "img" and "alt" not in found) or (tag in ("progress", "nav") and not found.get("aria-label")):
            self.unlabelled.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def well_formed(text: str) -> str:
    """The page's words, on one line."""
    tree = Tree(text)
    assert not tree.open and not tree.unlabelled
    assert len(set(tree.ids)) == len(tree.ids)
    assert set(tree.referred) <= set(tree.ids)
    return re.sub(r"\s+", " ", " ".join(tree.words))


def test_the_overview_tells_slot_lag_and_what_stands_still(shown: Shown, open_page: Open) -> None:
    shown.slot = replace(SLOT, safe_wal_size=3_000_000_000)
    said = well_formed(open_page(shown).get("/").text)
    for text in ("1 finding", "shop.orders is quarantined.", "8.4 kB of WAL kept", "Slot shown in use", "3.0 GB more",
                 "256 B behind the server", "0.4 s behind the log, 256 B", "5 changes/s", "1.2 kB in 3 segments",
                 "1 quarantined, 1 streaming", "Changes applied per second"):  # fmt: skip
        assert text in said, text


def test_a_server_that_sets_no_limit_and_a_slot_that_is_lost(shown: Shown, open_page: Open) -> None:
    assert "no limit is set" in well_formed(open_page(shown).get("/").text)
    shown.slot = replace(SLOT, wal_status="lost", restart_lsn=None)
    shown.problems = (Problem("slot_lost", "The replication slot shown is lost: `wal2lake check` says why."),)
    text = open_page(shown).get("/").text
    assert "2 findings" in well_formed(text) and "<code>wal2lake check</code> says why" in text


def test_a_start_is_not_yet_well(tmp_path: Path, open_page: Open) -> None:
    shown = Shown(tmp_path)
    shown.say("pipeline", state="starting", doing="starting Spark")
    said = well_formed(open_page(shown).get("/").text)
    assert "Not yet Nothing is wrong, but the lake is not kept up yet: the pipeline is starting Spark." in said
    assert "All is well" not in said


def test_of_many_findings_the_first_are_told(tmp_path: Path, open_page: Open) -> None:
    tables = {f"shop.t{n}": {"state": "quarantined", "reason": "Odd."} for n in range(40)}
    text = open_page(Shown(tmp_path, tables)).get("/").text
    assert "40 findings" in well_formed(text) and "and 28 more: tables , the troubled first" in well_formed(text)
    assert len(re.findall(r"<li>shop\.t\d+ is quarantined\. Odd\.</li>", text)) == 12


def test_before_anything_was_seen(shown: Shown, open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    blind = Watcher(shown.config, read_places=shown.places)
    monkeypatch.setattr(shown, "watcher", lambda: blind)
    said = well_formed(open_page(shown).get("/").text)
    assert "Looking at server, change log and lake" in said and "not seen yet" in said


def test_all_is_well_and_no_pipeline_at_all(tmp_path: Path, open_page: Open) -> None:
    shown = Shown(tmp_path, {"shop.items": {"state": "streaming", "rows": 1200, "behind": False}})
    assert "All is well 1,200 rows of 1 table are in the lake, 0.4 s behind." in well_formed(
        open_page(shown).get("/").text
    )
    for role in ("capture", "pipeline"):
        (tmp_path / "log" / "status" / f"{role}.json").unlink()
    said = well_formed(open_page(shown).get("/").text)
    assert "2 findings Capture is not running" in said


def test_a_pipeline_that_does_not_run_is_not_shown_as_streaming(shown: Shown, open_page: Open) -> None:
    shown.say("pipeline", state="streaming", tables=shown.tables)
    shown.say("pipeline", state="stopped", tables=shown.tables, ts=time.time() - 600)
    page = open_page(shown)
    assert "stopped 10 min ago" in well_formed(page.get("/").text)
    assert "catching up waits for the pipeline" in well_formed(page.get("/table?name=shop.items").text)


def test_a_copy_shows_how_far_it_is(tmp_path: Path, open_page: Open) -> None:
    copied = {"state": "snapshot", "chunks_total": 8, "bytes_total": 8_000_000}
    tables = {"shop.big": {**copied, "chunks_done": 2, "rows_read": 900, "bytes_read": 2_000_000}, "shop.later": copied}
    shown = Shown(tmp_path, tables)
    shown.say("pipeline", state="snapshot", tables=tables, rows_read_per_s=1500.0, bytes_read_per_s=50_000.0)
    page = open_page(shown)
    text = page.get("/").text
    assert "12 % · 900 rows · 1.5 k rows/s · 0 of 2 tables read · about 5 min left" in well_formed(text)
    assert '<progress max="100" value="25.0" aria-label="copied of shop.big">' in text
    assert "2 of 8 chunks read" in well_formed(page.get("/table?name=shop.big").text)


def test_starting_spark_is_said(shown: Shown, open_page: Open) -> None:
    shown.say("pipeline", state="starting", doing="starting Spark")
    assert "Pipeline starting Spark" in well_formed(open_page(shown).get("/").text)


def test_tables_are_searched_and_the_troubled_come_first(tmp_path: Path, open_page: Open) -> None:
    tables = {f"shop.t{n}": {"state": "streaming", "behind": False} for n in range(300)}  # without documents
    tables["shop.zebra"] = {"state": "quarantined", "reason": "Odd."}
    page = open_page(Shown(tmp_path, tables, left_out=("shop.zebra",)))
    said = well_formed(page.get("/tables").text)
    assert "301 tables, the first 200 are shown" in said
    assert said.index("shop.zebra") < said.index("shop.t0") and "shop.t99 " not in said
    found = well_formed(page.get("/tables?q=T29").text)
    assert "11 of 301 tables" in found and "shop.t290" in found and "shop.zebra" not in found
    assert "1 of 301 tables" in well_formed(page.get("/tables?state=quarantined").text)
    assert "No table is so called" in well_formed(page.get("/tables?q=%3Cb%3E").text)


def test_a_table_has_its_page_with_what_keeps_it(shown: Shown, open_page: Open) -> None:
    page = open_page(shown, actions=True)
    text = page.get("/table?name=shop.orders").text
    said = well_formed(text)
    assert (
        "What keeps it A value cannot be held." in said and "Schemas followed 2" in said and "Verified not yet" in said
    )
    assert re.findall(r'href="ask\?name=shop.orders&amp;wish=(\w+)"', text) == ["retry", "resync", "skip"]
    assert re.findall(r"wish=(\w+)", page.get("/table?name=shop.items").text) == ["resync", "skip"]
    assert page.get("/table?name=shop.nobody").status_code == 404
    for wish in ("retry", "resync", "skip"):
        assert "Cancel" in well_formed(page.get(f"/ask?name=shop.orders&wish={wish}").text)


def test_a_document_outlives_what_the_pipeline_told(shown: Shown, open_page: Open) -> None:
    """The status is seconds old, or of a pipeline that is gone; what is durable of a table is not."""
    shown.say("pipeline", state="streaming", tables={"shop.items": shown.tables["shop.items"]})
    said = well_formed(open_page(shown).get("/table?name=shop.orders").text)
    assert "quarantined since 20" in said and REASON.replace("`", " ")[:20] in said


def test_a_name_is_text_wherever_it_is_shown(tmp_path: Path, open_page: Open) -> None:
    """Whoever may create a table chooses it, and what is said of it."""
    names = {name: qualified("shop", name) for name in NAMES}
    tables = {full: {"state": "quarantined", "reason": f"Of {name}."} for name, full in names.items()}
    ranges = {name: [RANGE | {"column": name, "lower": name}] for name in NAMES}
    results = {full: RESULT | {"problem": name, "bad_ranges": ranges[name]} for name, full in names.items()}
    shown = Shown(tmp_path, tables)
    said = write_document({"state": "done", "ts": 1.0, "tables": results})
    (tmp_path / "log" / "status" / "verify.json").write_bytes(said)
    for name, full in names.items():
        Events(shown.config.log.path, "pipeline", "wal2lake").record("quarantined", f"Of {name}.", table=full)
    page = open_page(shown, actions=True)
    for path in ("/", "/tables", "/verify", "/log", "/events"):
        assert_harmless(page.get(path).text, NAMES if path != "/log" else ())
    for name, full in names.items():
        for path in ("/table?name=", "/ask?wish=skip&name=", "/table?name=nobody.", "/tables?q="):
            answer = page.get(f"{path}{quote(full)}")
            assert answer.status_code == (404 if "nobody" in path else 200), path
            assert_harmless(answer.text, () if "q=" in path else (name,))
            sent = re.findall(r'name="name" value="([^"]*)"', answer.text)
            assert list(map(unescape, sent)) == ([full] if "ask" in path else []), "a form that acts on another table"


def assert_harmless(text: str, names: Iterable[str]) -> None:
    """It is well-formed, nothing runs, and ``names`` are there to be read."""
    said = well_formed(text)
    assert "<script>alert" not in text and "<img src=x" not in text and not {"\u202e", "\x1b"} & set(text)
    assert all(qualified(name) in said for name in names)


RANGE = {"column": "id", "lower": 1, "upper": 9, "rows_source": 1, "rows_lake": 0, "columns": []}
RESULT = {"outcome": "different", "ok": False, "lsn": "0/10", "version": 1, "rows_source": 5, "rows_lake": 4}
RESULT |= {"ranges": 2, "bad_ranges": [RANGE], "problem": None, "findings": [], "ts": 1.0, "seconds": 1.0}


def test_verify_shows_what_differs(shown: Shown, open_page: Open) -> None:
    page = open_page(shown)
    file = Path(shown.config.log.path) / "status" / "verify.json"
    assert "Nothing was compared yet" in well_formed(page.get("/verify").text)
    values = RESULT | {"bad_ranges": [RANGE, RANGE | {"lower": None, "columns": ["price"]}]}
    equal = RESULT | {"outcome": "equal", "ok": True, "bad_ranges": []}
    tables = {"shop.aa": equal, "shop.orders": values}
    file.write_bytes(
        write_document({"state": "done", "ts": time.time(), "lsn": "0/10", "seconds": 3.0, "tables": tables})
    )
    said = well_formed(page.get("/verify").text)
    assert "Not all is equal" in said and said.index("shop.orders") < said.index("shop.aa")
    assert "1 ≤ id < 9 1 row in the source, 0 in the lake" in said
    assert "id < 9 1 row in the source, 0 in the lake, differing in price" in said
    assert "different" in well_formed(page.get("/table?name=shop.orders").text)
    file.write_bytes(write_document({"state": "running", "ts": time.time(), "said": "Waiting for the lake."}))
    assert "ended without a result" in well_formed(page.get("/verify").text), "nobody holds its lock"
    file.write_bytes(b"torn")
    assert "Nothing was compared yet" in well_formed(page.get("/verify").text)


def test_events_are_told_newest_first_by_kind_and_table(shown: Shown, open_page: Open) -> None:
    events = Events(shown.config.log.path, "pipeline", "wal2lake")
    events.record("started", "The pipeline started.")
    events.record("quarantined", "A value cannot be held.", level="error", table="shop.orders")
    events.record("batch", "34 changes.")
    page = open_page(shown)
    said = well_formed(page.get("/events").text)
    assert said.index("A value cannot be held.") < said.index("The pipeline started.") and "34 changes." not in said
    assert "34 changes." in well_formed(page.get("/events?kind=batch").text)
    assert page.get("/events?kind=nonsense").status_code == 404
    of_table = well_formed(page.get("/events?table=shop.orders").text)
    assert "A value cannot be held." in of_table and "The pipeline started." not in of_table
    assert "Lately" in well_formed(page.get("/").text)
    assert "What happened to it" in well_formed(page.get("/table?name=shop.orders").text)


def test_the_log_page_tells_who_keeps_it(shown: Shown, open_page: Open) -> None:
    said = well_formed(open_page(shown).get("/log").text)
    assert "Nobody reads it yet" in said and "There is none yet." in said


def test_a_table_whose_document_is_damaged_is_shown_as_that(shown: Shown, open_page: Open) -> None:
    place = TableFolder(Path(shown.config.log.path), "wal2lake", "shop", "items")
    place.write(TableState())
    (document,) = Path(shown.config.log.path).rglob("*items*/state.json")
    document.write_bytes(b"torn")
    page = open_page(shown, actions=True)
    for path in ("/", "/tables", "/table?name=shop.items", "/tables?state=damaged"):
        answer = page.get(path)
        said = well_formed(answer.text)
        assert (answer.status_code, "damaged" in said, "cannot be read" in said) == (200, True, True), path


def test_a_table_that_streams_again_does_not_say_why_it_once_did_not(shown: Shown, open_page: Open) -> None:
    shown.say("pipeline", state="streaming", tables={"shop.items": {"state": "streaming", "reason": "Read anew: why."}})
    assert "why" not in well_formed(open_page(shown).get("/table?name=shop.items").text)


def test_every_page_leads_on_wherever_a_proxy_puts_it(shown: Shown, open_page: Open) -> None:
    """Below a path of its own, which it takes away before it asks: whatever is followed stays there and is found."""
    Events(shown.config.log.path, "pipeline", "wal2lake").record("quarantined", "Odd.", table="shop.orders")
    page = open_page(shown, actions=True)
    seen, left = set[str](), [BELOW]
    while left:
        address = left.pop()
        seen.add(address)
        answer = page.get(f"/{address.removeprefix(BELOW)}")
        assert answer.status_code == 200, address
        if "html" in answer.headers["content-type"]:
            asked = answer.text.replace('<form method="post" action="ask"', "")  # there is nothing without its fields
            found = re.findall(r"""(?:href|src|action)="([^"]*)\"""", asked)
            followed = {urljoin(address, html.unescape(link)).partition("#")[0] for link in found}
            assert all(link.startswith(BELOW) for link in followed), address
            left += sorted(followed - seen - set(left))
    pages = {urlsplit(address).path.rpartition("/")[2] for address in seen}
    assert pages == {"", "tables", "table", "events", "verify", "log", "ask", "icon.svg", "ui.css", "ui.js"}


def test_a_path_below_that_is_no_page_leads_nowhere(shown: Shown, open_page: Open) -> None:
    page = open_page(shown)
    for path in ("/tables/", "/static/nothing.js", "/a/b", "/nothing"):
        answer = page.get(path)
        assert (answer.status_code, "There is no such page." in answer.text) == (404, True), path
        assert ("<nav" in answer.text) == (path == "/nothing"), path


def test_a_log_that_is_damaged_is_a_sentence(shown: Shown, open_page: Open) -> None:
    page = open_page(shown)
    (Path(shown.config.log.path) / "log.json").write_bytes(b"torn")
    answer = page.get("/log")
    assert (answer.status_code, "log.json cannot be read" in well_formed(answer.text)) == (503, True)
    assert page.get("/").status_code == 200


def _sample(ts: float, rate: float, kept: int | None = None, lsn: int | None = None) -> Sample:
    return Sample(ts, rate, 0.0, None, 0, kept, lsn)


def test_a_plot_stays_in_its_box_and_has_a_gap_where_nothing_was_known() -> None:
    history = [_sample(1000 + 2 * n, 40 + 40 * math.sin(n), None if 50 < n < 90 else n) for n in range(200)]
    whole, gap = plot(history, lambda s: s.changes_per_s), plot(history, lambda s: s.wal_kept)
    for one in (whole, gap):
        numbers = [tuple(map(float, pair.split())) for pair in re.findall(r"[\d.]+ [\d.]+", one.line + one.area)]
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in numbers)
    assert (whole.line.count("M"), gap.line.count("M")) == (1, 2)
    assert (whole.top, gap.top, gap.peak, gap.now) == (100, 200, 199, 199)
    empty = plot([], lambda s: s.lag_s)
    assert (empty.line, empty.area, empty.peak) == ("", "", None)
    assert plot([_sample(1.0, 0.0)], lambda s: s.changes_per_s).top == 1


def test_what_was_applied_before_anybody_looked_is_remembered(shown: Shown) -> None:
    assert remembered(shown.config) == []
    events = Events(shown.config.log.path, "pipeline", "wal2lake")
    for changes in (300, 700):
        events.record("batch", "Some.", changes=changes)
    [sample] = remembered(shown.config)
    assert (sample.changes_per_s, sample.lag_s, sample.wal_kept) == (100.0, None, None)
    assert Watcher(shown.config, read_places=shown.places).look.history[0] == sample


def test_wal_kept_and_the_time_until_the_slot_is_lost() -> None:
    now = time.time()
    history = [_sample(now - 100 + n, 0.0, lsn=1_000_000 + 500 * n) for n in range(101)]
    found = wal_kept(replace(SLOT, safe_wal_size=50_000), LSN(0x9000), history)
    assert found is not None
    assert (found.kept, found.safe, round(found.per_s), round(found.left_s or 0)) == (0x8000, 50_000, 500, 100)
    still = wal_kept(SLOT, LSN(0x9000), history[:1])
    assert still is not None and (still.safe, still.left_s) == (None, None)
    assert wal_kept(None, LSN(0x9000), history) is None and wal_kept(SLOT, None, history) is None


def test_figures_have_the_digits_that_matter() -> None:
    assert [few(n) for n in (0, 0.44, 7, 12.34, 999, 12_345, 1_000_000, 4_260_000)] == [
        "0", "0.4", "7", "12.3", "999", "12.3 k", "1 M", "4.3 M"]  # fmt: skip
