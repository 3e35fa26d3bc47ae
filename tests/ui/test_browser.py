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
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from deltalake import DeltaTable
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.waiting import eventually
from wal2lake.demo.workload import Workload
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.ui.server import TOKEN_VARIABLE

pytestmark = [pytest.mark.browser, pytest.mark.server, pytest.mark.spark, pytest.mark.slow]

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
TOKEN = "a token for the browser's test"
PATIENCE_MS = 300_000.0  # a busy machine is no failure
DESK, PHONE = {"width": 1200, "height": 800}, {"width": 390, "height": 844}
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
def run(folder: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
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
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    assert path, "install chromium from your distribution"
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        yield playwright.chromium.launch(executable_path=path, args=options)


class Visit:
    """A window on the page; all that it asked for, and whatever went wrong in it, is kept."""

    def __init__(self, browser: Browser, url: str, size: Any, scheme: Any = "light") -> None:
        self.url = url
        self.wrong: list[str] = []
        self.asked: list[str] = []
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda line: line.type == "error" and self.wrong.append(line.text))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"{url}?token={TOKEN.replace(' ', '%20')}")

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def until(self, condition: str) -> None:
        """Wait for what JavaScript says. The page's own policy keeps Playwright from waiting inside of it."""
        eventually(lambda: self.page.evaluate(condition), timeout_s=PATIENCE_MS / 1000)

    def picture(self, name: str) -> None:
        PICTURES.mkdir(exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)

    def check(self) -> None:
        """What axe says somebody with a screen reader, or weak eyes, would stumble over; and all that went wrong."""
        found = Axe().run(self.page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]})
        assert not found.response["violations"], found.generate_report()
        width = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 0, f"{self.page.url} is {width} pixels too wide"
        assert not self.wrong
        assert all(url.startswith(self.url) for url in self.asked), "nothing comes from elsewhere"


def address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    while process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+/", (folder / "said").read_text()):
            return found[0]
    raise AssertionError((folder / "said").read_text())


def test_the_page_through_copy_quarantine_and_verify(
    server: EmbeddedPostgres, folder: Path, run: Callable[[], subprocess.Popen[bytes]], browser: Browser
) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    process = run()
    url = address(folder, process)
    desk = Visit(browser, url, DESK)
    page = desk.page

    # It begins: Spark is started, then the copy is watched while it goes on, without anybody loading the page again.
    expect(page.get_by_text("starting Spark")).to_be_visible()
    expect(page.get_by_role("heading", name="Copying")).to_be_visible()
    desk.check()
    desk.picture("ui-copy")
    desk.until(COPY_IS_TOLD)
    if page.locator("#copying").is_visible():  # a copy is over soon on a machine that has nothing else to do
        desk.picture("ui-copy")
    expect(page.get_by_role("heading", name="All is well")).to_be_visible()
    expect(page.locator("#way-lake")).to_contain_text("streaming")

    # It lives: the plots fill, focus stays where it is while they do.
    workload = Workload(server.dsn, large_every_s=30.0)
    workload.start()
    desk.go("tables")
    page.get_by_role("link", name="shop.orders", exact=True).focus()
    row = page.locator("tr", has=page.get_by_role("link", name="shop.orders", exact=True))
    before = row.inner_text()
    eventually(lambda: row.inner_text() != before, timeout_s=PATIENCE_MS / 1000)
    assert page.evaluate("document.activeElement.textContent") == "shop.orders"
    desk.go("")
    desk.until(HEIGHTS_OF_PLOT + " > 9")
    desk.check()
    desk.picture("ui-overview")
    dark = Visit(browser, url, DESK, "dark")
    dark.picture("ui-overview-dark")
    dark.check()
    dark.page.close()

    # A table is left out, seen at once, and mended by its button.
    server.psql("ALTER TABLE shop.coupons RENAME percent TO discount; INSERT INTO shop.coupons VALUES (501, 'new', 5)")
    expect(page.locator("#verdict")).to_contain_text("shop.coupons is quarantined.")
    desk.picture("ui-finding")
    desk.check()
    page.get_by_role("link", name="shop.coupons", exact=True).first.click()
    expect(page.locator("#detail")).to_contain_text("What keeps it")
    desk.check()
    page.get_by_role("link", name="Read anew").click()
    desk.picture("ui-ask")
    desk.check()
    page.keyboard.press("Tab")  # by keyboard alone from here
    page.get_by_role("button", name="Read anew").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Read anew: asked.")).to_be_visible()
    expect(page.locator("#detail .key")).to_contain_text("streaming")
    expect(page.locator("#detail")).to_contain_text("501")
    desk.picture("ui-table")
    assert "discount" in {field.name for field in DeltaTable(folder / "lake" / "shop" / "coupons").schema().fields}

    # Hundreds would be searched as these are; on a phone, too.
    phone = Visit(browser, url, PHONE)
    phone.picture("ui-phone")
    for path in ("tables?q=orders", "events", "log", "table?name=shop.visits"):
        phone.go(path)
        phone.check()
    phone.page.close()
    desk.go("tables")
    page.get_by_role("searchbox", name="Name").fill("coup")
    expect(page.locator("#found")).to_contain_text("1 of ")
    expect(page.get_by_role("searchbox", name="Name")).to_be_focused()
    desk.go("tables")
    desk.picture("ui-tables")
    desk.go("events")
    desk.picture("ui-events")
    desk.check()

    # A row goes behind everybody's back, and verify finds it.
    workload.finish()
    DeltaTable(folder / "lake" / "shop" / "visits").delete("id = 4711")
    desk.go("verify")
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_role("heading", name="Comparing")).to_be_visible()
    desk.check()
    expect(page.get_by_role("heading", name="Not all is equal")).to_be_visible(timeout=2 * PATIENCE_MS)
    row = page.locator("tr", has=page.get_by_role("link", name="shop.visits", exact=True))
    expect(row).to_contain_text("different")
    lower, upper = re.findall(r"(\d+) ≤ id < (\d+)", row.inner_text())[0]
    assert int(lower) <= 4711 < int(upper)
    desk.picture("ui-verify")
    desk.check()
    desk.go("log")
    desk.picture("ui-log")
    desk.check()

    # By keyboard, the content is one step away; and a page whose server is gone says so.
    desk.go("")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    process.terminate()
    expect(page.get_by_text("No answer from wal2lake")).to_be_visible()
