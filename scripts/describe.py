"""What a package index shows of the project: README, in which a link into the repository is the path it leads to.

An index has no files beside the description, so such a link would be dead there. The build backend calls this.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"\[([^\]]*)\]\((?!https://|#)([^)]*)\)")
_PATHS = "Paths such as docs/tutorial.md are those of the repository; the source distribution has docs/ too.\n"


class CustomMetadataHook(MetadataHookInterface):
    """Hatchling finds it by what it is derived from."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {"content-type": "text/markdown", "text": f"{_LINK.sub(_as_path, text)}\n{_PATHS}"}


def _as_path(link: re.Match[str]) -> str:
    text, path = link.groups()
    return text if text == path else f"{text} ({path})"
