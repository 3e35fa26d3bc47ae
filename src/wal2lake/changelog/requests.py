"""What somebody wants of a table, left as a word in the log: ``requests/<pipeline>/<schema>.<table>.json``.

The rule: only the process that runs the pipeline changes a table's document. So a command leaves word, whether the
pipeline runs or not; who runs it does what is wanted, and then removes the word. Dying in between, it does it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, cast, get_args

from wal2lake.changelog.documents import parsing, read_document, write_document
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.log import Place
from wal2lake.changelog.places import request_document, requests_of
from wal2lake.errors import LogCorruptError

Wish = Literal["retry", "resync", "skip"]
_CURE = "Remove it, and ask again."


class Request(NamedTuple):
    """``wish`` is wanted of the table ``namespace.name``; ``file``: where that stands in the log."""

    namespace: str
    name: str
    wish: Wish
    file: str


def read_request(data: bytes, file: str) -> Request:
    """Raises LogCorruptError for a damaged one."""
    document = read_document(data, file, _CURE)
    with parsing(file, _CURE):
        namespace, name, wish = document["namespace"], document["name"], document["wish"]
    if wish not in get_args(Wish):
        raise LogCorruptError(f"{file} asks for something unknown.", hint=_CURE)
    return Request(namespace, name, cast(Wish, wish), file)


class Requests:
    """The words left for one pipeline."""

    def __init__(self, log: Place, pipeline: str) -> None:
        self._storage, self._pipeline = storage_at(log), pipeline

    def put(self, namespace: str, name: str, wish: Wish) -> None:
        """Durable when it returns; what was wanted of the table before is not any more."""
        self._storage.prepare(requests_of(self._pipeline))
        document = write_document({"namespace": namespace, "name": name, "wish": wish})
        self._storage.put(request_document(self._pipeline, namespace, name), document)

    def all(self) -> Iterator[Request]:
        """Raises LogCorruptError for a damaged one."""
        for name in self._storage.names(requests_of(self._pipeline)):
            file = f"{requests_of(self._pipeline)}/{name}"
            yield read_request(self._storage.get(file), file)

    def done(self, request: Request) -> None:
        self._storage.remove(request.file)
