"""The options that commands share are declared once, and reach the command as one Config.

`with_config` puts them into the command's signature, where the command line library finds them, and takes them out
again before the command is called. Only where Spark runs, `with_spark_config` adds Spark's: an option that a command
advertises has an effect.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from wal2lake.cli.output import say
from wal2lake.config import Config
from wal2lake.errors import ConfigError
from wal2lake.login import Login, as_command

DEFAULT_FILE = Path("wal2lake.toml")
_PANEL = "Configuration"
_DATABASE = re.compile(r"[\w-]+")


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=_PANEL, show_default=False)


_SHARED: dict[str, Any] = {
    "config_file": Annotated[
        Path | None, _option("The configuration file; wal2lake.toml where there is one.", "--config", "-c")
    ],
    "dsn": Annotated[
        str | None,
        _option("The source, as libpq says it; else PGHOST, PGSERVICE and the other PG* variables.", "--dsn"),
    ],
    "publication": Annotated[str | None, _option("The publication to read.", "--publication")],
    "slot": Annotated[str | None, _option("The logical replication slot.", "--slot")],
    "log": Annotated[str | None, _option("The change log's folder, or its URL in an object store.", "--log")],
    "lake": Annotated[str | None, _option("The folder of the Delta tables, or its URL in an object store.", "--lake")],
    "settings": Annotated[
        list[str] | None, _option("Any setting SECTION.KEY=VALUE of the file; may be repeated.", "--set")
    ],
}
_SOURCE: dict[str, Any] = {
    "config_file": Annotated[
        Path | None,
        _option("The file whose source section is read; wal2lake.toml where there is one.", "--config", "-c"),
    ],
    "dsn": Annotated[
        str | None,
        _option(
            "libpq's keywords or URI, or a database's name; else source.dsn, then PGHOST, PGSERVICE …", "--dsn", "-d"
        ),
    ],
    "password_command": Annotated[
        str | None,
        _option(
            "A command that prints the password; it is split as a shell would, and no shell is asked.",
            "--password-command",
        ),
    ],
}
_SPARK: dict[str, Any] = {
    "mode": Annotated[str | None, _option("mirror (the tables as they are) or append (every change a row).", "--mode")],
    "master": Annotated[str | None, _option("Spark's master, as local[2,4] or spark://host:7077.", "--master")],
    "spark_conf": Annotated[list[str] | None, _option("A Spark setting NAME=VALUE; may be repeated.", "--conf")],
}
_SAYING = {"source.dsn", "log.path"}  # with either, a command knows what to work on
_VARIABLES = tuple(f"WAL2LAKE_{section.name.upper()}_" for section in fields(Config))
_LIBPQ = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE", "PGDATABASE", "PGUSER")
_PLACES = {
    "dsn": "source.dsn",
    "publication": "source.publication",
    "slot": "source.slot",
    "log": "log.path",
    "lake": "lake.path",
    "mode": "lake.mode",
    "master": "spark.spark.master",
}


def with_config(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command(config, …)`` the shared options on its command line."""
    return _extended(command, "config", _SHARED, resolve)


def with_spark_config(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same with Spark's options, for a command that runs Spark."""
    return _extended(command, "config", {**_SHARED, **_SPARK}, resolve)


def with_dsn(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command(dsn, …)`` the options that say where the server is; nothing but [source] is read."""
    return _extended(command, "dsn", _SOURCE, source_login)


def source_login(config_file: Path | None, dsn: str | None, password_command: str | None) -> Login:
    """The flags; without --dsn the environment's or the file's [source], where that says nothing libpq's variables.

    Another server's password command is not asked: with --dsn only the flag counts.
    """
    command = as_command(password_command or "", "--password-command")
    if dsn is not None:
        return Login(f"dbname={dsn}" if _DATABASE.fullmatch(dsn) else dsn, command)
    if config_file is None and DEFAULT_FILE.exists():
        config_file = DEFAULT_FILE
    source = Config.load_source(config_file)
    return Login(source.dsn, command or source.password_command)


def _extended(
    command: Callable[..., Any], name: str, options: dict[str, Any], resolved: Callable[..., Any]
) -> Callable[..., Any]:
    """``command`` with ``options`` on its command line instead of its argument ``name``, which is made of them."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != name]
    shared = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for option, annotation in options.items()
    ]

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        given = {option: values.pop(option) for option in options}
        return command(**{name: resolved(**given)}, **values)

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    wrapper.__signature__ = signature.replace(parameters=parameters + shared)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters + shared}
    return wrapper


def resolve(
    *,
    config_file: Path | None = None,
    spark_conf: list[str] | None = None,
    settings: list[str] | None = None,
    **flags: str | None,
) -> Config:
    """Read the file, the environment and the flags into one Config; raises ConfigError."""
    overrides: dict[str, Any] = {_PLACES[name]: value for name, value in flags.items() if value is not None}
    overrides.update(_pair("--set", item) for item in settings or ())
    overrides.update((f"spark.{name}", value) for name, value in (_pair("--conf", item) for item in spark_conf or ()))
    if config_file is None and DEFAULT_FILE.exists():
        config_file = DEFAULT_FILE
    if config_file is None:
        _require_said(overrides)
    return Config.load(config_file, overrides)


def _require_said(overrides: Mapping[str, Any]) -> None:
    """Without a file something else must say what to work on, or the command was called in the wrong folder.

    Raises ConfigError where nothing does. Where libpq's variables alone name a server, the rest is worth a word.
    """
    if _SAYING & set(overrides) or any(name.startswith(_VARIABLES) for name in os.environ):
        return
    here = Path.cwd()
    missing = f"There is no {DEFAULT_FILE} in {here}"
    if any(name in os.environ for name in _LIBPQ):
        say(f"{missing}: the server is that of the PG* variables, everything else as it is by default.")
        return
    above = next((folder for folder in here.parents if (folder / DEFAULT_FILE).exists()), None)
    hint = "`wal2lake init` writes one, -c names another; a --dsn alone, or PGHOST, will do as well."
    if above is not None:
        hint = f"The next one is in {above}: go there, or name it with -c {above / DEFAULT_FILE}."
    raise ConfigError(f"{missing}.", hint=hint)


def _pair(flag: str, item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or "." not in name:
        example = "lake.mode=append" if flag == "--set" else "spark.driver.memory=4g"
        raise ConfigError(f"{flag} takes NAME=VALUE with a dotted name.", hint=f"As in {flag} {example}.")
    return name, value
