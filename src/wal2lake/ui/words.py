"""Figures as text, and every text as text: what templates print goes through here.

The rule: a template escapes all it prints, and shows names, which database users chose, without what turns the
direction of writing or breaks lines.
"""

from __future__ import annotations

import re
import time
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from wal2lake import __version__
from wal2lake.lsn import LSN
from wal2lake.monitor.view import format_duration, size
from wal2lake.names import printable

_TYPED = re.compile("`([^`]+)`")
FOLDER = Path(str(files("wal2lake.ui")))


def environment() -> Environment:
    """The templates' environment."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "size": size,
        "duration": format_duration,
        "count": lambda number: f"{number:,.0f}",
        "few": few,
        "seconds": seconds,
        "as_lsn": LSN,
        "ago": lambda ts: f"{format_duration(max(0.0, time.time() - ts))} ago",
        "moment": lambda ts: time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ts)),
        "query": lambda text: quote(str(text), safe=""),
        "prose": prose,
        "state": lambda state: state.replace("_", " "),
    }
    made.globals |= {"version": __version__}
    return made


def few(number: float) -> str:
    """A number with two or three digits that matter: "7", "0.4", "12.3 k", "4.2 M"."""
    for unit, worth in (("", 1.0), (" k", 1e3), (" M", 1e6), (" G", 1e9)):
        if number < 1000 * worth or unit == " G":
            scaled = number / worth
            return f"{scaled:.0f}{unit}" if scaled >= 100 or scaled == int(scaled) else f"{scaled:.1f}{unit}"
    raise AssertionError("the last unit takes all")


def seconds(value: float) -> str:
    """A short time with what matters of it: "0.4 s", "12 s", "3 min"."""
    return f"{value:.1f} s" if value < 10 else format_duration(value)


def prose(text: str) -> Markup:
    """A sentence of ours, in which what stands between backticks is to be typed."""
    return Markup(_TYPED.sub(r"<code>\1</code>", str(escape(printable(text)))))  # noqa: S704 - escaped right here


def _finalize(value: Any) -> Any:
    """None prints as nothing."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
