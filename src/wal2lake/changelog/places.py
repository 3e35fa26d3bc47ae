"""What is where in the log's folder, by names relative to it: here alone.

::

    slot.json                  which slot is being made for a log that is not there yet
    log.json                   LogIdentity: which server, slot and publication; written once
    segments/<seq>.arrow       raw pgoutput messages and the index of the transactions that end there; immutable
    relations/<seq>-….arrow    the Relation and Type messages in force where segments start; immutable (relations.py)
    timelines/<number>.json    a timeline that the log went on on after a promotion, with its history; written once
    position.json, .copy.json  how far an idle stream is durable though it brought nothing to write; twice
    trimmed.json               the first segment that retention has left; in an object store alone
    consumers/<name>.json      how far a reader is done, for retention
    barriers/<name>.json       a commit LSN that readers must not batch across, asked for by verify
    snapshots/<pipeline>/…     a folder for each table: its state, and the chunks of its copy (tables.py)
    requests/<pipeline>/…      what somebody wants of a table, until the pipeline does it (requests.py)
    events/<source>/<nr>.json  what happened, in pages that begin with the event of that number (events.py)
    status/                    what capture and pipeline say of themselves (status.py), and the logs of `run`'s children
    checkpoints/<pipeline>/    Spark's own
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

SLOT, IDENTITY, POSITION = "slot.json", "log.json", "position.json"
POSITION_COPY = "position.copy.json"  # written before it, and as good
POSITIONS: Final = (POSITION, POSITION_COPY)
TRIMMED = "trimmed.json"
SEGMENTS, RELATIONS = "segments", "relations"
CONSUMERS, BARRIERS, STATUS, SNAPSHOTS = "consumers", "barriers", "status", "snapshots"
TIMELINES = "timelines"  # there is no such folder before the first promotion
FOLDERS: Final = (SEGMENTS, RELATIONS, CONSUMERS, BARRIERS, STATUS, SNAPSHOTS)
STATE = "state.json"  # of a table, in its folder below SNAPSHOTS
WRITER_LOCK = ".lock"  # held by the one who appends
EVENTS = "events"  # made when something happens
REQUESTS, _CHECKPOINTS = "requests", "checkpoints"
_PIPELINE_LOCK = ".lock"  # in the folder of a pipeline's tables
_LONGEST = 255  # bytes of a file's name
_COMPACT = "="  # stands in no percent encoding
# What makes it a log comes first, but for what would make the next one a log of another timeline.
EVERYTHING: Final = (TIMELINES, IDENTITY, SLOT, *POSITIONS, TRIMMED, *FOLDERS, EVENTS, REQUESTS, _CHECKPOINTS)


def tables_of(pipeline: str) -> str:
    return f"{SNAPSHOTS}/{pipeline}"


def pipeline_lock(pipeline: str) -> str:
    """Held by the process that runs the pipeline."""
    return f"{tables_of(pipeline)}/{_PIPELINE_LOCK}"


def table_folder(pipeline: str, namespace: str, name: str) -> str:
    return f"{tables_of(pipeline)}/{_file_name(namespace, name)}"


def state_document(pipeline: str, folder: str) -> str:
    """Of a table, by the last component of its folder."""
    return f"{tables_of(pipeline)}/{folder}/{STATE}"


def requests_of(pipeline: str) -> str:
    return f"{REQUESTS}/{pipeline}"


def request_document(pipeline: str, namespace: str, name: str) -> str:
    return f"{requests_of(pipeline)}/{_file_name(namespace, name, len('.json'))}.json"


def table_of(folder: str) -> tuple[str, str]:
    """(namespace, name) of a folder's last component."""
    if folder.startswith(_COMPACT):
        namespace, _, name = urlsafe_b64decode(folder.removeprefix(_COMPACT)).decode().partition("\0")
        return namespace, name
    namespace, _, name = folder.partition(".")
    return unquote(namespace), unquote(name)


def events_of(source: str) -> str:
    return f"{EVENTS}/{source}"


def event_page(source: str, first: int) -> str:
    return f"{events_of(source)}/{first:012d}.json"


def status_document(role: str) -> str:
    return f"{STATUS}/{role}.json"


def child_log(folder: str | Path, role: str) -> Path:
    """Where `run` writes what its child says, in the folder that the log has on this machine (LogConfig.folder)."""
    return Path(folder) / STATUS / f"{role}.log"


def checkpoint(folder: str | Path, pipeline: str) -> Path:
    """Where Spark keeps its checkpoint of the stream, in that folder."""
    return Path(folder) / _CHECKPOINTS / pipeline


def _file_name(namespace: str, name: str, suffix: int = 0) -> str:
    """``schema.table``. Where that and ``suffix`` bytes are too long for a file's name: "=" and base64 of both names
    with a zero byte between them, 173 bytes for two names of 63."""
    plain = f"{_encode(namespace)}.{_encode(name)}"
    if len(plain.encode()) + suffix <= _LONGEST:
        return plain
    return _COMPACT + urlsafe_b64encode(f"{namespace}\0{name}".encode()).decode()


def _encode(name: str) -> str:
    """A dot inside a name must not look like the one between schema and table.

    Letters of any script stay as they are, so that most names of 63 bytes need no more.
    """
    return "".join(char if ord(char) > 0x7F else quote(char, safe="").replace(".", "%2E") for char in name)
