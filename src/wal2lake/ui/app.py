"""The pages: each is a look at what the watcher saw last, rendered here; the few that act are at the end.

The rule: a page asks neither server nor lake (the watcher does), and what it does is what a command of the same name
does, by the same function. What goes wrong is a page with the sentence that a command would have said. All pages lie
side by side and lead to each other by relative addresses, so a proxy may put them below any path.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, cast, get_args
from urllib.parse import quote

from jinja2 import Environment
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from wal2lake.changelog.events import KINDS, Event, read_events
from wal2lake.changelog.requests import Wish
from wal2lake.config import Config
from wal2lake.errors import ConfigError, Wal2LakeError
from wal2lake.monitor.summary import count_states, totals
from wal2lake.monitor.verified import read_verified
from wal2lake.monitor.watch import Look, Watcher
from wal2lake.tables.asking import ask
from wal2lake.ui.guard import Access, Guard, read_form
from wal2lake.ui.model import Documents, Row, table_rows
from wal2lake.ui.plots import HEIGHT, WIDTH, plot
from wal2lake.ui.verifier import Verifier
from wal2lake.ui.words import FOLDER, environment

_BUSIEST = 8  # tables on the overview
_MOST_PROBLEMS = 12
_MOST_ROWS = 200  # on the page of tables
_LATELY, _MOST_EVENTS = 5, 200
_WISHES: tuple[Wish, ...] = get_args(Wish)
_logger = logging.getLogger(__name__)


def build_app(
    config: Config, watcher: Watcher, verifier: Verifier, access: Access, cookie: str = "wal2lake_ui"
) -> ASGIApp:
    """The whole application, behind its guard."""
    pages = Pages(config, watcher, verifier, access)
    routes = [
        Route("/", pages.overview),
        Route("/tables", pages.tables),
        Route("/table", pages.table),
        Route("/verify", pages.verify),
        Route("/verify", pages.start_verify, methods=["POST"]),
        Route("/log", pages.log),
        Route("/events", pages.events),
        Route("/ask", pages.confirm),
        Route("/ask", pages.ask, methods=["POST"]),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]
    handlers = {Wal2LakeError: pages.failed, HTTPException: pages.refused}
    app = Starlette(routes=routes, exception_handlers=cast(Any, handlers))
    app.router.redirect_slashes = False  # to an address that is whole, and so without a proxy's path
    return Guard(app, access, cookie)


class Pages:
    """One method a page."""

    def __init__(self, config: Config, watcher: Watcher, verifier: Verifier, access: Access) -> None:
        self._config = config
        self._watcher = watcher
        self._access = access
        self._documents = Documents(config)
        self._verifier = verifier
        self._templates: Environment = environment()

    # -- looking

    def overview(self, request: Request) -> Response:
        look = self._watcher.look
        rows = table_rows(look, self._documents)
        history = look.history
        return self._page(
            "overview.html",
            look,
            rows=[row for row in rows if row.troubled or row.tone == "busy" or row.progress.changes_per_s][:_BUSIEST]
            or rows[:_BUSIEST],
            tables=len(rows),
            states=count_states(row.progress for row in rows),
            totals=totals(look.status.progress),
            applied=plot(history, lambda sample: sample.changes_per_s),
            lag=plot(history, lambda sample: sample.lag_s),
            kept=plot(history, lambda sample: sample.wal_kept),
            plot_size=(WIDTH, HEIGHT),
            events=self._newest_events(_LATELY),
            most_problems=_MOST_PROBLEMS,
        )

    def tables(self, request: Request) -> Response:
        look = self._watcher.look
        rows = table_rows(look, self._documents)
        searched, state = request.query_params.get("q", "").strip(), request.query_params.get("state", "")
        found = [row for row in rows if searched.lower() in row.name.lower() and state in ("", row.state)]
        return self._page(
            "tables.html",
            look,
            rows=found[:_MOST_ROWS],
            found=len(found),
            tables=len(rows),
            searched=searched,
            state=state,
            states=count_states(row.progress for row in rows),
        )

    def table(self, request: Request) -> Response:
        look, row = self._row(request.query_params.get("name", ""))
        verified = read_verified(self._config.log.path)
        return self._page(
            "table.html",
            look,
            row=row,
            asked=request.query_params.get("asked"),
            verified=verified.tables.get(row.name) if verified else None,
            events=self._newest_events(_LATELY, table=row.name),
        )

    def verify(self, request: Request) -> Response:
        verified, running = read_verified(self._config.log.path), self._verifier.running
        return self._page(
            "verify.html",
            self._watcher.look,
            verified=verified,
            running=running or (verified is not None and verified.state == "running"),
            failure=self._verifier.failure,
            results=_worst_first(verified.tables) if verified else [],
        )

    def log(self, request: Request) -> Response:
        return self._page("log.html", self._watcher.look, log=self._documents.log())

    def events(self, request: Request) -> Response:
        kind, table = request.query_params.get("kind", ""), request.query_params.get("table", "")
        if kind and kind not in KINDS:
            raise HTTPException(404, "There is no such kind of event. There are " + ", ".join(KINDS) + ".")
        kinds = {kind} if kind else set(KINDS) - {"batch"}
        found = self._newest_events(_MOST_EVENTS, kinds, table or None)
        return self._page(
            "events.html", self._watcher.look, events=found, kind=kind, table=table, kinds=KINDS, most=_MOST_EVENTS
        )

    def _newest_events(self, most: int, kinds: Collection[str] | None = None, table: str | None = None) -> list[Event]:
        """The newest first; batches only where they are asked for."""
        chosen = set(KINDS) - {"batch"} if kinds is None else kinds
        place, pipeline = self._config.log.path, self._config.pipeline.name
        return read_events(place, limit=most, pipeline=pipeline, kinds=chosen, table=table)[::-1]

    # -- acting

    def confirm(self, request: Request) -> Response:
        look, row = self._row(request.query_params.get("name", ""))
        wish = _wish(request.query_params.get("wish", ""))
        return self._page("ask.html", look, row=row, wish=wish)

    async def ask(self, request: Request) -> Response:
        form = await read_form(request, self._access)
        if form is None:
            return self._stale()
        return await run_in_threadpool(self._ask, form)

    def _ask(self, form: dict[str, str]) -> Response:
        wish, name = _wish(form.get("wish", "")), form.get("name", "")
        ask(self._config, [name], wish)
        _logger.info("%s is asked of %s on the page.", wish, name)
        self._documents.forget()
        return RedirectResponse(f"./table?name={quote(name, safe='')}&asked={wish}", 303)

    async def start_verify(self, request: Request) -> Response:
        if await read_form(request, self._access) is None:
            return self._stale()
        await run_in_threadpool(self._verifier.start)
        return RedirectResponse("./verify", 303)

    # -- what goes wrong

    async def failed(self, request: Request, error: Exception) -> Response:
        """A sentence that any command would have said."""
        return await run_in_threadpool(self._problem, str(error), 409 if isinstance(error, ConfigError) else 503)

    async def refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = "There is no such page." if error.detail == "Not Found" else error.detail
        if request.url.path.count("/") > 1:  # a page leads to no other from there
            return PlainTextResponse(text, error.status_code)
        return await run_in_threadpool(self._problem, text, error.status_code)

    def _stale(self) -> Response:
        return self._problem("This form is of a page that was loaded before a restart: load it again.", 403)

    def _problem(self, text: str, code: int) -> Response:
        return self._page("problem.html", self._watcher.look, code, text=text)

    def _row(self, name: str) -> tuple[Look, Row]:
        look = self._watcher.look
        row = next((row for row in table_rows(look, self._documents) if row.name == name), None)
        if row is None:
            raise HTTPException(404, f"The pipeline knows no table {name}.")
        return look, row

    def _page(self, template: str, look: Look, code: int = 200, **values: Any) -> Response:
        common = {
            "look": look,
            "status": look.status,
            "progress": look.status.progress,
            "config": self._config,
            "access": self._access,
            "wishes": _WISHES,
        }
        return HTMLResponse(self._templates.get_template(template).render(**common, **values), code)


def _wish(text: str) -> Wish:
    if text not in _WISHES:
        raise HTTPException(404, "Of a table one may want: " + ", ".join(_WISHES) + ".")
    return text


def _worst_first(results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    return sorted(results.items(), key=lambda item: (item[1]["ok"], item[0]))
