"""The commands that run: both children under one parent, each alone, or the demonstration around them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from wal2lake.cli.interrupts import answer
from wal2lake.cli.options import with_config, with_spark_config
from wal2lake.cli.output import err_console, print_json, say, tell_by_log
from wal2lake.cli.shared import refuse
from wal2lake.cli.ui import LOCAL, PORT, UiActions, UiHost, UiNames, UiPort, WithUi, page_of, ui_options
from wal2lake.config import Config
from wal2lake.errors import ConfigError
from wal2lake.monitor.log_view import LogView
from wal2lake.monitor.progress import read_progress
from wal2lake.monitor.view import View
from wal2lake.run.child import ROLES
from wal2lake.run.logs import configure_logging, mute_logging
from wal2lake.run.monitoring import monitoring, shared_places
from wal2lake.run.supervisor import Supervisor
from wal2lake.signals import on_signals, stop_on_signals

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=1,
        max=65_535,
        help="Serve Prometheus' metrics, /healthz and /readyz at this port of monitor.metrics_host.",
        show_default=False,
    ),
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        metavar="text|json",
        help="Tell what happens on standard error, a line each, instead of showing progress there.",
        show_default=False,
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        metavar="debug|info|warning|error",
        help="From which level on that is told; info has batches, schema changes and restarts, debug their steps.",
        show_default=False,
    ),
]
_TICK_S = 0.25
_KILL_S = 10.0  # what a second Ctrl-C kills is gone by then, on any machine
_STOPPING = {
    role: f"Stopping: {what} first. Ctrl-C again ends at once; nothing is lost either way."
    for role, what in (
        ("pipeline", "a start or a batch that is under way is finished"),
        ("capture", "what has arrived is made durable"),
    )
}


@with_spark_config
def run(
    context: typer.Context,
    config: Config,
    metrics_port: MetricsPort = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    with_ui: WithUi = False,
    ui_host: UiHost = LOCAL,
    ui_port: UiPort = PORT,
    ui_allow_actions: UiActions = False,
    ui_allow_host: UiNames = None,
) -> None:
    """Snapshot, capture and apply until Ctrl-C; a later run goes on from there.

    Capture and pipeline are two processes that share the change log; whichever dies is started again. A pipeline that
    cannot go on after its first minute leaves capture running, and is tried again. The exit code tells of what was not
    finished at the end: a pipeline that is down, tables that are quarantined, a last flush that failed.
    """
    config = _prepared(config, "run", metrics_port=metrics_port, log_format=log_format, log_level=log_level)
    supervisor, read_places = Supervisor(config), shared_places(config)
    page: AbstractContextManager[None] = nullcontext()
    if with_ui:
        options = ui_options(ui_host, ui_port, ui_allow_actions, ui_allow_host)
        page = page_of(config, options, supervisor.pids, read_places)
    else:
        refuse(context, ("ui_host", "ui_port", "ui_allow_actions", "ui_allow_host"), "is about the page.", "Add --ui.")
    with (
        page,
        answer(_STOPPING["pipeline"], grace_s=_KILL_S),
        stop_on_signals() as stop,
        monitoring(config, supervisor, read_places) as beat,
    ):
        supervisor.start()
        try:
            with _view(config) as view:
                while not stop.wait(_TICK_S):
                    supervisor.tick()
                    beat()
                    view.show(*supervisor.progress())
        finally:
            with on_signals(supervisor.kill):
                supervisor.stop()
    supervisor.require_clean_end()


@with_config
def metrics(
    config: Config, metrics_port: MetricsPort = None, log_format: LogFormat = None, log_level: LogLevel = None
) -> None:
    """Serve Prometheus' metrics, and tell of findings, for what runs elsewhere: `capture` and `pipeline` by themselves.

    It looks at server, log and lake as `wal2lake status` does, and changes nothing.

    Example: wal2lake metrics --metrics-port 9187
    """
    config = _prepared(config, "metrics", metrics_port=metrics_port, log_format=log_format, log_level=log_level)
    if not config.monitor.metrics_port and not config.monitor.alerts:
        raise ConfigError("There is no port to serve metrics at.", hint="Name one: --metrics-port 9187.")
    with monitoring(config) as beat, stop_on_signals() as stop:
        say("Watching; Ctrl-C ends it.")
        while not stop.wait(_TICK_S):
            beat()


@with_config
def capture(config: Config, log_format: LogFormat = None, log_level: LogLevel = None) -> None:
    """Only the first half: replication slot to change log, on a small host near the server."""
    _run_alone("capture", _prepared(config, "capture", log_format=log_format, log_level=log_level))


@with_spark_config
def pipeline(config: Config, log_format: LogFormat = None, log_level: LogLevel = None) -> None:
    """Only the second half: change log to lake, as a Spark job."""
    _run_alone("pipeline", _prepared(config, "pipeline", log_format=log_format, log_level=log_level))


def _run_alone(role: str, config: Config) -> None:
    with answer(_STOPPING[role]), stop_on_signals() as stop:
        work = ROLES[role]()
        say(f"Running {role}; Ctrl-C ends it cleanly.")
        with _showing_progress(role, config):
            work(config, stop)


def _prepared(config: Config, role: str, **given: Any) -> Config:
    """``config`` with what the command line says of [monitor], and this process's logging as that has it."""
    values = {name: value for name, value in given.items() if value is not None}
    monitor = replace(config.monitor, **values)
    if monitor.log_format:
        tell_by_log()
    if role == "run" and not monitor.log_format:
        mute_logging()
    else:
        configure_logging(monitor, role)
    return replace(config, monitor=monitor)


def _view(config: Config) -> View | LogView:
    return LogView() if config.monitor.log_format else View(err_console)


@contextmanager
def _showing_progress(role: str, config: Config) -> Iterator[None]:
    """Show how far it is while the block, which is this process's ``role``, works."""
    ended = threading.Event()

    def show() -> None:
        with _view(config) as view:
            while not ended.wait(_TICK_S):
                view.show(read_progress(config.log.path, {role: os.getpid()}))

    thread = threading.Thread(target=show, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def demo(
    seconds: Annotated[
        float, typer.Option(help="How long the workload goes on once all tables are in the lake.")
    ] = 60.0,
    folder: Annotated[Path, typer.Option(help="Where the demonstration's tables and log lie.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as the last line.")] = False,
) -> None:
    """A live shop database in a PostgreSQL of its own, mirrored into Delta tables and verified."""
    from wal2lake.demo.shop import DemoOptions, run_demo  # noqa: PLC0415 - the core installs without Arrow and Spark

    started = time.monotonic()
    with answer("Ending: its processes and its server are stopped first.", grace_s=_KILL_S):
        summary = run_demo(DemoOptions(folder=folder, seconds=seconds, seed=seed), err_console)
    if as_json:
        print_json({**summary, "seconds": round(time.monotonic() - started, 1)})
    if not summary["verified"]:
        raise typer.Exit(18)
