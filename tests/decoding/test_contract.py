"""What a plugin must define, may write and may raise; a callback's failure is one error with callback and LSN."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.decoding.walsender import ONE_PIECE, TWO_PHASE, Listening, Walsender
from wal2lake.decoding import (
    LogicalDecodingContext,
    OutputPlugin,
    OutputPluginOptions,
    OutputPluginPrepareWrite,
    OutputPluginWrite,
    OutputType,
    Relation,
    ReorderBufferChange,
    ReorderBufferTXN,
    load_plugin,
)
from wal2lake.decoding.decoder import Decoder
from wal2lake.decoding.plugin import STREAMING_REQUIRED, TWO_PHASE_REQUIRED, check_callbacks
from wal2lake.errors import ConfigError, LogFullError, PluginError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Message, StreamAbort, Truncate
from wal2lake.testing.stream import insert, relation

Act = Callable[[LogicalDecodingContext], None]


class Least(OutputPlugin):
    """The callbacks that every plugin must have; ``act`` is done for each row."""

    act: Act | None = None

    def startup_cb(self, ctx: LogicalDecodingContext, opt: OutputPluginOptions, is_init: bool) -> None:
        opt.output_type = OutputType.TEXTUAL

    def begin_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN) -> None:
        pass

    def change_cb(
        self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, relation: Relation, change: ReorderBufferChange
    ) -> None:
        if self.act is not None:
            self.act(ctx)

    def commit_cb(self, ctx: LogicalDecodingContext, txn: ReorderBufferTXN, commit_lsn: LSN) -> None:
        pass


def _given(*callbacks: str, base: type[OutputPlugin] = Least) -> type[OutputPlugin]:
    return type("Made", (base,), {name: lambda *arguments: None for name in callbacks})


_STREAMING = (*STREAMING_REQUIRED, "stream_message_cb", "stream_truncate_cb")
COMPLETE: Sequence[Sequence[str]] = (
    (),
    ("truncate_cb", "message_cb", "filter_by_origin_cb", "shutdown_cb"),
    STREAMING_REQUIRED,
    _STREAMING,
    TWO_PHASE_REQUIRED,
    (*TWO_PHASE_REQUIRED, "filter_prepare_cb"),
    (*_STREAMING, *TWO_PHASE_REQUIRED, "stream_prepare_cb"),
)
INCOMPLETE = [
    *(([name for name in STREAMING_REQUIRED if name != missing], missing) for missing in STREAMING_REQUIRED),
    *(([name for name in TWO_PHASE_REQUIRED if name != missing], missing) for missing in TWO_PHASE_REQUIRED),
    (["stream_truncate_cb"], "stream_start_cb"),
    (["stream_message_cb"], "stream_start_cb"),
    (["filter_prepare_cb"], "begin_prepare_cb"),
    ([*STREAMING_REQUIRED, *TWO_PHASE_REQUIRED], "stream_prepare_cb"),
]


@pytest.mark.parametrize("callbacks", COMPLETE)
def test_a_complete_set_is_accepted(callbacks: Sequence[str]) -> None:
    check_callbacks(_given(*callbacks))


@pytest.mark.parametrize("callbacks, missing", INCOMPLETE)
def test_a_set_with_a_gap_is_refused_at_load(callbacks: Sequence[str], missing: str) -> None:
    with pytest.raises(PluginError, match=missing):
        check_callbacks(_given(*callbacks))


@pytest.mark.parametrize("missing", ["begin_cb", "change_cb", "commit_cb"])
def test_begin_change_and_commit_are_always_required(missing: str) -> None:
    rest = {"begin_cb", "change_cb", "commit_cb"} - {missing}
    with pytest.raises(PluginError, match=f"does not define {missing}"):
        check_callbacks(_given(*rest, base=OutputPlugin))


@pytest.mark.parametrize(
    "name, why",
    [
        ("absent", "There is no output plugin absent"),
        ("no.such.module:Plugin", "cannot be loaded"),
        ("wal2lake.lsn:LSN", "is not an output plugin"),
        ("wal2lake.lsn:Absent", "The module wal2lake.lsn has no Absent.*must be a class"),
        ("os:Nope", "The module os has no Nope.*must be a class"),
        ("wal2lake.decoding.plugins.test_decoding:Nope", "has no Nope. Its output plugins: TestDecoding"),
        (":Nope", "names no output plugin. Write it as module:Class"),
        ("os:", "names no output plugin"),
    ],
)
def test_what_cannot_be_loaded_says_why(name: str, why: str) -> None:
    with pytest.raises(PluginError) as failed:
        load_plugin(name)
    assert re.search(why, str(failed.value))


LEAST = """
from wal2lake.decoding import OutputPlugin


class Mine(OutputPlugin):
    def __init__(self):
        {init}

    def begin_cb(self, ctx, txn): ...
    def change_cb(self, {arguments}): ...
    def commit_cb(self, ctx, txn, commit_lsn): ...
"""
RIGHT = "ctx, txn, relation, change"
_WORKING = LEAST.format(init="pass", arguments=RIGHT)
BROKEN_MODULES = [
    ("raise RuntimeError('secret')", "cannot be loaded: RuntimeError at broken{}.py, line 1."),
    ("import json; json.loads('secret')", "cannot be loaded: JSONDecodeError at broken{}.py, line 1."),
    ("import secret_module", "cannot be loaded: ModuleNotFoundError at broken{}.py, line 1."),
    ("import sys; sys.exit('secret')", "cannot be loaded: SystemExit at broken{}.py, line 1."),
    ("\n'secret' = 1", "cannot be loaded: SyntaxError at broken{}.py, line 2."),
    (LEAST.format(init="{}['secret']", arguments=RIGHT), "cannot be made: KeyError at broken{}.py, line 7."),
    (LEAST.format(init="pass", arguments="ctx, txn, change"), "has a change_cb at broken{}.py, line 10 that cannot"),
    (_WORKING.replace("def begin", "async def begin"), "has a begin_cb at broken{}.py, line 9 that cannot"),
    (_WORKING.replace(": ...", ": yield"), "has a begin_cb at broken{}.py, line 9 that cannot"),
    (_WORKING.replace("def commit_cb", "async def commit_cb").replace("...", "yield"), "has a begin_cb at"),
]


@pytest.mark.parametrize("number, text, why", [(n, *case) for n, case in enumerate(BROKEN_MODULES)])
def test_a_module_that_is_broken_is_told_by_its_line(
    number: int, text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"broken{number}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError) as failed:
        load_plugin(f"broken{number}:Mine")
    assert why.format(number) in str(failed.value) and "secret" not in str(failed.value)


def _made(**callbacks: Callable[..., object]) -> OutputPlugin:
    names = [name for name in vars(OutputPlugin) if name.endswith("_cb")]
    return type("Made", (OutputPlugin,), {name: lambda *_: None for name in names} | callbacks)()


def _everything() -> Walsender:
    """What has every callback called once."""
    sender, outside = Walsender(TWO_PHASE), Message(False, LSN(0x999), "p", b"c")
    inside = replace(outside, transactional=True)
    row, emptied = insert(1, "secret"), Truncate((16384,), 0)
    sender.transaction(701, relation(), row, emptied, inside)
    sender.send(outside)
    sender.prepared(702, "a", row)
    sender.commit_prepared(702, "a")
    sender.prepared(703, "b", row)
    sender.rollback_prepared(703, "b")
    sender.chunk(704, row, emptied, inside, (705, row), first=True)
    sender.send(StreamAbort(704, 705))
    sender.stream_commit(704)
    sender.chunk(706, row, first=True)
    sender.stream_prepare(706, "c")
    return sender


@pytest.mark.parametrize("callback", [name for name in vars(OutputPlugin) if name.endswith("_cb")])
@pytest.mark.parametrize("kind", [ValueError, SystemExit, GeneratorExit, KeyboardInterrupt])
def test_whatever_a_callback_raises_is_told_by_its_name(callback: str, kind: type[BaseException]) -> None:
    def fail(*arguments: object) -> None:
        raise kind("secret")

    told = KeyboardInterrupt if kind is KeyboardInterrupt else PluginError
    with pytest.raises(told) as failed:
        listening = Listening(_made(**{callback: fail}), TWO_PHASE)
        listening.hear(_everything())
        listening.decoder.close()
    if kind is not KeyboardInterrupt:
        assert f"Made failed in {callback}: {kind.__name__} at test_contract.py, line" in str(failed.value)
        assert "secret" not in str(failed.value)


@pytest.mark.parametrize("failure", [BrokenPipeError(), LogFullError("A disk is full."), OSError(5, "no such luck")])
def test_who_does_not_take_its_output_is_not_the_plugins_failure(failure: Exception) -> None:
    """`recv … | head -1`, a full disk."""

    def take(*piece: object) -> None:
        raise failure

    sender = Walsender(ONE_PIECE)
    sender.transaction(701, relation(), insert(1, "a"))
    with pytest.raises(type(failure)) as failed:
        decoder = Decoder("json", (), ONE_PIECE, take, fixed=True)
        for lsn, payload in sender.sent:
            decoder.receive(lsn, payload)
    assert failed.value is failure


def test_an_instance_is_checked_as_a_class_is() -> None:
    with pytest.raises(PluginError, match="does not define"):
        Listening(OutputPlugin(), ONE_PIECE)


def _decode_one_row(act: Act) -> Listening:
    plugin = Least()
    plugin.act = act
    listening, sender = Listening(plugin, ONE_PIECE), Walsender(ONE_PIECE)
    sender.transaction(701, relation(), insert(1, "secret"))
    listening.hear(sender)
    return listening


def _prepare_twice(ctx: LogicalDecodingContext) -> None:
    OutputPluginPrepareWrite(ctx, True)
    OutputPluginPrepareWrite(ctx, True)


def _write_after(ctx: LogicalDecodingContext) -> None:
    OutputPluginPrepareWrite(ctx, True)
    OutputPluginWrite(ctx, True)
    ctx.out.write("late")


def _write(*parts: str | bytes) -> Act:
    def act(ctx: LogicalDecodingContext) -> None:
        OutputPluginPrepareWrite(ctx, True)
        for part in parts:
            ctx.out.write(part)
        OutputPluginWrite(ctx, True)

    return act


def _raise(ctx: LogicalDecodingContext) -> None:
    raise KeyError("secret")


MISDEEDS = [
    (lambda ctx: OutputPluginWrite(ctx, True), "without OutputPluginPrepareWrite"),
    (lambda ctx: ctx.out.write("early"), "outside of OutputPluginPrepareWrite"),
    (lambda ctx: OutputPluginPrepareWrite(ctx, True), "did not write it"),
    (_prepare_twice, "before it has written the last one"),
    (_write_after, "outside of OutputPluginPrepareWrite"),
    (_write("\ud800"), "not valid UTF-8"),
    (_write(b"\xff"), "not valid UTF-8"),
    (_write("a\0b"), "zero byte"),
    (_raise, "KeyError at test_contract.py, line"),
]


@pytest.mark.parametrize("act, why", MISDEEDS)
def test_a_misdeed_is_one_error_with_callback_and_lsn(act: Act, why: str) -> None:
    with pytest.raises(PluginError, match=why) as failed:
        _decode_one_row(act)
    assert "Least failed in change_cb" in failed.value.message
    assert failed.value.lsn == 0x1010
    assert failed.value.relation == "public.t"
    assert "secret" not in str(failed.value)


def test_pieces_of_text_and_of_bytes_become_one() -> None:
    assert _decode_one_row(_write("ü", "ö".encode(), "")).lines == ["üö"]


def test_a_piece_is_labelled_with_its_lsn_and_transaction() -> None:
    (piece,) = _decode_one_row(_write("x")).pieces
    assert (piece.lsn, piece.xid) == (0x1010, 701)


class WritesAtShutdown(Least):
    def shutdown_cb(self, ctx: LogicalDecodingContext) -> None:
        OutputPluginPrepareWrite(ctx, True)


class Filters(Least):
    def filter_by_origin_cb(self, ctx: LogicalDecodingContext, origin_id: str | None) -> bool:
        ctx.out.write("x")
        return False


def test_nothing_is_written_where_nothing_can_be() -> None:
    with pytest.raises(PluginError, match="failed in shutdown_cb") as failed:
        Listening(WritesAtShutdown(), ONE_PIECE).decoder.close()
    assert failed.value.lsn is None and "what it wrote before stands" in str(failed.value)
    sender = Walsender(ONE_PIECE)
    sender.transaction(701)
    with pytest.raises(PluginError, match="failed in filter_by_origin_cb"):
        Listening(Filters(), ONE_PIECE).hear(sender)


def test_truncate_without_its_callback_is_passed_over() -> None:
    sender = Walsender(ONE_PIECE)
    sender.transaction(701, relation(), Truncate((16384,), 0))
    assert Listening(Least(), ONE_PIECE).hear(sender) == []


def test_the_catalog_is_refused_where_there_is_none() -> None:
    with pytest.raises(PluginError, match="no server here"):
        _decode_one_row(lambda ctx: print(ctx.catalog))


class Private(Least):
    """Sees what PostgreSQL's plugins see at startup."""

    seen: tuple[object, ...] = ()

    def startup_cb(self, ctx: LogicalDecodingContext, opt: OutputPluginOptions, is_init: bool) -> None:
        type(self).seen = (list(ctx.output_plugin_options), is_init, ctx.streaming, ctx.twophase)
        raise ConfigError("The option x is wrong.")


def test_options_come_in_order_and_are_refused_at_startup() -> None:
    with pytest.raises(ConfigError, match="The option x is wrong"):
        Listening(Private(), ONE_PIECE, ("b", None), ("a", "1"), ("b", ""))
    assert Private.seen == ([("b", None), ("a", "1"), ("b", "")], False, False, False)
