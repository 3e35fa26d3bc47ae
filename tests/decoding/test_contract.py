"""What a plugin must define, may write and may raise; a callback's failure is one error with callback and LSN."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.decoding.walsender import ONE_PIECE, Listening, Walsender
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
from wal2lake.decoding.plugin import STREAMING_REQUIRED, TWO_PHASE_REQUIRED, check_callbacks
from wal2lake.errors import ConfigError, PluginError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Truncate
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
        ("wal2lake.lsn:Absent", "cannot be loaded"),
    ],
)
def test_what_cannot_be_loaded_says_why(name: str, why: str) -> None:
    with pytest.raises(PluginError, match=why):
        load_plugin(name)


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
    with pytest.raises(PluginError, match="failed in shutdown_cb"):
        Listening(WritesAtShutdown(), ONE_PIECE).decoder.close()
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
