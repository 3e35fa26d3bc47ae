"""One configuration from three places: wal2lake.toml, then the environment, then flags; the later wins.

Everything is checked when it is read, so nothing below this module sees a setting that cannot be.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args
from urllib.parse import SplitResult, parse_qsl, urlsplit

from wal2lake.errors import ConfigError
from wal2lake.lakes import Lake
from wal2lake.login import Login, as_command
from wal2lake.names import qualified, split_qualified
from wal2lake.urls import ObjectUrl, is_object_url, local_path
from wal2lake.variables import refuse_secrets

Mode = Literal["mirror", "append"]
FORMATS = ("delta", "iceberg", "parquet")  # of the lake; installed packages may have others
SINK_ENTRY_POINTS = "wal2lake.sinks"
_DEEPEST = 100  # parts of a Spark setting's name
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")
_SPLIT = "split"  # of a setting's metadata: how a text is taken apart that stands in the place of a list
T = TypeVar("T")


@dataclass(frozen=True)
class SourceConfig:
    """Where the changes come from. ``dsn`` is libpq's (keywords or URI); empty means PGHOST, PGSERVICE …

    ``password_command`` prints the password of each connection: a program and its arguments, no shell.
    ``failover``: standbys that synchronize slots keep this one in step (PostgreSQL 17 and later). ``streaming``: large
    transactions are taken in before they commit (PostgreSQL 14 and later; from an earlier server, when they do).
    ``two_phase``: prepared ones are when they are prepared (PostgreSQL 15 and later), and count when they commit.
    """

    dsn: str = field(default="", repr=False)
    password_command: tuple[str, ...] = field(
        default=(),
        repr=False,
        kw_only=True,
        metadata={_SPLIT: partial(as_command, name="source.password_command")},
    )
    publication: str = "wal2lake"
    slot: str = "wal2lake"
    failover: bool = False
    streaming: bool = True
    two_phase: bool = False

    def __post_init__(self) -> None:
        as_command(self.password_command, "source.password_command")
        if not _SLOT_NAME.fullmatch(self.slot):
            raise ConfigError(
                f"{self.slot!r} cannot name a replication slot.",
                hint="Use 1 to 63 lower-case letters, digits and underscores for source.slot.",
            )
        if not self.publication:
            raise ConfigError("source.publication is empty.", hint="Name the publication to read.")
        if self.failover and self.two_phase:
            raise ConfigError(
                "source.failover and source.two_phase exclude each other: PostgreSQL keeps no such slot in step.",
                hint="Set one of them to false; without two_phase, prepared transactions are read when they commit.",
            )

    @property
    def login(self) -> Login:
        """What every connection to the source is opened with."""
        return Login(self.dsn, self.password_command)


@dataclass(frozen=True)
class LogConfig:
    """The change log: a folder, or the URL of an object store; sizes in bytes, times in seconds.

    ``options``: of the store, as obstore names them, a secret only as ``$NAME`` of an environment variable; they become
    part of ``path``. ``local_path``: where, beside a URL, this machine keeps what it has of the log.
    """

    path: str = "wal2lake/log"
    local_path: str = "wal2lake/local"
    options: Mapping[str, str] = field(default_factory=dict)
    segment_bytes: int = 4 << 20
    segment_seconds: float = 0.25
    retention_seconds: float = 3600.0
    compression: Literal["lz4", "zstd", "none"] = "lz4"

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", local_path(self.path))
        if is_object_url(self.path):
            object.__setattr__(self, "path", str(ObjectUrl.parse(self.path).with_options(self.options)))
        elif self.options:
            raise ConfigError("log.options are of an object store, and log.path is a folder.")
        object.__setattr__(self, "options", {})
        _positive(self, "segment_bytes", "segment_seconds")
        _one_of(self, "compression", "lz4", "zstd", "none")
        if not self.retention_seconds >= 0:
            raise ConfigError("log.retention_seconds must be 0 or greater.")

    @property
    def folder(self) -> str:
        """What of the log is on this machine in any case: Spark's checkpoint, and what `run`'s children say."""
        if not is_object_url(self.path):
            return self.path
        return os.path.join(self.local_path, ObjectUrl.parse(self.path).slug)


@dataclass(frozen=True)
class LakeConfig:
    """The target: tables lie at ``<path>/<schema>/<table>``, and keep their past as long as the retention says.

    ``path``: a folder, or the URL of an object store; ``options`` of that, as in [log], which those in the URL join.
    ``local_path``: where, beside a URL, this machine keeps the tables' key indexes, which nobody misses.
    ``catalog``, ``catalog_properties``: of Iceberg tables, as pyiceberg names them, a secret only as ``$NAME``; without
    either the lake has a catalog of its own, in its folder.
    """

    path: str = "wal2lake/lake"
    mode: Mode = "mirror"
    format: str = "delta"
    retention_seconds: int = 86_400
    retention_bytes: int = 64 << 20
    min_retention_seconds: int = 600
    deletion_vectors: bool = True
    catalog: str = ""
    catalog_properties: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    local_path: str = "wal2lake/local"

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", local_path(self.path))
        if self.format == "delta":
            object.__setattr__(self, "options", dict((place := Lake.at(self.path, self.options)).options))
            object.__setattr__(self, "path", place.uri)
        elif self.options:
            hint = "Those of Iceberg's store are in lake.catalog_properties, as pyiceberg names them (s3.region)."
            raise ConfigError("lake.options are of Delta tables, and lake.format is another.", hint=hint)
        for name in ("retention_seconds", "retention_bytes", "min_retention_seconds"):
            if getattr(self, name) < 0:
                raise ConfigError(f"lake.{name} must be 0 or greater.")
        _one_of(self, "mode", *get_args(Mode))
        if self.format not in FORMATS:
            _one_of(self, "format", *FORMATS, *sorted({point.name for point in entry_points(group=SINK_ENTRY_POINTS)}))
        refuse_secrets("lake.catalog_properties", self.catalog_properties)
        if self.format == "iceberg" and is_object_url(self.path) and not (self.catalog or self.catalog_properties):
            hint = (
                "Name one in lake.catalog, as pyiceberg's configuration has it, or say it in lake.catalog_properties."
            )
            raise ConfigError("Iceberg tables in an object store need a catalog.", hint=hint)
        if self.format != "iceberg" and (self.catalog or self.catalog_properties):
            raise ConfigError("lake.catalog is of Iceberg tables, and lake.format is another.")
        if self.format == "parquet" and self.mode == "mirror":
            hint = 'Set lake.mode = "append", or lake.format = "delta".'
            raise ConfigError('lake.format = "parquet" keeps every change as a row, and is no mirror.', hint=hint)
        if self.format == "parquet" and is_object_url(self.path):
            hint = "Set lake.path to a folder, or lake.format to delta."
            message = 'lake.format = "parquet" puts batches in place by renames, which an object store has not.'
            raise ConfigError(message, hint=hint)

    @property
    def place(self) -> Lake:
        """Where it lies, and how that is reached."""
        return Lake(self.path, tuple(sorted(self.options.items())))


@dataclass(frozen=True)
class PipelineConfig:
    """How the Spark side works. ``name`` is written into every table's commits, with the LSN."""

    name: str = "wal2lake"
    trigger_seconds: float = 0.1
    max_bytes_per_trigger: int = 256 << 20
    snapshot_chunk_bytes: int = 64 << 20
    unrepresentable: Literal["error", "null", "text"] = "error"
    null_columns: tuple[str, ...] = ()
    error_columns: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()
    unbounded_numeric: str = "text"
    on_unfollowable: Literal["resync", "quarantine"] = "resync"
    resync_max_bytes: int = 10 << 30

    def __post_init__(self) -> None:
        _positive(self, "trigger_seconds", "max_bytes_per_trigger", "snapshot_chunk_bytes", "resync_max_bytes")
        _one_of(self, "on_unfollowable", "resync", "quarantine")
        _one_of(self, "unrepresentable", "error", "null", "text")
        if self.unbounded_numeric not in ("text", "double") and not _is_decimal(self.unbounded_numeric):
            raise ConfigError(
                f"pipeline.unbounded_numeric is {self.unbounded_numeric!r}.",
                hint="Use text, double, or decimal(p,s) with at most 38 digits, such as decimal(38,9).",
            )
        for setting in ("text_columns", "null_columns", "error_columns"):
            columns = getattr(self, setting)
            for column in columns:
                if len(split_qualified(column)) != 3:
                    hint = "Write schema.table.column; a part with a dot in it stands in double quotes."
                    raise ConfigError(f"pipeline.{setting} has {column!r}.", hint=hint)
            named = tuple(qualified(*split_qualified(column)) for column in columns)
            object.__setattr__(self, setting, named)  # quotes that a part does not need are left out
        if both := sorted({*self.null_columns} & {*self.error_columns}):
            raise ConfigError(
                f"{both[0]} is in pipeline.null_columns and in pipeline.error_columns.", hint="Choose one."
            )

    def policies(self, namespace: str, name: str) -> tuple[tuple[str, Literal["error", "null"]], ...]:
        """The columns of one table that have a policy of their own for values that their types cannot hold."""
        own: list[tuple[str, Literal["error", "null"]]] = []
        own += [(column, "null") for column in self._of(self.null_columns, namespace, name)]
        own += [(column, "error") for column in self._of(self.error_columns, namespace, name)]
        return tuple(own)

    @staticmethod
    def _of(columns: tuple[str, ...], namespace: str, name: str) -> list[str]:
        parts = map(split_qualified, columns)
        return [column for schema, table, column in parts if (schema, table) == (namespace, name)]


@dataclass(frozen=True)
class MonitorConfig:
    """What watches: a Prometheus endpoint (port 0: none), and whom findings of ``status`` are told; times in seconds.

    ``log_format``: what happens is told as lines of a log, where else progress is shown.

    ``alert_command`` is split as a shell would, and started without one; ``alert_authorization`` is the value of that
    header for ``alert_url``. All three may hold credentials.
    """

    log_format: Literal["", "text", "json"] = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    metrics_port: int = 0
    metrics_host: str = "127.0.0.1"
    alert_command: str = field(default="", repr=False)
    alert_url: str = field(default="", repr=False)
    alert_authorization: str = field(default="", repr=False)
    alert_after_seconds: float = 60.0
    alert_repeat_seconds: float = 14_400.0

    def __post_init__(self) -> None:
        _one_of(self, "log_format", "", "text", "json")
        _one_of(self, "log_level", "debug", "info", "warning", "error")
        if not 0 <= self.metrics_port <= 65_535:
            raise ConfigError("monitor.metrics_port must be a port, or 0 for none.")
        if not 0 <= self.alert_after_seconds < math.inf:
            raise ConfigError("monitor.alert_after_seconds must be 0 or greater.")
        _positive(self, "alert_repeat_seconds")
        url = _split_url(self.alert_url)
        if self.alert_url and (url is None or url.scheme not in ("http", "https") or not url.hostname):
            raise ConfigError("monitor.alert_url is no http or https URL.")
        if url is not None and url.username is not None:
            hint = 'Put them into monitor.alert_authorization, as in "Basic …" or "Bearer …".'
            raise ConfigError("monitor.alert_url has credentials in front of the host.", hint=hint)
        if any(char in self.alert_authorization for char in "\r\n"):
            raise ConfigError("monitor.alert_authorization has more than one line.")
        try:
            shlex.split(self.alert_command)
        except ValueError as error:
            raise ConfigError(f"monitor.alert_command cannot be split into words: {error}.") from None

    @property
    def alerts(self) -> bool:
        """Somebody is to be told."""
        return bool(self.alert_command or self.alert_url)


@dataclass(frozen=True)
class Config:
    """All of wal2lake.toml. ``spark`` holds Spark's own settings, passed through as they are."""

    source: SourceConfig = field(default_factory=SourceConfig)
    log: LogConfig = field(default_factory=LogConfig)
    lake: LakeConfig = field(default_factory=LakeConfig)
    pipeline: PipelineConfig = field(default_factory=PipelineConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    spark: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_apart(self.log.path, self.lake.path)

    @classmethod
    def load(cls, path: Path | None, overrides: Mapping[str, Any] | None = None) -> Config:
        """Read ``path`` (None: defaults), WAL2LAKE_SECTION_KEY variables, ``overrides`` ({"source.slot": …}).

        Relative log and lake paths are taken from the file's folder. Raises ConfigError.
        """
        document = _read_toml(path)
        for name, value in {**_environment(), **(overrides or {})}.items():
            section, _, key = name.partition(".")
            document.setdefault(section, {})[key] = value
        return _absolute(cls.from_dict(document), path.parent if path else Path())

    @classmethod
    def load_source(cls, path: Path | None) -> SourceConfig:
        """Only [source], for what needs no more: a mistake in another section is not its business."""
        document = _read_toml(path)
        for name, value in _environment({"source": SourceConfig}).items():
            document.setdefault("source", {})[name.partition(".")[2]] = value
        return _section(SourceConfig, "source", document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Config:
        """Build from TOML's shape; an unknown section or key is an error that lists the known ones."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(document) - known)
        if unknown:
            raise ConfigError(f"Unknown section [{unknown[0]}].", hint=f"Known sections: {_KNOWN}.")
        return cls(
            source=_section(SourceConfig, "source", document),
            log=_section(LogConfig, "log", document),
            lake=_section(LakeConfig, "lake", document),
            pipeline=_section(PipelineConfig, "pipeline", document),
            monitor=_section(MonitorConfig, "monitor", document),
            spark={str(k): _spark_value(v) for k, v in _flatten(document.get("spark", {})).items()},
        )


_SECTIONS = {
    "source": SourceConfig,
    "log": LogConfig,
    "lake": LakeConfig,
    "pipeline": PipelineConfig,
    "monitor": MonitorConfig,
}
_KNOWN = ", ".join(f"[{f.name}]" for f in fields(Config))


def _read_toml(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        raise ConfigError(f"There is no {path}{where}.", hint=f"`wal2lake init {path}` writes one.") from None
    except ValueError as error:  # TOML's own, that of its encoding, and Python's for a number of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deep.") from None
    for name, values in document.items():
        if not isinstance(values, dict):
            raise ConfigError(f"{path} sets {name} outside of a section.", hint=f"Put it below one of {_KNOWN}.")
    return document


def _environment(sections: Mapping[str, Any] | None = None) -> dict[str, str]:
    """WAL2LAKE_SOURCE_DSN → source.dsn; Spark's settings have dots and so come by file or flag only."""
    found = {}
    for section, kind in (sections or _SECTIONS).items():
        prefix = f"WAL2LAKE_{section.upper()}_"
        for name, value in os.environ.items():
            if name.startswith(prefix):
                key = name.removeprefix(prefix).lower()
                _require_known(section, key, kind, f" (environment variable {name})")
                found[f"{section}.{key}"] = value
    return found


def _section(kind: Callable[..., T], name: str, document: Mapping[str, Any]) -> T:
    values = document.get(name, {})
    for key in values:
        _require_known(name, key, kind)
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    given = {
        key: known[key].metadata[_SPLIT](value) if isinstance(value, str) and _SPLIT in known[key].metadata else value
        for key, value in values.items()
    }
    return kind(**{key: _coerce(f"{name}.{key}", _default(known[key]), value) for key, value in given.items()})


def _default(setting: Field[Any]) -> object:
    return setting.default if setting.default_factory is MISSING else setting.default_factory()


def _require_known(section: str, key: str, kind: Any, where: str = "") -> None:
    known = [f.name for f in fields(kind)]
    if key not in known:
        raise ConfigError(f"Unknown setting {section}.{key}{where}.", hint=f"Known in [{section}]: {', '.join(known)}.")


def _coerce(name: str, default: object, value: Any) -> Any:
    """Give ``value`` the type of the setting's default; environment variables arrive as text.

    No file, host or name has a zero byte in it, and what would be given one says so in words of its own or not at all.
    """
    if any("\0" in text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)):
        raise ConfigError(f"{name} has a zero byte.")
    try:
        if isinstance(default, dict):
            return _pairs(value)
        if isinstance(default, tuple):
            return _texts(value.split(",") if isinstance(value, str) else value)
        if isinstance(default, bool):
            return value if isinstance(value, bool) else _BOOLEANS[value.lower()]
        if isinstance(value, bool) or (isinstance(default, str) and not isinstance(value, str)):
            raise ValueError
        if isinstance(default, int) and isinstance(value, float) and not value.is_integer():
            raise ValueError
        return cast(Callable[[Any], Any], type(default))(value)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name} must be {_TYPES[type(default)]}.") from None


def _pairs(values: object) -> dict[str, str]:
    """A table; or, from the environment and flags, ``name=value&…`` as in a URL."""
    found = dict(parse_qsl(values, keep_blank_values=True, strict_parsing=True)) if isinstance(values, str) else values
    if not isinstance(found, dict):
        raise TypeError
    pairs = {name: str(value).lower() if isinstance(value, bool | int) else value for name, value in found.items()}
    return dict(zip(pairs, _texts([*pairs.values()]), strict=True))


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise TypeError
    return tuple(values)


_TYPES = {
    int: "a whole number", float: "a number", str: "text", tuple: "a list of texts", bool: "true or false",
    dict: "a table of texts, or name=value&name=value",
}  # fmt: skip
_BOOLEANS = {"true": True, "false": False}


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """TOML reads ``spark.sql.x = 1`` below [spark] as nested tables; Spark wants the dotted name."""
    if prefix.count(".") > _DEEPEST:
        raise ConfigError("A setting of [spark] has too many parts.", hint="Write Spark's settings by their names.")
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return {(k if k.startswith("spark.") or prefix else f"spark.{k}"): v for k, v in flat.items()}


def _spark_value(value: object) -> str:
    if isinstance(value, list):
        raise ConfigError(
            "A setting of [spark] is a list.", hint="Write Spark's settings as text, numbers or booleans."
        )
    return cast(str, _coerce("A setting of [spark]", "", str(value).lower() if isinstance(value, bool) else str(value)))


def _absolute(config: Config, base: Path) -> Config:
    return replace(
        config,
        log=replace(config.log, path=_resolve(config.log.path, base), local_path=_resolve(config.log.local_path, base)),
        lake=replace(
            config.lake, path=_resolve(config.lake.path, base), local_path=_resolve(config.lake.local_path, base)
        ),
    )


def _resolve(path: str, base: Path) -> str:
    return path if is_object_url(path) else str((base / path).absolute())


def _require_apart(log: str, lake: str) -> None:
    """A schema may have the name of any folder of the log's, and what deletes one of the two would delete the other."""
    if is_object_url(log) != is_object_url(lake):
        return
    if is_object_url(log):
        log, lake = ObjectUrl.parse(log).where, lake.rstrip("/")
        alike = f"{lake}/".startswith(f"{log}/") or f"{log}/".startswith(f"{lake}/")
    else:
        folders = {os.path.realpath(log), os.path.realpath(lake)}
        alike = os.path.commonpath(folders) in folders
    if alike:
        raise ConfigError(
            f"log.path ({log}) and lake.path ({lake}) are one folder, or one lies in the other.",
            hint="Give each a folder of its own, side by side.",
        )


def _is_decimal(text: str) -> bool:
    found = re.fullmatch(r"decimal\(([0-9]{1,2}), ?([0-9]{1,2})\)", text)
    return found is not None and 0 < int(found[1]) <= 38 and int(found[2]) <= int(found[1])


def _positive(section: object, *names: str) -> None:
    for name in names:
        if not 0 < getattr(section, name) < math.inf:
            raise ConfigError(f"{_place(section, name)} must be greater than 0.")


def _one_of(section: object, name: str, *allowed: str) -> None:
    if getattr(section, name) not in allowed:
        raise ConfigError(f"{_place(section, name)} must be one of {', '.join(allowed)}.")


def _split_url(url: str) -> SplitResult | None:
    """None for what is no URL."""
    try:
        found = urlsplit(url)
        _ = found.port
    except ValueError:
        return None
    return found


def _place(section: object, name: str) -> str:
    return f"{type(section).__name__.removesuffix('Config').lower()}.{name}"
