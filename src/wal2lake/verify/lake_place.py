"""A table of the lake where it lies, on a disk or in an object store: opened, and its commits read, for who verifies.

Nothing of the sinks is used, but for where a table lies and how that is reached. delta-rs opens it, and commits are
read as what they are, JSON: asked for its history delta-rs keeps Python's lock until a store has answered.

Source: Delta transaction log protocol, "Commit Provenance Information".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from wal2lake.errors import VerifyError
from wal2lake.lakes import SETTING, Place


def open_table(place: Place, version: int | None = None) -> DeltaTable | None:
    """The table there, in its newest version or this one; None where there is none. Raises what a store says."""
    if place.is_local and not DeltaTable.is_deltatable(place.uri):
        return None
    with asking(place):
        try:
            return DeltaTable(place.uri, version=version, storage_options=place.storage_options())
        except TableNotFoundError:
            return None


def has_table(place: Place) -> bool:
    """Whether a table is there, damaged or not. Raises what a store says."""
    if place.is_local:
        return DeltaTable.is_deltatable(place.uri)
    try:
        return open_table(place) is not None
    except DeltaError:  # which is not the store's
        return True


@contextmanager
def asking(place: Place) -> Iterator[None]:
    """What delta-rs says of an object store leaves the block as one of our errors, in which nothing is repeated."""
    try:
        yield
    except TableNotFoundError:
        raise
    except (DeltaError, OSError) as error:
        if place.is_local:
            raise
        from wal2lake.object_stores import explained, is_of_store  # noqa: PLC0415 - an extra

        if is_of_store(str(error)):
            raise explained(place.uri, str(error), SETTING) from None
        raise


def read_file(place: Place, path: str) -> bytes:
    """A file of the table, whole. Raises FileNotFoundError, and what a store says."""
    if place.is_local:
        return Path(place.uri, path).read_bytes()
    import obstore  # noqa: PLC0415 - an extra

    from wal2lake.object_stores import ObjectStore, bucket_client  # noqa: PLC0415

    store = ObjectStore(place.url, bucket_client(place.url))
    with store.asking(path):
        return obstore.get(store.client, f"{place.url.prefix}/{path}".lstrip("/")).bytes().to_bytes()


def commits_back_from(place: Place, version: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The versions from ``version`` down, as far as the log has them, with what each commit says of itself."""
    for number in range(version, -1, -1):
        try:
            lines = read_file(place, f"_delta_log/{number:020d}.json").splitlines()
        except FileNotFoundError:
            return
        try:
            said = (json.loads(line).get("commitInfo") for line in lines if line.strip())
            yield number, next(filter(None, said), {})
        except (ValueError, AttributeError):
            raise VerifyError(f"Version {number} in the log of {place.uri} is no JSON.") from None
