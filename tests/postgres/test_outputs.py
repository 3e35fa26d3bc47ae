"""What recv, receivewal and basebackup decide without a server."""

from __future__ import annotations

import json
import re
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from wal2lake.decoding import Decoder
from wal2lake.errors import ConfigError, LogFullError, PluginError, ProtocolError
from wal2lake.files import put
from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import (
    AbortInfo,
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    Message,
    Origin,
    PgoutputMessage,
    Prepare,
    Relation,
    RelationColumn,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession
from wal2lake.pgoutput.tuples import NULL, UNCHANGED, OldTuple, TupleColumn, TupleData
from wal2lake.postgres import plugin_output
from wal2lake.postgres.outputs import JsonLinesOutput, RawOutput
from wal2lake.postgres.physical.archive import inside
from wal2lake.postgres.physical.manifest import read_manifest
from wal2lake.postgres.physical.segments import resume_position, segment_name
from wal2lake.postgres.plugin_output import json_output
from wal2lake.postgres.system import parse_timeline_history
from wal2lake.wire.replication import XLogData

RELATION = Relation(
    1, "s", "t", "d", (RelationColumn(1, "id", 20, -1), RelationColumn(0, "a", 25, -1), RelationColumn(0, "b", 17, -1))
)
ID, EMPTY, BINARY = TupleColumn("t", b"7"), TupleColumn("t", b""), TupleColumn("b", b"\x00\xff")
INSERT = Insert(1, TupleData((ID, NULL, EMPTY)))
STREAM: list[PgoutputMessage] = [
    Begin(LSN(64), 53_315_200_000_001, 9),
    RELATION,
    Insert(1, TupleData((ID, NULL, EMPTY))),
    Update(1, None, TupleData((ID, UNCHANGED, BINARY))),
    Update(1, OldTuple("K", (ID, NULL, NULL)), TupleData((ID, EMPTY, EMPTY))),
    Delete(1, OldTuple("K", (ID, NULL, NULL))),
    Truncate((1,), 0),
    replace(RELATION, replica_identity="f"),
    Update(1, OldTuple("O", (ID, NULL, EMPTY)), TupleData((ID, EMPTY, EMPTY))),
    Commit(0, LSN(64), LSN(72), 53_315_200_000_001),
]


def test_json_keeps_null_unchanged_not_sent_and_empty_apart(tmp_path: Path) -> None:
    output = json_output(tmp_path / "lines", PgoutputOptions(("p",)))
    for message in STREAM:
        output.write(XLogData(LSN(16), LSN(16), 0, write_message(message)))
    output.close()
    begin, _, *lines, commit = map(json.loads, (tmp_path / "lines").read_text().splitlines())
    assert commit["lsn"] == "0/48" and commit["end_lsn"] == "0/48"
    moment = "2001-09-09T01:46:40.000001Z"
    assert begin == {"lsn": "0/10", "xid": 9, "message": "Begin", "final_lsn": "0/40", "commit_ts": moment}
    head = {"lsn": "0/10", "xid": 9, "relation": "s.t"}
    assert lines == [
        {**head, "message": "Insert", "new": {"id": "7", "a": None, "b": ""}},
        {**head, "message": "Update", "new": {"id": "7", "b": "\\x00ff"}, "unchanged": ["a"]},
        {**head, "message": "Update", "key": {"id": "7"}, "new": {"id": "7", "a": "", "b": ""}},
        {**head, "message": "Delete", "key": {"id": "7"}},
        {"lsn": "0/10", "xid": 9, "message": "Truncate", "relations": ["s.t"], "options": 0},
        lines[5],
        {**head, "message": "Update", "old": {"id": "7", "a": None, "b": ""}, "new": {"id": "7", "a": "", "b": ""}},
    ]


def _lines(options: PgoutputOptions, messages: Sequence[PgoutputMessage], path: Path) -> list[dict[str, Any]]:
    session = PgoutputSession(options)
    with closing(json_output(path, options)) as output:
        for message in messages:
            output.write(XLogData(LSN(16), LSN(16), 0, session.send(message)))
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_time_of_an_abort_is_text_too_and_what_is_no_time_is_refused(tmp_path: Path) -> None:
    options = PgoutputOptions(("p",), 4, streaming="parallel")
    abort = StreamAbort(7, 8, AbortInfo(LSN(16), -1))
    ends = [abort, StreamAbort(7, 7, AbortInfo(LSN(16), -1))]
    lines = _lines(options, [StreamStart(7, True), RELATION, INSERT, StreamStop(), *ends], tmp_path / "lines")
    assert lines[-2]["abort"] == {"abort_lsn": "0/10", "abort_ts": "1999-12-31T23:59:59.999999Z"}
    with pytest.raises(PluginError, match="beyond the year 9999"):
        _lines(PgoutputOptions(("p",)), [Begin(LSN(64), (1 << 63) - 1, 9), RELATION, INSERT], tmp_path / "late")


def test_every_kind_of_message_has_the_keys_of_its_page(tmp_path: Path) -> None:
    """The plugin makes every object anew out of callbacks: none may lack a field of the message that it stands for."""
    options = PgoutputOptions(("p",), 4, messages=True, streaming="on", two_phase=True)
    told, origin = Message(True, LSN(1), "p", b"\xff"), Origin(LSN(5), "elsewhere")
    at, kind = LSN(64), Type(70000, "s", "mood")
    sent: list[PgoutputMessage] = [
        *(Begin(at, 0, 9), origin, kind, RELATION, INSERT, told, Commit(0, at, at, 0)),
        *(BeginPrepare(LSN(80), LSN(88), 0, 10, "a"), INSERT, Prepare(0, LSN(80), LSN(88), 0, 10, "a")),
        *(CommitPrepared(0, LSN(96), LSN(104), 0, 10, "a"), RollbackPrepared(0, at, LSN(112), 0, 0, 11, "b")),
        *(StreamStart(12, True), INSERT, StreamStop(), StreamAbort(12, 13), StreamCommit(12, 0, at, LSN(120), 0)),
        *(StreamStart(14, True), INSERT, StreamStop(), StreamPrepare(0, LSN(128), LSN(136), 0, 14, "c")),
    ]
    lines = _lines(options, sent, tmp_path / "lines")
    assert [line["message"] for line in lines] == [type(message).__name__ for message in sent]
    for line, message in zip(lines, sent, strict=True):
        if not isinstance(message, Insert):
            assert line.keys() >= {f.name for f in fields(message)} - {"xid"}  # type: ignore[arg-type]


def test_the_live_page_lists_the_keys_of_every_message() -> None:
    page = (Path(__file__).parents[2] / "docs" / "live.md").read_text()
    listed = {m[1]: re.findall(r"`(\w+)`", m[2]) for m in re.finditer(r"^\| `([A-Z][a-z]\w+)` \| (.*) \|$", page, re.M)}
    rows = {"Insert", "Update", "Delete", "Truncate"}
    kinds = {kind for kind in PgoutputMessage.__subclasses__() if kind.__name__ not in rows}
    assert listed.keys() == rows | {kind.__name__ for kind in kinds}
    for kind in kinds:
        told = [field.name for field in fields(kind) if field.name != "xid"]  # type: ignore[arg-type]
        assert [key for key in dict.fromkeys(listed[kind.__name__]) if key in told] == told, kind


def test_a_torn_transaction_is_cut_off_unless_the_file_is_anothers_now(tmp_path: Path) -> None:
    path, torn = tmp_path / "lines", [Begin(LSN(80), 0, 10), RELATION, INSERT]

    def write(output: RawOutput, *messages: PgoutputMessage) -> None:
        for message in messages:
            output.write(XLogData(LSN(16), LSN(16), 0, write_message(message)))
        output.flush()

    with closing(json_output(path, PgoutputOptions(("p",)))) as output:
        write(output, *STREAM)
        before = path.read_bytes()
        write(output, *torn)
        assert len(path.read_bytes()) > len(before)
        output.begin_stream()
        assert path.read_bytes() == before
        write(output, *torn)
        path.write_bytes(b"rotated\n")
    assert path.read_bytes() == b"rotated\n"


def test_a_large_transaction_goes_into_the_file_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_output, "FLUSH_LINES", 2)
    sent, sizes = [write_message(message) for message in STREAM], list[int]()
    with closing(json_output(tmp_path / "lines", PgoutputOptions(("p",)))) as output:
        for payload in sent:
            output.write(XLogData(LSN(16), LSN(16), 0, payload))
            sizes.append((tmp_path / "lines").stat().st_size)
        assert output.signalled() is False
        with pytest.raises(KeyboardInterrupt):  # a signal came while it wrote
            for payload in (write_message(Begin(LSN(80), 0, 10)), *sent[2:5]):
                output.write(XLogData(LSN(16), LSN(16), 0, payload))
    assert len(set(sizes)) > 2
    told = [json.loads(line)["message"] for line in (tmp_path / "lines").read_text().splitlines()]
    assert told == [type(message).__name__ for message in STREAM]


@pytest.mark.parametrize("more", [100, 20_000])
@pytest.mark.parametrize("make", [RawOutput, JsonLinesOutput, partial(json_output, options=PgoutputOptions(("p",)))])
def test_a_full_disk_leaves_what_was_whole(tmp_path: Path, make: Callable[[Path], RawOutput], more: int) -> None:
    """Also where the write fails in the midst of a line; what is buffered then is not written behind it."""
    path = tmp_path / "lines"
    *whole, begin, insert = (
        XLogData(LSN(16), LSN(16), 0, write_message(message)) for message in [*STREAM, Begin(LSN(80), 0, 10), INSERT]
    )
    sizes, one = list[int](), tmp_path / "one"
    with closing(make(one)) as output:
        for messages in (whole, [begin], [insert]):
            _write(output, *messages)
            sizes.append(one.stat().st_size)
    output = make(path)
    _write(output, *whole)
    with _no_file_larger_than(sizes[0] + more), pytest.raises(LogFullError, match=str(path)):
        _write(output, begin)
        for _ in range(1000):
            _write(output, *[insert] * 7)
    for call in (output.sync, output.close):
        with pytest.raises(LogFullError):  # nothing of it is acknowledged
            call()
    left = path.read_bytes()
    assert left.startswith(one.read_bytes()[: sizes[0]])
    flushed = [sizes[0], *range(sizes[1], sizes[1] + more, 7 * (sizes[2] - sizes[1]))]
    assert len(left) in ([sizes[0]] if output.computes else flushed)


def _write(output: RawOutput, *messages: XLogData) -> None:
    for message in messages:
        output.write(message)
    output.flush()


@contextmanager
def _no_file_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_end_that_writes_nothing_ends_what_is_in_the_file(tmp_path: Path) -> None:
    path, binary = tmp_path / "lines", STREAM[3]
    sent = [write_message(message) for message in STREAM if message is not binary]
    make = partial(Decoder, "debezium", (), PgoutputOptions(("p",)), fixed=True)
    with closing(plugin_output.PluginOutput(path, make)) as output:
        for payload in sent:
            output.write(XLogData(LSN(16), LSN(16), 0, payload))
            output.flush()
        before = path.read_bytes()
        output.begin_stream()
    assert before and path.read_bytes() == before


def test_a_transaction_whose_end_was_not_flushed_yet_is_whole(tmp_path: Path) -> None:
    """Its beginning is in the file behind the last whole one: what is torn behind it must not take that along."""
    path, sent = tmp_path / "lines", [write_message(message) for message in STREAM]
    with closing(json_output(path, PgoutputOptions(("p",)))) as output:
        for payload in sent[:3]:
            output.write(XLogData(LSN(16), LSN(16), 0, payload))
        output.flush()
        for payload in [*sent[3:], write_message(Begin(LSN(80), 0, 10)), write_message(INSERT)]:
            output.write(XLogData(LSN(16), LSN(16), 0, payload))
    told = [json.loads(line)["message"] for line in path.read_text().splitlines()]
    assert told == [type(message).__name__ for message in STREAM]


def test_another_plugins_text_goes_into_data(tmp_path: Path) -> None:
    output = JsonLinesOutput(tmp_path / "lines")
    output.write(XLogData(LSN(16), LSN(16), 0, b"COMMIT \xff"))
    output.close()
    assert json.loads((tmp_path / "lines").read_text()) == {"lsn": "0/10", "data": "COMMIT \\xff"}


def test_raw_output_appends(tmp_path: Path) -> None:
    for _ in range(2):
        output = RawOutput(tmp_path / "raw")
        output.write(XLogData(LSN(16), LSN(16), 0, b"two\nlines"))
        output.close()
    assert (tmp_path / "raw").read_bytes() == b"two\nlines\n" * 2


def test_a_full_disk_and_a_place_that_is_none() -> None:
    output = RawOutput("/dev/full")
    output.write(XLogData(LSN(16), LSN(16), 0, b"x"))
    with pytest.raises(LogFullError, match="/dev/full"):
        output.sync()
    with pytest.raises(LogFullError):
        output.close()
    with pytest.raises(ConfigError, match="cannot be written"):
        RawOutput("/absent/folder/file")


@pytest.mark.parametrize(
    ("lsn", "size", "name"),
    [
        (0, 16 << 20, "000000030000000000000000"),
        ((1 << 32) - 1, 16 << 20, "0000000300000000000000FF"),
        (1 << 32, 16 << 20, "000000030000000100000000"),
        ((5 << 32) + (3 << 30), 1 << 30, "000000030000000500000003"),
    ],
)
def test_segment_names(lsn: int, size: int, name: str) -> None:
    assert segment_name(3, lsn, size) == name


def test_where_to_go_on(tmp_path: Path) -> None:
    size = 16 << 20
    assert resume_position(tmp_path, size) is None
    for name in ("000000010000000000000004", "00000002.history", "notes.txt"):
        (tmp_path / name).touch()
    assert resume_position(tmp_path, size) == (1, 5 * size)
    (tmp_path / "000000010000000000000005.partial").touch()
    assert resume_position(tmp_path, size) == (1, 5 * size)
    (tmp_path / "000000020000000000000005").touch()
    assert resume_position(tmp_path, size) == (2, 6 * size)
    (tmp_path / "000000020000000000000006.gz.partial").touch()
    assert resume_position(tmp_path, size) == (2, 6 * size)
    (tmp_path / "000000020000000000000006.gz").touch()
    assert resume_position(tmp_path, size) == (2, 7 * size)
    (tmp_path / "000000020000000000000009.lz4").touch()
    assert resume_position(tmp_path, size) == (2, 10 * size)


def test_a_timeline_history() -> None:
    content = b"# comment\n1\t0/5000098\tno recovery target specified\n\n2\t1/0\tbefore 2026-11-21\n"
    first, second = parse_timeline_history(content)
    assert first == (1, LSN(0x5000098), "no recovery target specified")
    assert (second.timeline, second.lsn) == (2, LSN(1 << 32))
    for wrong in (b"x\t0/1\t", b"1\n"):
        with pytest.raises(ProtocolError):
            parse_timeline_history(wrong)


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside", "base/../../outside"])
def test_an_archive_cannot_lead_out_of_the_target(name: str) -> None:
    with pytest.raises(ProtocolError, match="leads out"):
        inside(name)
    assert inside("./base/1/2") == "base/1/2"


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"Files": [], "Manifest-Checksum": "00"}'])
def test_what_is_no_manifest(content: bytes) -> None:
    with pytest.raises(ProtocolError, match="manifest"):
        read_manifest(content)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    put(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
