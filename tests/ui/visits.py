"""A window on the page, in a real browser: what it asked for, what went wrong in it, and its pictures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.waiting import eventually

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
PATIENCE_MS = 300_000.0  # a busy machine is no failure
DESK, PHONE = {"width": 1200, "height": 800}, {"width": 390, "height": 844}
_CHECKED = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """The distribution's."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    assert path, "install chromium from your distribution"
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        yield playwright.chromium.launch(executable_path=path, args=options)


class Visit:
    """Whatever goes wrong in the page is kept, and all that it asked for."""

    def __init__(self, browser: Browser, url: str, size: Any, scheme: Any = "light", token: str = "") -> None:
        self.url = url
        self.wrong: list[str] = []
        self.asked: list[str] = []
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda line: line.type == "error" and self.wrong.append(line.text))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"{url}?token={token.replace(' ', '%20')}" if token else url)

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
        found = Axe().run(self.page, options={"runOnly": _CHECKED})
        assert not found.response["violations"], found.generate_report()
        width = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 0, f"{self.page.url} is {width} pixels too wide"
        assert not self.wrong
        assert all(url.startswith(self.url) for url in self.asked), "nothing comes from elsewhere"

    def close(self) -> None:
        self.page.context.close()
