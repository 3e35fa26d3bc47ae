"""Whether a Delta table can be kept at a place: one is made there, changed, read and deleted, as it will be later.

The rule: nothing is ready that was not tried with the very libraries and options that are used afterwards. Among what
is tried is the one condition that a commit's safety stands on: of two that would make the same version one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import create_table_with_add_actions

from wal2lake.errors import ConfigError, ConnectError, RightsError, Wal2LakeError
from wal2lake.lakes import Lake, Place
from wal2lake.sinks.base import SinkUnavailableError
from wal2lake.sinks.datafiles import read_batches, write_data_files
from wal2lake.sinks.folder import Folder
from wal2lake.sinks.sink_errors import LakeRefusesError, failure

_PREFIX: Final = ".wal2lake-probe-"  # no schema's folder begins with a dot
_ROWS: Final = pa.record_batch([pa.array([1])], names=["id"])


def probe(lake: Lake) -> None:
    """Raises what stands in the way of tables in ``lake``, as a sentence about the lake as a whole."""
    folder = Folder(Place(f"{lake.uri}/{_PREFIX}{uuid4().hex}", lake.options))
    known = [f"_delta_log/{version:020d}.json" for version in range(2)]
    try:
        with _step(folder, lake, "put"):
            [file] = write_data_files(folder, [_ROWS], _ROWS.schema)
        known.append(file.path)
        with _step(folder, lake, "get"):
            assert next(read_batches(folder, file.path, _ROWS.schema)).equals(_ROWS)
        with _step(folder, lake, "list"):
            assert folder.names() == [file.path]
        with _step(folder, lake, "put and get"):
            _commit_twice(folder, lake)
    except BaseException:
        with suppress(Wal2LakeError), _step(folder, lake, "delete"):  # somebody is told of another error already
            folder.remove(known)
        raise
    with _step(folder, lake, "delete"):
        folder.remove(file.path for file in folder.files_below())
        if left := folder.files_below():
            raise ConfigError(f"{folder.uri}/{left[0].path} was deleted, and is there all the same.")


def _commit_twice(folder: Folder, lake: Lake) -> None:
    options = folder.place.storage_options()
    schema = Schema.from_arrow(_ROWS.schema)
    create_table_with_add_actions(folder.uri, schema, [], mode="error", storage_options=options)
    both = [DeltaTable(folder.uri, storage_options=options) for _ in range(2)]
    once = CommitProperties(max_commit_retries=0)
    hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    both[0].create_write_transaction([], "append", schema, commit_properties=once, post_commithook_properties=hooks)
    try:
        both[1].create_write_transaction([], "append", schema, commit_properties=once, post_commithook_properties=hooks)
    except CommitFailedError:
        if not folder.put_if_absent(f"_delta_log/{1:020d}.json", b"{}"):
            return
    raise ConfigError(
        f"The object store of {lake.uri} does not keep to the condition of a put (If-None-Match): two pipelines could"
        " write over each other.",
        hint="Use a store that does, as S3, GCS and Azure Blob Storage do, or a folder for lake.path.",
    )


@contextmanager
def _step(folder: Folder, lake: Lake, what: str) -> Iterator[None]:
    """What the block cannot do leaves it as a sentence about ``lake``."""
    try:
        try:
            yield
        except (DeltaError, OSError) as error:
            raise failure(folder.uri, error) from None
    except LakeRefusesError:
        left = f" {folder.uri} is left there." if what == "delete" else ""
        raise RightsError(
            f"The object store does not let these credentials {what} objects below {lake.uri}.{left}",
            hint="Allow them to get, put, delete and list objects there; it may be that the key is wrong.",
        ) from None
    except SinkUnavailableError as error:
        hint = "Is anybody there? An endpoint of your own is lake.options.endpoint."
        raise ConnectError(error.message.replace(folder.uri, lake.uri), hint=hint) from None
    except Wal2LakeError as error:
        error.message = error.message.replace(folder.uri, lake.uri)
        raise
