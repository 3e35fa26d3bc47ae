"""Settings that may hold a secret: they name the environment variable that holds it, as ``$NAME``, and never itself.

So a configuration may be logged, shown and pickled as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from wal2lake.errors import ConfigError

_SECRET: Final = re.compile(r"secret|token|passw|credential|key|connection-string", re.IGNORECASE)
_PLAIN: Final = re.compile(r"access-key-id|key-id|key-encoding", re.IGNORECASE)  # such a word, and nobody's secret
_IN_URL: Final = re.compile(r"://[^/?#]*:[^/?#]*@")  # a password in front of a host
_VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


def refuse_secrets(setting: str, values: Mapping[str, str]) -> None:
    """Raise ConfigError for a value of ``setting`` that seems to be a secret, without repeating it."""
    for name, value in values.items():
        secret = _SECRET.search(name) and not _PLAIN.search(name)
        if (secret or _IN_URL.search(value)) and not _VARIABLE.fullmatch(value):
            hint = f'Put it into an environment variable, and name that one: {name} = "$MY_VARIABLE".'
            raise ConfigError(f"{setting}.{name} has a secret, which no setting may have in it.", hint=hint)


def looked_up(setting: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values with what the environment variables hold. Raises ConfigError for one that is not set."""
    found = {}
    for name, value in values.items():
        variable = _VARIABLE.fullmatch(value)
        if variable is not None and variable[1] not in os.environ:
            raise ConfigError(f"{setting}.{name} names the environment variable {variable[1]}, which is not set here.")
        found[name] = value if variable is None else os.environ[variable[1]]
    return found
