"""Findings that last are told to somebody: to a command, on its standard input, or to a URL.

The rule: what is told is one JSON object, of what began, still lasts or is over since the last time; a finding counts
as told when its hearer has taken it (exit code 0, or an HTTP status of 2xx), and is tried again until then. Neither
URL, header nor the command's words are ever logged: they may hold credentials. Nothing is in any argument list but
what the settings put there.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, Any, Final
from urllib.parse import urlsplit

from wal2lake.config import Config, MonitorConfig
from wal2lake.monitor.problem import Problem
from wal2lake.retry import Backoff

_URL_S: Final = 10.0
COMMAND_S: Final = 30.0
_PAUSES_S: Final = (10.0, 300.0)  # before what was not taken is told again
_SUMMED_UP: Final = 5  # findings in the summary
_logger = logging.getLogger("wal2lake.alerts")


class UndeliveredError(Exception):
    """The hearer has not taken it, for the reason in the message, which names no credential."""


Deliver = Callable[[bytes], None]


@dataclass
class _Known:
    """A finding: as what it was seen last, since when, and when it was told, if it was."""

    problem: Problem
    since: float
    told: float | None = None


class Alerts:
    """``see`` is called with each look's findings, by one thread. ``failure``: why nobody takes what is told, if so."""

    def __init__(
        self, config: Config, deliver: Sequence[Deliver] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        settings = config.monitor
        self._after, self._repeat = settings.alert_after_seconds, settings.alert_repeat_seconds
        self._about = {"pipeline": config.pipeline.name, "slot": config.source.slot}
        self._hearers = [
            _Hearer(self._after, self._repeat, self._about, own) for own in (deliver or deliveries(settings))
        ]
        self._clock = clock

    @property
    def failure(self) -> str | None:
        return next((hearer.failure for hearer in self._hearers if hearer.failure), None)

    def see(self, problems: Sequence[Problem], *, at_once: bool = False) -> None:
        """Tell what is due; ``at_once``: there will be no later."""
        for hearer in self._hearers:
            hearer.see(problems, self._clock(), at_once)


class _Hearer:
    """One who is told; another's deafness is not theirs."""

    def __init__(self, after: float, repeat: float, about: Mapping[str, str], deliver: Deliver) -> None:
        self._after, self._repeat, self._about, self._deliver = after, repeat, about, deliver
        self._known: dict[tuple[str, str], _Known] = {}
        self._backoff = Backoff(*_PAUSES_S)
        self._due = 0.0
        self.failure: str | None = None

    def see(self, problems: Sequence[Problem], now: float, at_once: bool) -> None:
        present = {problem.key: problem for problem in problems}
        for key, problem in present.items():
            self._known.setdefault(key, _Known(problem, now)).problem = problem
        over = [known for key, known in self._known.items() if key not in present]
        firing = [known for key, known in self._known.items() if key in present and self._is_due(known, now, at_once)]
        resolved = [known for known in over if known.told is not None]
        if (firing or resolved) and (at_once or now >= self._due):
            self._tell(firing, resolved, now)
        kept = {key for key, known in self._known.items() if known.told is not None}  # until it is told that it is over
        self._known = {key: known for key, known in self._known.items() if key in present or key in kept}

    def _is_due(self, known: _Known, now: float, at_once: bool) -> bool:
        if known.told is None:
            return at_once or now - known.since >= self._after
        return now - known.told >= self._repeat

    def _tell(self, firing: Sequence[_Known], resolved: Sequence[_Known], now: float) -> None:
        try:
            self._deliver(json.dumps(_document(self._about, firing, resolved)).encode())
        except UndeliveredError as error:
            pause_s = self._backoff.pause_s()
            if self.failure is None:
                _logger.warning("%s It is tried again.", error)
            self.failure, self._due = str(error), now + pause_s
            return
        self.failure, self._due = None, 0.0
        self._backoff.reset()
        for known in firing:
            known.told = now
        for known in resolved:
            known.told = None


def _document(about: Mapping[str, str], firing: Sequence[_Known], resolved: Sequence[_Known]) -> dict[str, Any]:
    said = [known.problem for known in firing] + [f"Over: {known.problem}" for known in resolved]
    more = f" … and {len(said) - _SUMMED_UP} more" if len(said) > _SUMMED_UP else ""
    alerts = [
        {
            "status": status,
            "kind": known.problem.kind,
            "table": known.problem.table or None,
            "text": str(known.problem),
            "since": known.since,
        }
        for status, group in (("firing", firing), ("resolved", resolved))
        for known in group
    ]
    status = "firing" if firing else "resolved"
    text = f"wal2lake {about['pipeline']}: {' '.join(map(str, said[:_SUMMED_UP]))}{more}"
    return {**about, "status": status, "text": text, "alerts": alerts}


# -- the two ways


def deliveries(settings: MonitorConfig) -> list[Deliver]:
    """Those that the settings name."""
    found: list[Deliver] = []
    if settings.alert_command:
        found.append(lambda body: run_command(shlex.split(settings.alert_command), body))
    if settings.alert_url:
        found.append(lambda body: post(settings.alert_url, settings.alert_authorization, body))
    return found


def run_command(words: Sequence[str], body: bytes) -> None:
    """Start ``words`` with ``body`` on standard input; raises UndeliveredError unless it ends well, and in time.

    Its output goes nowhere. One that is late is killed, with all that it has started.
    """
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise UndeliveredError(f"monitor.alert_command cannot be started: {error.strerror}.") from None
    try:
        process.communicate(body, COMMAND_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise UndeliveredError(f"monitor.alert_command did not end within {COMMAND_S:g} s.") from None
    if process.returncode:
        raise UndeliveredError(f"monitor.alert_command ended with exit code {process.returncode}.")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A header with credentials goes to whom it is for, and to nobody that they name."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


def post(url: str, authorization: str, body: bytes) -> None:
    """POST ``body`` as JSON; raises UndeliveredError unless the answer is 2xx. Redirects are not followed."""
    headers = {"Content-Type": "application/json", "User-Agent": "wal2lake"}
    if authorization:
        headers["Authorization"] = authorization
    host = urlsplit(url).hostname
    try:
        request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - http(s) alone, see config.py
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_URL_S) as response:
            response.read(1)
    except urllib.error.HTTPError as error:
        error.close()
        raise UndeliveredError(f"monitor.alert_url: {host} answers with HTTP status {error.code}.") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        why = reason.strerror if isinstance(reason, OSError) and reason.strerror else type(reason).__name__
        raise UndeliveredError(f"monitor.alert_url: {host} cannot be reached: {why}.") from None
