"""What is in force is kept once, beside the segments: whole, checked, as long as a segment names it, and no longer."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.changelog.conftest import IDENTITY
from tests.changelog.memory import MemoryStorage
from tests.changelog.test_stop_the_losses import bits_flipped
from wal2lake.capture.frames import without_headers
from wal2lake.changelog import format as layout
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.plan import Extent
from wal2lake.changelog.relations import InForce, superfluous
from wal2lake.changelog.writer import LogWriter
from wal2lake.columnar.headers import identifier
from wal2lake.errors import LogCorruptError, LogMismatchError
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import PgoutputMessage, Relation, Type
from wal2lake.spark.typed import newest_schemas
from wal2lake.tables.committed import DecodeRules
from wal2lake.testing.stream import ScriptedStream, insert, relation

Writer = Callable[..., LogWriter]
OLD = Path(__file__).with_name("format2")


def table(oid: int, columns: int = 1) -> Relation:
    return relation(oid, f"table_{oid}", ("id", *(f"column_{number}" for number in range(columns))))


def tables(log: ChangeLog) -> list[str]:
    """As a query of Spark's finds them: by the newest segment that says something of each."""
    return sorted(schema.name for schema in newest_schemas(log, log.last_end_lsn, DecodeRules()))


def files(log: ChangeLog) -> list[str]:
    return [f"relations/{name}" for name in log.storage.names("relations")]


# An announcement of one of few tables or types, each in one of few shapes; None: the stream begins anew.
announcements = st.lists(
    st.none() | st.tuples(st.sampled_from("RY"), st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=25
)


@given(said=announcements)
@settings(max_examples=60, deadline=None)
def test_each_segment_knows_what_its_session_announced_before_it(
    said: list[tuple[str, int, int] | None],
) -> None:
    stream, expected, in_force = ScriptedStream(), list[list[bytes]](), dict[tuple[str, int], bytes]()
    with LogWriter(MemoryStorage(), IDENTITY) as writer:
        for one in said:
            if one is None:
                writer.new_session()
                in_force = {}
                continue
            kind, oid, shape = one
            message: PgoutputMessage = table(oid, shape) if kind == "R" else Type(oid, "public", f"type_{shape}")
            expected.append(sorted(in_force.values()))
            writer.append(without_headers(stream.transaction(message)))
            in_force[kind, oid] = write_message(message)
            ChangeLog.open(writer.log.storage).trim(0)  # no segment is to be without what it names
    log = ChangeLog.open(writer.log.storage)
    for info, before in zip(log.segments, expected, strict=True):
        assert sorted(log.in_force(Extent(info.seq, 0, 1))) == before
        assert sorted(log.relations_before(info)) == [identifier(payload) for payload in before if payload[:1] == b"R"]
    assert list(verify_log(writer.log.storage)) == []


def test_files_are_as_few_as_the_logarithm_and_written_as_often() -> None:
    """As where many tables come one by one, each in a segment of its own."""
    stream = ScriptedStream()
    with LogWriter(MemoryStorage(), IDENTITY) as writer:
        for oid in range(250):
            info = writer.append(without_headers(stream.transaction(table(oid, 20))))
        log = ChangeLog.open(writer.log.storage)
    assert len(info.relation_files) <= 8
    written = sum(len(layout.read_relations(log.storage.map(name), name)) for name in files(log))
    assert written <= 250 * 8
    assert len(log.in_force(Extent(info.seq, 0, 1))) == 249


def test_what_is_announced_again_in_the_same_words_is_not_written_again() -> None:
    stream = ScriptedStream()
    with LogWriter(MemoryStorage(), IDENTITY) as writer:
        for _ in range(3):
            writer.append(without_headers(stream.transaction(table(1), insert(1, "a", oid=1))))
    assert len(files(writer.log)) == 1


def test_any_bit_of_a_file_of_relations() -> None:
    in_force, file = InForce().announce([write_message(table(1))]).file(1)
    assert file is not None
    name, whole = file
    assert layout.read_relations(pa.py_buffer(whole), name) == in_force.messages
    for damaged in [*bits_flipped(whole), b"", whole[:-1], whole + b"x"]:
        with pytest.raises(LogCorruptError, match=rf"{name} cannot be read.*damaged.*Restore"):
            layout.read_relations(pa.py_buffer(damaged), name)


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_file_of_relations_that_is_of_no_use_is_named_once(open_writer: Writer, how: str) -> None:
    """Whoever plans without it goes on; whoever needs it gets one error, and `log verify` tells of it once."""
    stream = ScriptedStream()
    with open_writer() as writer:
        for number in range(4):
            writer.append(without_headers(stream.transaction(table(1), insert(number, "a", oid=1))))
        (name,) = files(writer.log)
    path = Path(writer.log.storage.path(name))
    path.unlink() if how == "missing" else path.write_bytes(path.read_bytes()[:-1])
    log = ChangeLog.open(writer.log.storage.root)
    assert len(log.plan(0, stream.lsn)) == 4
    assert log.counts(Extent(3, 0, log.segments[3].rows))[1] == {"I": 1}
    assert log.relation_runs(Extent(0, 0, 3), 1), "the first segment needs none"
    asks = (lambda: log.relation_runs(Extent(3, 0, 4), 1), lambda: log.in_force(Extent(1, 0, 4)), lambda: tables(log))
    for ask in asks:
        with pytest.raises(LogCorruptError, match=rf"{name} cannot be read: it is {how}.*Restore"):
            ask()
    assert [f"{name} cannot be read: it is {how}" in fault for fault in verify_log(log.storage)] == [True]


def test_what_the_files_say_is_compared_with_what_the_messages_say(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        writer.append(without_headers(stream.transaction(table(1), insert(0, "a", oid=1))))
        _, other = InForce().announce([write_message(table(1, 2))]).file(1)
        assert other is not None
        writer.log.storage.create(*other)
        info = writer.append(without_headers(stream.transaction(insert(1, "a", oid=1))))
        storage = writer.log.storage
    file = storage.map(info.name)
    values = {name: getattr(info, name) for name in info.__dataclass_fields__} | {"relation_files": (other[0],)}
    wrong = layout.Segment(
        layout.SegmentInfo(**values), layout.read_batch(file, info.name), layout.read_transactions(file, info.name)
    )
    storage.put(info.name, b"".join(map(bytes, layout.write_segment(wrong, IDENTITY, None))))
    (fault,) = verify_log(storage)
    assert fault == f"{info.name}: the relations in force are not what the messages before it say."


# -- crashes


class Crash(Exception):
    """The writer dies."""


def test_a_crash_between_the_two_files_is_survived(open_writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends what was not acknowledged again, in other pieces and with other tables in it."""
    stream = ScriptedStream()
    with open_writer() as writer:
        writer.append(without_headers(stream.transaction(table(1), insert(0, "a", oid=1))))
        start, create = stream.lsn, writer.log.storage.create
        torn = stream.transaction(insert(1, "b", oid=1))

        def die_at_the_segment(name: str, *parts: bytes | pa.Buffer) -> bool:
            if name.startswith("segments/"):
                raise Crash
            return create(name, *parts)

        monkeypatch.setattr(writer.log.storage, "create", die_at_the_segment)
        with pytest.raises(Crash):
            writer.append(without_headers(torn))
    monkeypatch.undo()
    (left,) = files(writer.log)
    with open_writer() as writer:
        assert writer.durable_lsn == start
        assert list(verify_log(writer.log.storage)) == []
        writer.append(
            without_headers([torn[0], *ScriptedStream(start).transaction(table(2), table(1))[1:3], *torn[1:]])
        )
        for number in range(3):
            writer.append(without_headers(stream.transaction(insert(number, "c", oid=1))))
        log = ChangeLog.open(writer.log.storage.root)
    assert log.segments[1].relation_files == () and left not in log.segments[2].relation_files
    assert list(verify_log(log.storage)) == []
    assert tables(log) == ["table_1", "table_2"]
    log.trim(0)
    assert files(log) == list(log.segments[-1].relation_files)


def test_a_full_disk_between_the_two_files_costs_nothing(open_writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call is made again: the file is there by then."""
    stream = ScriptedStream()
    with open_writer() as writer:
        writer.append(without_headers(stream.transaction(table(1), insert(0, "a", oid=1))))
        create, sent = writer.log.storage.create, without_headers(stream.transaction(insert(1, "b", oid=1)))

        def full(name: str, *parts: bytes | pa.Buffer) -> bool:
            if name.startswith("segments/"):
                raise OSError(errno.EIO, "no")
            return create(name, *parts)

        with monkeypatch.context() as patch, pytest.raises(OSError, match="no"):
            patch.setattr(writer.log.storage, "create", full)
            writer.append(sent)
        assert writer.append(sent).relation_files == tuple(files(writer.log))
        assert writer.append(without_headers(stream.transaction(insert(2, "c", oid=1)))).relation_files
    assert list(verify_log(writer.log.storage)) == []


# -- retention


def test_trimming_removes_what_no_segment_names(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        for oid in range(8):
            writer.append(without_headers(stream.transaction(table(oid), insert(1, "a", oid=oid))))
        log, asleep = (ChangeLog.open(writer.log.storage.root) for _ in range(2))
        assert (len(asleep.segments), len(files(log))) == (8, 7)
        log.release("a", stream.lsn)
        assert log.trim(3600) == 0
        assert log.trim(0) == 7
        assert files(log) == list(log.segments[-1].relation_files)
        assert tables(log) == [f"table_{oid}" for oid in range(8)]
        with pytest.raises(LogMismatchError, match="no longer holds"):
            asleep.relation_runs(Extent(5, 0, 4), 1)
        writer.append(without_headers(stream.transaction(insert(1, "b", oid=0))))
        log.refresh()
        assert [run.relation for run in log.relation_runs(Extent(8, 0, 3), 0)] == [table(0)]
    assert list(verify_log(log.storage)) == []


def test_a_trim_takes_nothing_that_is_named_meanwhile() -> None:
    """It has seen segments up to 5. A segment after it names what segment 5 does, or was written for one after it."""
    names = [f"relations/{seq:016d}-{seq:032x}.arrow" for seq in (3, 4, 5, 6, 7)]
    assert superfluous([*names, "relations/junk"], [(4, [names[0]]), (5, [names[2]])]) == [names[1]]
    assert superfluous(names, []) == []


# -- a log of format 2


@pytest.fixture
def old_log(tmp_path: Path) -> Path:
    """Made by the version before the files of relations (an Arrow stream in each segment): a transaction over two
    segments, two tables, a type, an idle position."""
    return Path(shutil.copytree(OLD, tmp_path / "log"))


def test_a_log_of_format_2_is_read(old_log: Path) -> None:
    log = ChangeLog.open(old_log)
    assert (log.identity.format, len(log.segments), tables(log)) == (2, 4, ["t", "u"])
    before = [log.in_force(Extent(info.seq, 0, 1)) for info in log.segments]
    mood, t, u = (
        write_message(m) for m in (Type(90000, "public", "mood"), relation(), relation(16390, "u", ("id", "w")))
    )
    assert before == [[], [t], [mood, t, u], [mood, t, u]]
    (run,) = log.relation_runs(Extent(3, 0, 2), 16390)
    assert (run.relation.name, set(run.types)) == ("u", {90000})
    assert list(verify_log(log.storage)) == []


def test_a_log_of_format_2_goes_on_in_the_present_one(old_log: Path) -> None:
    with LogWriter(old_log, IDENTITY) as writer:
        stream = ScriptedStream(writer.durable_lsn)
        for number in range(2):
            writer.append(without_headers(stream.transaction(relation(), insert(number, "e"))))
        log = ChangeLog.open(old_log)
    assert [len(info.relation_files) for info in log.segments] == [1, 1, 1, 1, 0, 1]
    assert (tables(log), list(verify_log(log.storage))) == (["t", "u"], [])
    log.release("a", stream.lsn)
    assert (log.trim(0), list(verify_log(log.storage))) == (5, [])


def test_a_segment_of_format_2_whose_relations_do_not_parse_is_named(old_log: Path) -> None:
    with pytest.raises(LogCorruptError, match=r"segments/0000000000000001\.arrow.*checksum"):
        name = layout.segment_name(1)
        whole = (old_log / name).read_bytes()
        at = whole.rindex(b"wal2lake.relations") + 100  # the footer's; the file begins with the same
        layout.read_relations(pa.py_buffer(whole[:at] + b"\0\0\0" + whole[at + 3 :]), name)
