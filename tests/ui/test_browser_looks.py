"""What a real browser makes of pages that no short pipeline shows: hundreds of tables, names that are long or meant to
harm, many findings, nothing at all; narrow and wide, light and dark. `make test-ui` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.shown import Shown
from tests.ui.test_pages import NAMES
from tests.ui.visits import DESK, PHONE, Visit, chromium
from wal2lake.changelog.events import Events
from wal2lake.names import qualified
from wal2lake.ui.server import TOKEN_VARIABLE, Server, UiOptions

pytestmark = pytest.mark.browser

PAGES = ("", "tables", "events", "verify", "log")
LONG = qualified("s" * 63, "a_name_without_any_end_" * 2 + "x" * 17)
WHY = "The column " + "price_" * 10 + " holds a value of which `numeric` knows nothing. " * 4
SMALL = {"width": 320, "height": 600}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def crowded(folder: Path) -> Shown:
    """Tables, of which some are in trouble, copied, or called what nobody should be called."""
    streaming = {"state": "streaming", "rows": 1_234_567_890, "changes": 9, "changes_per_s": 12_345.6}
    copied = {"state": "snapshot", "chunks_total": 800, "chunks_done": 3, "bytes_total": 10**12, "bytes_read": 10**11}
    tables = {f"shop.t{n}": streaming for n in range(40)} | {"shop.copied": copied}
    odd = [LONG, *(qualified("shop", name) for name in NAMES)]
    tables |= {name: {"state": "quarantined", "reason": WHY} for name in odd}
    shown = Shown(folder, tables)
    events = Events(shown.config.log.path, "pipeline", "wal2lake")
    for name in odd:
        events.record("quarantined", WHY, level="error", table=name)
    return shown


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE, SMALL], ids=["desk", "phone", "small"])
def test_many_tables_and_long_names_fit(tmp_path: Path, browser: Browser, size: dict[str, int], scheme: str) -> None:
    with Server(crowded(tmp_path).config, UiOptions()) as page:
        visit = Visit(browser, page.url, size, scheme)
        for path in (*PAGES, f"table?name={quote(LONG)}", f"ask?wish=skip&name={quote(LONG)}"):
            visit.go(path)
            visit.check()
        visit.close()


@pytest.mark.parametrize("size", [DESK, SMALL], ids=["desk", "small"])
def test_a_pipeline_that_never_ran_has_pages(tmp_path: Path, browser: Browser, size: dict[str, int]) -> None:
    """No log, and no server that answers."""
    config = Shown(tmp_path / "elsewhere").config
    config = replace(config, log=replace(config.log, path=str(tmp_path / "none")))
    with Server(config, UiOptions()) as page:
        visit = Visit(browser, page.url, size)
        expect(visit.page.locator("#verdict")).to_contain_text("finding")
        for path in ("", "tables", "events", "verify"):
            visit.go(path)
            visit.check()
        visit.close()


def test_nothing_of_a_name_runs(tmp_path: Path, browser: Browser) -> None:
    """A page that is kept up to date shows them again and again."""
    with Server(crowded(tmp_path).config, UiOptions()) as page:
        visit = Visit(browser, page.url, DESK)
        visit.page.on("dialog", lambda dialog: visit.wrong.append(dialog.message))
        for path in ("tables?state=quarantined", "events"):
            visit.go(path)
            with visit.page.expect_response(lambda answer: True):  # asked for again by its own script
                pass
            expect(visit.page.get_by_text("<script>alert(1)</script>").first).to_be_visible()
            visit.check()
        visit.close()
