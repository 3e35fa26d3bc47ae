"""The page in a real browser, over a real pipeline: a copy, a table mended by its button, a sabotage that verify finds.

`make test-ui` runs it, and it writes the pictures of docs/ui.md. It takes minutes, and a Chromium: `make test` leaves
it out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from deltalake import DeltaTable
from playwright.sync_api import Browser, Locator, Page, expect

from tests.ui.visits import DESK, PATIENCE_MS, PHONE, Visit, chromium
from tests.waiting import eventually
from wal2lake.demo.workload import Workload
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.ui.server import TOKEN_VARIABLE

pytestmark = [pytest.mark.browser, pytest.mark.server, pytest.mark.spark, pytest.mark.slow]

TOKEN = "a token for the browser's test"
ROWS = 400_000
HEIGHTS_OF_PLOT = """new Set([...document.querySelector('#plot-applied .line').getAttribute('d')
    .matchAll(/ ([0-9.]+)/g)].map((found) => found[1])).size"""
COPY_IS_TOLD = """!document.querySelector('#copying') ||
    /[2-9][0-9] %.* left/s.test(document.querySelector('#copying').textContent)"""
SCHEMA = f"""
CREATE TABLE shop.visits (id bigint PRIMARY KEY, page text, seen timestamptz DEFAULT now());
INSERT INTO shop.visits SELECT i, md5(i::text) FROM generate_series(1, {ROWS}) i;
CREATE TABLE shop.coupons (id int PRIMARY KEY, code text, percent int);
INSERT INTO shop.coupons SELECT i, 'code ' || i, i % 50 FROM generate_series(1, 500) i;
"""
SETTINGS = """
[source]
dsn = "{dsn}"
[log]
path = "log"
[lake]
path = "lake"
[pipeline]
on_unfollowable = "quarantine"
snapshot_chunk_bytes = 500_000
[spark]
spark.master = "local[2,4]"
"""
Run = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(settings={"max_slot_wal_keep_size": "20GB"}) as running:
        running.psql((files("wal2lake.demo") / "schema.sql").read_text() + SCHEMA)
        yield running


@pytest.fixture
def folder(server: EmbeddedPostgres) -> Iterator[Path]:
    """Where a user would call it: its name stands in the pictures."""
    made = Path(tempfile.mkdtemp(prefix="shop-"))
    (made / "wal2lake.toml").write_text(SETTINGS.format(dsn=server.dsn))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def run(folder: Path) -> Iterator[Run]:
    """`wal2lake run --ui`, which ends with the test however that ends."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "wal2lake", "run", "--ui", "--ui-port", "0", "--ui-allow-actions"]
        environment = os.environ | {TOKEN_VARIABLE: TOKEN}
        with (folder / "said").open("ab") as said:
            started.append(subprocess.Popen(command, cwd=folder, stderr=said, env=environment))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(120)


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


def address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """What `run` says; it must not end before."""

    def said() -> str | None:
        text = (folder / "said").read_text()
        assert process.poll() is None, text
        found = re.search(r"http://127\.0\.0\.1:\d+/", text)
        return found[0] if found else None

    return eventually(said, timeout_s=PATIENCE_MS / 1000) or ""


def link(page: Page, name: str) -> Locator:
    return page.get_by_role("link", name=name, exact=True).first


def row_of(page: Page, name: str) -> Locator:
    return page.locator("tr", has=page.get_by_role("link", name=name, exact=True))


def test_the_page_through_copy_quarantine_and_verify(
    server: EmbeddedPostgres, folder: Path, run: Run, browser: Browser
) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    process = run()
    url = address(folder, process)
    desk = Visit(browser, url, DESK, token=TOKEN)
    watch_the_copy(desk)
    workload = Workload(server.dsn, large_every_s=30.0)
    workload.start()
    watch_it_live(desk)
    look_in_the_dark(Visit(browser, url, DESK, "dark", TOKEN))
    mend_a_table_by_its_button(desk, server, folder)
    look_on_a_phone(Visit(browser, url, PHONE, token=TOKEN))
    search_a_table(desk)
    workload.finish()
    find_a_sabotage_by_verify(desk, folder)
    go_by_keyboard(desk)
    process.terminate()
    expect(desk.page.get_by_text("No answer from wal2lake")).to_be_visible()


def watch_the_copy(desk: Visit) -> None:
    """It begins: Spark is started, then the copy is watched while it goes on; nobody loads the page again."""
    expect(desk.page.get_by_text("starting Spark", exact=True)).to_be_visible()
    expect(desk.page.get_by_role("heading", name="Copying")).to_be_visible()
    desk.picture("ui-copy")
    desk.check()
    desk.until(COPY_IS_TOLD)
    if desk.page.locator("#copying").is_visible():  # a copy is over soon on a machine that has nothing else to do
        desk.picture("ui-copy")
    expect(desk.page.get_by_role("heading", name="All is well")).to_be_visible()
    expect(desk.page.locator("#way-lake")).to_contain_text("streaming")


def watch_it_live(desk: Visit) -> None:
    """The plots fill, and focus stays where it is while what is around it changes."""
    desk.go("tables")
    link(desk.page, "shop.orders").focus()
    row = row_of(desk.page, "shop.orders")
    before = row.inner_text()
    eventually(lambda: row.inner_text() != before, timeout_s=PATIENCE_MS / 1000)
    assert desk.page.evaluate("document.activeElement.textContent") == "shop.orders"
    desk.go("")
    desk.until(HEIGHTS_OF_PLOT + " > 9")
    desk.check()
    desk.picture("ui-overview")


def look_in_the_dark(dark: Visit) -> None:
    dark.picture("ui-overview-dark")
    dark.check()
    dark.close()


def mend_a_table_by_its_button(desk: Visit, server: EmbeddedPostgres, folder: Path) -> None:
    """A table is left out, seen at once, and read anew by the keyboard alone."""
    page = desk.page
    server.psql("ALTER TABLE shop.coupons RENAME percent TO discount; INSERT INTO shop.coupons VALUES (501, 'new', 5)")
    expect(page.locator("#verdict")).to_contain_text("shop.coupons is quarantined.")
    desk.picture("ui-finding")
    desk.check()
    link(page, "shop.coupons").click()
    expect(page.locator("#detail")).to_contain_text("What keeps it")
    desk.check()
    page.get_by_role("link", name="Read anew").click()
    desk.picture("ui-ask")
    desk.check()
    button = page.get_by_role("button", name="Read anew")
    eventually(lambda: page.keyboard.press("Tab") or button.evaluate("it => it === document.activeElement"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("Read anew: asked.")).to_be_visible()
    expect(page.locator("#detail .key")).to_contain_text("streaming")
    expect(page.locator("#detail")).to_contain_text("501")
    desk.picture("ui-table")
    assert "discount" in {field.name for field in DeltaTable(folder / "lake" / "shop" / "coupons").schema().fields}


def look_on_a_phone(phone: Visit) -> None:
    phone.picture("ui-phone")
    phone.check()
    for path in ("tables?q=orders", "events", "log", "table?name=shop.visits"):
        phone.go(path)
        phone.check()
    phone.close()


def search_a_table(desk: Visit) -> None:
    """Hundreds would be found so."""
    desk.go("tables")
    box = desk.page.get_by_role("searchbox", name="Name")
    box.fill("coup")
    expect(desk.page.locator("#found")).to_contain_text("1 of ")
    expect(box).to_be_focused()
    for page in ("tables", "events"):
        desk.go(page)
        desk.picture(f"ui-{page}")
        desk.check()


def find_a_sabotage_by_verify(desk: Visit, folder: Path) -> None:
    """A row goes behind everybody's back."""
    page, number = desk.page, 4711
    DeltaTable(folder / "lake" / "shop" / "visits").delete(f"id = {number}")
    desk.go("verify")
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_role("heading", name="Comparing")).to_be_visible()
    desk.check()
    expect(page.get_by_role("heading", name="Not all is equal")).to_be_visible(timeout=2 * PATIENCE_MS)
    row = row_of(page, "shop.visits")
    expect(row).to_contain_text("different")
    lower, upper = re.findall(r"(\d+) ≤ id < (\d+)", row.inner_text())[0]
    assert int(lower) <= number < int(upper)
    desk.picture("ui-verify")
    desk.check()
    desk.go("")
    verdict = page.locator("#verdict")
    expect(verdict).to_contain_text("shop.visits differs from its source")
    desk.check()
    read_anew_what_differs(desk, folder)
    desk.go("log")
    desk.picture("ui-log")
    desk.check()


def read_anew_what_differs(desk: Visit, folder: Path) -> None:
    """The difference stays a finding until the rows are others."""
    page = desk.page
    desk.go("table?name=shop.visits")
    page.get_by_role("link", name="Read anew").click()
    page.get_by_role("button", name="Read anew").click()
    expect(page.get_by_text("Read anew: asked.")).to_be_visible()
    desk.go("")
    expect(page.get_by_role("heading", name="All is well")).to_be_visible()
    assert DeltaTable(folder / "lake" / "shop" / "visits").to_pyarrow_table(columns=["id"]).num_rows == ROWS


def go_by_keyboard(desk: Visit) -> None:
    """The content is one step away."""
    desk.go("")
    desk.page.keyboard.press("Tab")
    expect(desk.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    desk.page.keyboard.press("Enter")
    expect(desk.page.locator("#main")).to_be_focused()
