"""The supervisor with real processes in the place of its children: roles are swapped for small programs."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.waiting import eventually
from wal2lake.config import Config
from wal2lake.errors import SlotMissingError
from wal2lake.run import process
from wal2lake.run.logs import Line, read_line
from wal2lake.run.process import Child
from wal2lake.run.supervisor import ChildFailedError, RestartPolicy, Supervisor

HASTY = RestartPolicy(pauses_s=(0.01, 30.0))
SOON_SETTLED = replace(HASTY, settled_s=0.1)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.from_dict({"source": {"dsn": "host=127.0.0.1 port=1"}, "log": {"path": str(tmp_path / "log")}})


def _error(sentence: str, code: int) -> str:
    """Lines of shell that end a child with an error of ours."""
    document = json.dumps({"error": sentence, "exit_code": code})
    return f"echo 'wal2lake-error: {document}' >&2; exit {code}"


def _only(role: str, body: str) -> str:
    """That role runs ``body``; the other, and this one after it, does nothing until it is stopped."""
    return f'if [ "$3" = {role} ]; then\n{body}\nfi\nexec sleep 60'


def _program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    """Let every child run ``body`` instead of a role."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nread config\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(program))


def _settles_and_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, role: str, failure: str) -> None:
    """That role lives long enough to count as settled, and then ends with ``failure``."""
    _program(monkeypatch, tmp_path, _only(role, f"sleep 0.5; {failure}"))


def test_what_dies_is_started_again(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(monkeypatch, tmp_path, "exec sleep 60")
    supervisor = Supervisor(config, HASTY)
    supervisor.start()
    child = supervisor.children["capture"]
    os.kill(child.pid or 0, signal.SIGKILL)

    def restarted() -> bool:
        supervisor.tick()
        return child.starts == 2

    eventually(restarted)
    supervisor.kill()


def test_a_reason_that_time_does_not_mend_stops_everything(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(monkeypatch, tmp_path, _error("There is no slot.", SlotMissingError.exit_code))
    supervisor = Supervisor(config, HASTY)
    supervisor.start()
    with pytest.raises(ChildFailedError, match=r"There is no slot\.") as caught:
        eventually(supervisor.tick)
    assert caught.value.code == SlotMissingError.exit_code
    supervisor.stop()


def test_a_pipeline_that_had_settled_leaves_capture_running(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends, is tried again in vain, and then its reason is gone."""
    full = tmp_path / "full"
    full.touch()
    first = f"[ -e {tmp_path}/begun ] || sleep 0.5; touch {tmp_path}/begun"
    _program(monkeypatch, tmp_path, _only("pipeline", f"{first}\n[ -e {full} ] && {{ {_error('Disk full.', 13)}; }}"))
    supervisor = Supervisor(config, replace(HASTY, pauses_alone_s=(0.1, 300.0), settled_s=0.3))
    capture, pipeline = supervisor.children.values()
    supervisor.start()
    eventually(lambda: supervisor.tick() or pipeline.starts >= 3)
    assert capture.starts == 1
    assert capture.pid
    assert supervisor.note == "capture goes on without the pipeline, which is tried again after: Disk full."
    assert supervisor.backoff_alone.next_s >= 0.4
    full.unlink()
    eventually(lambda: supervisor.tick() or not supervisor.note)
    supervisor.stop()
    supervisor.require_clean_end()


def test_a_pipeline_that_is_down_at_the_end_gives_its_code(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _settles_and_fails(monkeypatch, tmp_path, "pipeline", _error("Disk full.", 13))
    supervisor = Supervisor(config, SOON_SETTLED)
    supervisor.start()
    eventually(lambda: supervisor.tick() or supervisor.note)
    supervisor.stop()
    with pytest.raises(ChildFailedError, match=r"^Disk full\.$") as caught:
        supervisor.require_clean_end()
    assert caught.value.code == 13


def test_capture_takes_all_with_it_although_it_had_settled(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _settles_and_fails(monkeypatch, tmp_path, "capture", _error("The slot is lost.", 11))
    supervisor = Supervisor(config, SOON_SETTLED)
    supervisor.start()
    with pytest.raises(ChildFailedError, match=r"The slot is lost\."):
        eventually(supervisor.tick)
    supervisor.stop()


def _stopped(supervisor: Supervisor, tmp_path: Path) -> None:
    """Start, and stop when both children know what to do then."""
    supervisor.start()
    eventually(lambda: all((tmp_path / f"ready-{role}").exists() for role in supervisor.children))
    supervisor.stop()
    supervisor.require_clean_end()


def _at_stop(tmp_path: Path, body: str) -> str:
    return f"trap '{body}' TERM; touch {tmp_path}/ready-$3; while :; do sleep 0.05; done"


@pytest.mark.parametrize(("code", "reported"), [(0, None), (75, None), (130, None), (13, 13), (1, 1)])
def test_the_end_of_a_child_that_was_stopped_counts(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reported: int | None
) -> None:
    """As of tables that are quarantined, or of a disk that was full at the last flush."""
    _program(monkeypatch, tmp_path, _at_stop(tmp_path, f"echo $3 failed >&2; exit {code}"))
    if reported is None:
        _stopped(Supervisor(config), tmp_path)
        return
    with pytest.raises(ChildFailedError, match=r"It ends: capture failed .*It ends: pipeline failed") as caught:
        _stopped(Supervisor(config), tmp_path)
    assert caught.value.code == reported


def test_what_does_not_stop_is_killed_and_named(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(monkeypatch, tmp_path, _at_stop(tmp_path, "[ $3 = capture ] && exit 0"))
    supervisor = Supervisor(config, replace(HASTY, stop_s={"pipeline": 0.5, "capture": 10}))
    with pytest.raises(ChildFailedError, match=r"^The pipeline did not finish its batch within 0\.5 s") as caught:
        _stopped(supervisor, tmp_path)
    assert caught.value.code == 1


def test_what_the_user_killed_is_no_failure(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(monkeypatch, tmp_path, "exec sleep 60")
    supervisor = Supervisor(config, HASTY)
    supervisor.start()
    supervisor.kill()
    supervisor.stop()
    supervisor.require_clean_end()


def test_pauses_grow_while_a_child_keeps_dying(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(monkeypatch, tmp_path, "exit 75")
    supervisor = Supervisor(config, HASTY)
    child = supervisor.children["pipeline"]
    supervisor.start()

    def often() -> bool:
        supervisor.tick()
        return child.starts >= 4

    eventually(often)
    assert supervisor.backoff["pipeline"].next_s >= HASTY.pauses_s[0] * 2**3
    assert "pipeline" in supervisor.note or child.process is not None
    supervisor.kill()


def test_what_capture_waits_for_is_told(config: Config) -> None:
    """The real children: the server is not there, and Ctrl-C during that wait ends them."""
    supervisor = Supervisor(config, HASTY)
    supervisor.start()
    try:
        eventually(lambda: "cannot be reached" in supervisor.progress()[1])
        progress, note = supervisor.progress()
        assert (progress.capture_state, progress.pipeline_state) == ("waiting", "starting")
        assert re.match(r"The server .*Trying again in [\d.]+ s\.$", note), note
    finally:
        supervisor.stop()
    told = [read_line(line) for line in supervisor.children["capture"].log_file.read_text().splitlines()]
    assert "WARNING" in [line.level for line in told]


_STAMP = "2026-11-21 23:00:13,123"
_WARNED, _WENT_ON = f"{_STAMP} WARNING The disk is slow.", f"{_STAMP} INFO All is well."


@pytest.mark.parametrize(
    ("told", "ends"),
    [
        ([_WARNED, _WENT_ON], f" It went on after a warning at {_STAMP}: The disk is slow."),
        ([_WENT_ON, _WARNED, "Segmentation fault"], " It ends: The disk is slow. | Segmentation fault"),
        ([_WARNED, _WENT_ON, "a", "b", "c", "d"], " It ends: b | c | d"),
        ([_WENT_ON], ""),
    ],
)
def test_routine_news_are_no_reason(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str], ends: str
) -> None:
    """Of one that was killed amid its work; what was over before is not how its log ends."""
    _program(monkeypatch, tmp_path, "\n".join(f"echo '{line}' >&2" for line in told) + "\nkill -9 $$")
    supervisor = Supervisor(config, RestartPolicy(pauses_s=(5.0, 30.0)))
    supervisor.start()
    pipeline = supervisor.children["pipeline"]
    eventually(lambda: supervisor.tick() or pipeline.process is None)
    where = pipeline.log_file
    how = f"was ended by signal 9 (Killed); its log is {where}"
    assert pipeline.reason == f"The pipeline process {how}.{ends}"
    assert where.read_text().splitlines() == told
    supervisor.kill()


@pytest.mark.parametrize(
    ("state", "line", "shown"),
    [
        ("starting", Line("INFO", "The slot is being made."), "The slot is being made."),
        ("waiting", Line("WARNING", "Not reached. Trying again."), "Not reached. Trying again."),
        ("waiting", Line("INFO", "Capturing from slot s."), ""),
        ("streaming", Line("WARNING", "Not reached. Trying again."), ""),
    ],
)
def test_what_is_shown_of_capture(state: str, line: Line, shown: str, tmp_path: Path) -> None:
    child = Child("capture", tmp_path / "capture.log")
    child.tail.append(line)
    assert child.waits_for(state) == shown


def test_a_child_that_had_settled_is_started_again_at_once(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(monkeypatch, tmp_path, "sleep 0.3; exit 75")
    supervisor = Supervisor(config, SOON_SETTLED)
    child = supervisor.children["pipeline"]
    supervisor.start()

    def often() -> bool:
        supervisor.tick()
        return child.starts >= 4

    eventually(often)
    assert supervisor.backoff["pipeline"].next_s == 2 * HASTY.pauses_s[0]
    supervisor.kill()


def test_a_child_ends_when_its_parent_is_gone(config: Config, tmp_path: Path) -> None:
    """The real child program: closing its standard input is what the parent's death looks like."""
    child = Child("capture", tmp_path / "capture.log")
    child.start(config)
    assert child.process is not None and child.process.stdin is not None
    eventually(child.log_file.exists)
    child.process.stdin.close()
    eventually(lambda: child.pid is None)
    child.wait(1)


def test_credentials_are_in_no_argument_list(config: Config, tmp_path: Path) -> None:
    child = Child("capture", tmp_path / "capture.log")
    child.start(config)
    command = Path(f"/proc/{child.pid}/cmdline").read_bytes()
    environment = Path(f"/proc/{child.pid}/environ").read_bytes()
    assert b"port=1" not in command + environment
    child.kill()
