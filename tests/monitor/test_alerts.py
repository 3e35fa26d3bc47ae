"""Findings that last are told once, again now and then, and when they are over; who is told may be deaf for a while."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import eventually
from wal2lake.changelog.events import read_events
from wal2lake.config import Config, LakeConfig, LogConfig, MonitorConfig, SourceConfig
from wal2lake.errors import ConfigError
from wal2lake.monitor import alerts as module
from wal2lake.monitor.alerts import Alerts, UndeliveredError, run_command
from wal2lake.monitor.problem import Problem
from wal2lake.run.monitoring import monitoring
from wal2lake.run.supervisor import ChildFailedError

SECRET = "hush-4711"
BEHIND, TABLE = (
    Problem("behind", "The lake is 11 min behind."),
    Problem("table_quarantined", "a.b is quarantined.", "a.b"),
)


class Hook:
    """An HTTP server that takes what is told, or answers as ``status`` says."""

    def __init__(self) -> None:
        self.status = 200
        self.told: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.headers.append(dict(self.headers))
                if hook.status == 200:
                    hook.told.append(json.loads(body))
                self.send_response(hook.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not here."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/{SECRET}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _config(**monitor: Any) -> Config:
    return Config(monitor=MonitorConfig(**{"alert_after_seconds": 60.0, "alert_repeat_seconds": 1000.0, **monitor}))


def _alerts(hook: Hook, clock: Clock) -> Alerts:
    return Alerts(_config(alert_url=hook.url, alert_authorization=f"Bearer {SECRET}"), clock=clock)


def _summary(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(alert["status"], alert["kind"]) for alert in told["alerts"]]


def test_a_finding_is_told_when_it_lasts_again_and_when_it_is_over(hook: Hook, clock: Clock) -> None:
    alerts = _alerts(hook, clock)
    for clock.now in (1000.0, 1059.0):
        alerts.see([BEHIND])
    assert hook.told == []
    clock.now = 1060.0
    later = Problem("behind", "The lake is 12 min behind.")
    alerts.see([later, TABLE])
    (first,) = hook.told
    assert (first["status"], first["pipeline"], first["slot"]) == ("firing", "wal2lake", "wal2lake")
    assert first["text"] == "wal2lake wal2lake: The lake is 12 min behind."
    assert first["alerts"] == [
        {"status": "firing", "kind": "behind", "table": None, "text": str(later), "since": 1000.0}
    ]
    assert hook.headers[0]["Authorization"] == f"Bearer {SECRET}"
    for clock.now in (1061.0, 1120.0, 1121.0, 2059.0):
        alerts.see([later, TABLE])
    assert [_summary(told) for told in hook.told[1:]] == [[("firing", "table_quarantined")]]
    assert hook.told[1]["alerts"][0]["table"] == "a.b"
    clock.now = 2060.0
    alerts.see([later])
    assert _summary(hook.told[2]) == [("firing", "behind"), ("resolved", "table_quarantined")]
    clock.now = 2061.0
    alerts.see([])
    alerts.see([])
    assert [_summary(told) for told in hook.told[3:]] == [[("resolved", "behind")]]
    assert (hook.told[3]["status"], "Over: The lake is 12 min" in hook.told[3]["text"]) == ("resolved", True)


def test_what_did_not_last_is_not_told(hook: Hook, clock: Clock) -> None:
    alerts = _alerts(hook, clock)
    for clock.now, problems in ((1000.0, [BEHIND]), (1059.0, []), (1100.0, [BEHIND]), (1159.0, [BEHIND])):
        alerts.see(problems)
    assert hook.told == []


@pytest.mark.parametrize("status", [500, 401, 302])
def test_who_does_not_take_it_is_told_again(
    hook: Hook, clock: Clock, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A redirect is not followed: it may lead anywhere, and the header is a credential."""
    alerts = _alerts(hook, clock)
    hook.status = status
    with caplog.at_level(logging.DEBUG):
        for clock.now in (1000.0, 1060.0, 1065.0, 1071.0):
            alerts.see([BEHIND])
    assert len(hook.headers) == 2
    assert alerts.failure == f"monitor.alert_url: 127.0.0.1 answers with HTTP status {status}."
    assert len(caplog.messages) == 1
    assert SECRET not in caplog.text
    hook.status, clock.now = 200, 1100.0
    alerts.see([BEHIND])
    assert (_summary(hook.told[0]), alerts.failure) == ([("firing", "behind")], None)


def test_that_it_is_over_is_told_to_who_was_deaf_when_it_was(hook: Hook, clock: Clock) -> None:
    alerts = _alerts(hook, clock)
    for clock.now in (1000.0, 1060.0):
        alerts.see([BEHIND])
    hook.status, clock.now = 500, 1070.0
    alerts.see([])
    hook.status, clock.now = 200, 1300.0
    alerts.see([])
    assert [_summary(told) for told in hook.told] == [[("firing", "behind")], [("resolved", "behind")]]


def test_nobody_there(clock: Clock) -> None:
    alerts = Alerts(_config(alert_url=f"http://127.0.0.1:1/{SECRET}", alert_after_seconds=0.0), clock=clock)
    alerts.see([BEHIND])
    assert alerts.failure == "monitor.alert_url: 127.0.0.1 cannot be reached: Connection refused."


def test_many_findings_are_one_telling(hook: Hook, clock: Clock) -> None:
    alerts = _alerts(hook, clock)
    tables = [Problem("table_quarantined", f"t{number} is quarantined.", f"t{number}") for number in range(300)]
    for clock.now in (1000.0, 1060.0):
        alerts.see(tables)
    (told,) = hook.told
    assert len(told["alerts"]) == 300
    assert told["text"].endswith("t4 is quarantined. … and 295 more")


# -- a command


def test_a_command_gets_it_on_standard_input(tmp_path: Path, clock: Clock) -> None:
    """Its words are the setting's, and no shell sees them."""
    script = tmp_path / "hook"
    script.write_text("#!/bin/sh\ncat >\"$1\"\ntr '\\0' ' ' </proc/$$/cmdline >\"$1.argv\"\n")
    script.chmod(0o700)
    settings = {"alert_command": f"{script} '{tmp_path}/$(told)'", "alert_after_seconds": 0.0}
    Alerts(_config(**settings), clock=clock).see([TABLE])
    assert json.loads((tmp_path / "$(told)").read_text())["alerts"][0]["table"] == "a.b"
    assert "quarantined" not in (tmp_path / "$(told).argv").read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["false"], "ended with exit code 1"),
        (["/nowhere/hook", SECRET], "cannot be started: No such file or directory"),
        (["sh", "-c", "sleep 60 & sleep 60"], "did not end within"),
    ],
)
def test_a_command_that_fails(words: list[str], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMAND_S", 0.2)
    with pytest.raises(UndeliveredError, match=reason) as raised:
        run_command(words, b"{}")
    assert SECRET not in str(raised.value)


def test_one_who_is_deaf_keeps_nothing_from_another(hook: Hook, clock: Clock) -> None:
    alerts = Alerts(_config(alert_command="false", alert_url=hook.url, alert_after_seconds=0.0), clock=clock)
    alerts.see([BEHIND])
    alerts.see([BEHIND])
    assert len(hook.told) == 1
    assert alerts.failure == "monitor.alert_command ended with exit code 1."


# -- settings, and all of it


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"alert_url": "ftp://x/y"}, "no http or https URL"),
        ({"alert_url": f"https://me:{SECRET}@x/y"}, "credentials in front of the host"),
        ({"alert_url": "http://[x"}, "no http or https URL"),
        ({"alert_authorization": f"Bearer {SECRET}\r\nX: y"}, "more than one line"),
        ({"alert_command": f"mail '{SECRET}"}, "cannot be split into words"),
        ({"alert_repeat_seconds": 0.0}, "alert_repeat_seconds must be greater than 0"),
        ({"metrics_port": 70_000}, "metrics_port must be a port"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error) as raised:
        MonitorConfig(**settings)
    assert SECRET not in str(raised.value)


def test_settings_do_not_show_credentials() -> None:
    config = _config(alert_url=f"https://x/{SECRET}", alert_authorization=SECRET, alert_command=f"x {SECRET}")
    assert SECRET not in repr(config)


def _watched(hook: Hook, folder: Path) -> Config:
    config = _config(alert_url=hook.url, alert_after_seconds=0.0)
    away = SourceConfig("host=127.0.0.1 port=1 dbname=x")
    return replace(config, source=away, log=LogConfig(str(folder / "log")), lake=LakeConfig(str(folder / "lake")))


def test_what_status_finds_is_told(hook: Hook, tmp_path: Path) -> None:
    with monitoring(_watched(hook, tmp_path)):
        eventually(lambda: hook.told)
    assert ("firing", "server") in _summary(hook.told[0])


def test_the_end_of_everything_is_told(hook: Hook, tmp_path: Path) -> None:
    config = replace(_watched(hook, tmp_path), monitor=MonitorConfig(alert_url=hook.url, alert_after_seconds=900.0))
    with pytest.raises(ChildFailedError), monitoring(config):
        raise ChildFailedError("capture", "The slot is lost.", 11)
    (told,) = hook.told
    assert [(alert["kind"], alert["text"]) for alert in told["alerts"]] == [
        ("capture", "`wal2lake run` ended: The slot is lost.")
    ]


def test_that_nobody_listens_is_an_event(hook: Hook, tmp_path: Path) -> None:
    hook.status = 500
    config = _watched(hook, tmp_path)
    with monitoring(config):
        eventually(lambda: read_events(config.log.path))
    (event,) = read_events(config.log.path)
    assert (event.kind, event.values, SECRET in str(event)) == ("failed", {"role": "alerts"}, False)
