"""Settings that may hold a secret: they name the environment variable that holds it, and never have it in them.

So a configuration, and a URL made of it, may be logged, shown, pickled and given to Spark as it is. A variable stands
as ``$NAME`` or ``${NAME}``, as shells have it, and is looked up by whoever needs what it holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from wal2lake.errors import ConfigError

_SECRET: Final = re.compile(
    r"secret|token|passw|credential|sas|key|headers|proxy_url|customer|connection_string", re.IGNORECASE
)
_PLAIN: Final = (  # names that end so have such a word in them, and name what is nobody's secret
    "access_key_id", "kms_key_id", "bucket_key_enabled", "key_encoding", "token_file", "application_credentials",
    "credential_type",
)  # fmt: skip
_CREDENTIALS: Final = re.compile(r"https?://[^/?#]*@|[a-z][a-z0-9+.-]*://[^/?#]*:[^/?#]*@", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")


def refuse_secrets(setting: str, values: Mapping[str, str]) -> None:
    """Raise ConfigError for a value of ``setting`` that seems to be a secret, without repeating it."""
    for name, value in values.items():
        known = re.sub("[-.]", "_", name.lower())
        hidden = _SECRET.search(known) and not known.endswith(_PLAIN)
        if (hidden or _CREDENTIALS.match(value)) and not _VARIABLE.fullmatch(value):
            hint = f'Put it into an environment variable, and name that one: {name} = "$MY_VARIABLE".'
            raise ConfigError(f"{setting}.{name} has a secret, which no setting may have in it.", hint=hint)


def looked_up(setting: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values with what the environment variables hold. Raises ConfigError for one that is not set."""
    found = {}
    for name, value in values.items():
        variable = _VARIABLE.fullmatch(value)
        if variable is None:
            found[name] = value
            continue
        held = os.environ.get(variable[1] or variable[2])
        if held is None:
            unset = variable[1] or variable[2]
            raise ConfigError(f"{setting}.{name} names the environment variable {unset}, which is not set here.")
        found[name] = held
    return found
