"""One configuration from three places: wal2lake.toml, then the environment, then flags; the later wins.

Everything is checked when it is read, so nothing below this module sees a setting that cannot be.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from wal2lake.errors import ConfigError

Mode = Literal["mirror", "append"]
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")
T = TypeVar("T")


@dataclass(frozen=True)
class SourceConfig:
    """Where the changes come from. ``dsn`` is libpq's (keywords or URI); empty means PGHOST, PGSERVICE …"""

    dsn: str = field(default="", repr=False)
    publication: str = "wal2lake"
    slot: str = "wal2lake"

    def __post_init__(self) -> None:
        if not _SLOT_NAME.fullmatch(self.slot):
            raise ConfigError(
                f"{self.slot!r} cannot name a replication slot.",
                hint="Use 1 to 63 lower-case letters, digits and underscores for source.slot.",
            )


@dataclass(frozen=True)
class LogConfig:
    """The change log: a folder; sizes in bytes, times in seconds."""

    path: str = "wal2lake/log"
    segment_bytes: int = 64 << 20
    segment_seconds: float = 0.5
    retention_seconds: float = 3600.0
    compression: Literal["lz4", "zstd", "none"] = "lz4"

    def __post_init__(self) -> None:
        _positive(self, "segment_bytes", "segment_seconds")
        _one_of(self, "compression", "lz4", "zstd", "none")


@dataclass(frozen=True)
class LakeConfig:
    """The target: tables lie at ``<path>/<schema>/<table>``."""

    path: str = "wal2lake/lake"
    mode: Mode = "mirror"

    def __post_init__(self) -> None:
        _one_of(self, "mode", "mirror", "append")


@dataclass(frozen=True)
class PipelineConfig:
    """How the Spark side works. ``name`` is written into every table's commits, with the LSN."""

    name: str = "wal2lake"
    trigger_seconds: float = 0.5
    max_bytes_per_trigger: int = 256 << 20
    snapshot_chunk_bytes: int = 64 << 20
    unrepresentable: Literal["error", "null"] = "error"
    text_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _positive(self, "trigger_seconds", "max_bytes_per_trigger", "snapshot_chunk_bytes")
        _one_of(self, "unrepresentable", "error", "null")


@dataclass(frozen=True)
class Config:
    """All of wal2lake.toml. ``spark`` holds Spark's own settings, passed through as they are."""

    source: SourceConfig = field(default_factory=SourceConfig)
    log: LogConfig = field(default_factory=LogConfig)
    lake: LakeConfig = field(default_factory=LakeConfig)
    pipeline: PipelineConfig = field(default_factory=PipelineConfig)
    spark: Mapping[str, str] = field(default_factory=dict)

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
    def from_dict(cls, document: Mapping[str, Any]) -> Config:
        """Build from TOML's shape; an unknown section or key is an error that lists the known ones."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(document) - known)
        if unknown:
            raise ConfigError(f"Unknown section [{unknown[0]}].", hint=f"Known sections: {', '.join(sorted(known))}.")
        return cls(
            source=_section(SourceConfig, "source", document),
            log=_section(LogConfig, "log", document),
            lake=_section(LakeConfig, "lake", document),
            pipeline=_section(PipelineConfig, "pipeline", document),
            spark={str(k): _spark_value(v) for k, v in _flatten(document.get("spark", {})).items()},
        )


def _read_toml(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"There is no {path}.", hint="`wal2lake init` writes one.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None


def _environment() -> dict[str, str]:
    """WAL2LAKE_SOURCE_DSN → source.dsn; Spark's settings have dots and so come by file or flag only."""
    found = {}
    for section in ("source", "log", "lake", "pipeline"):
        prefix = f"WAL2LAKE_{section.upper()}_"
        for name, value in os.environ.items():
            if name.startswith(prefix):
                found[f"{section}.{name.removeprefix(prefix).lower()}"] = value
    return found


def _section(kind: Callable[..., T], name: str, document: Mapping[str, Any]) -> T:
    values = document.get(name, {})
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ConfigError(f"Unknown setting {name}.{key}.", hint=f"Known in [{name}]: {', '.join(known)}.")
    return kind(**{key: _coerce(f"{name}.{key}", known[key].default, value) for key, value in values.items()})


def _coerce(name: str, default: object, value: Any) -> Any:
    """Give ``value`` the type of the setting's default; environment variables arrive as text."""
    try:
        if isinstance(default, tuple):
            return tuple(value.split(",")) if isinstance(value, str) else tuple(value)
        if isinstance(default, str) and not isinstance(value, str):
            raise ValueError
        return cast(Callable[[Any], Any], type(default))(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must be of type {type(default).__name__}.") from None


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """TOML reads ``spark.sql.x = 1`` below [spark] as nested tables; Spark wants the dotted name."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return {(k if k.startswith("spark.") or prefix else f"spark.{k}"): v for k, v in flat.items()}


def _spark_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _absolute(config: Config, base: Path) -> Config:
    return replace(
        config,
        log=replace(config.log, path=_resolve(config.log.path, base)),
        lake=replace(config.lake, path=_resolve(config.lake.path, base)),
    )


def _resolve(path: str, base: Path) -> str:
    return path if "://" in path else str((base / path).absolute())


def _positive(section: object, *names: str) -> None:
    for name in names:
        if not getattr(section, name) > 0:
            raise ConfigError(f"{name} must be greater than 0.")


def _one_of(section: object, name: str, *allowed: str) -> None:
    if getattr(section, name) not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}.")
