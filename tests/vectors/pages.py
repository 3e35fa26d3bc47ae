"""`python -m tests.vectors.pages` writes docs/protocol from the field tables and the vectors; a test compares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

from tests.vectors import SERVERS
from tests.vectors.annotate import Part, annotated, parts, read_part
from tests.vectors.coverage import EXEMPT, SINCE, SINCE_PROTO, read_frame
from tests.vectors.examples import Example, Exchange, commands, frames, pgoutput, replication
from tests.vectors.meanings import meaning
from wal2lake.pgoutput.messages import LAYOUTS, PgoutputMessage, TruncateLayout
from wal2lake.pgoutput.options import OPTION_SINCE, PROTO_VERSION_SINCE, TWO_PHASE_PROTO_VERSION, PgoutputOptions
from wal2lake.pgoutput.tuples import OldTuple, TupleData
from wal2lake.wire.command_parser import COMMANDS
from wal2lake.wire.commands import Command
from wal2lake.wire.copy import TABLE, UNSYNCED, Row
from wal2lake.wire.fields import Fixed, Int32, Layout, Optional, Reader, TransactionId, wire_type
from wal2lake.wire.messages import (
    ANSWERS,
    BACKEND,
    FRONTEND,
    CopyData,
    ErrorResponse,
    Query,
    RowDescription,
    WireMessage,
)
from wal2lake.wire.replication import LAYOUTS as REPLICATION

FOLDER: Final = Path(__file__).parents[2] / "docs" / "protocol"
TYPE_NAMES: Final = {17: "bytea", 20: "int8", 23: "int4", 25: "text", 26: "oid"}
LONGEST_EXAMPLE: Final = 400


def pages() -> dict[str, str]:
    """Every page by its path below docs/protocol."""
    made = {f"pgoutput/{layout.name.lower()}.md": _pgoutput_page(layout) for layout in LAYOUTS.values()}
    made["pgoutput/tupledata.md"] = _tuple_page()
    made["pgoutput/options.md"] = _options_page()
    made |= {f"replication/{cls.__name__.lower()}.md": _replication_page(cls) for cls in REPLICATION}
    keywords = dict.fromkeys(command.keyword for command in COMMANDS)
    made |= {f"commands/{keyword.lower()}.md": _command_page(keyword) for keyword in keywords}
    made["messages/frontend.md"] = _messages_page("Frontend messages", "F", (*FRONTEND, *ANSWERS))
    made["messages/backend.md"] = _messages_page("Backend messages", "B", BACKEND)
    made["messages/copy.md"] = _copy_page()
    return {"README.md": _index(made), **made}


def main() -> None:
    for path, text in pages().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(text)


def _page(title: str, *blocks: str) -> str:
    return "\n\n".join([f"# {title}", *filter(None, blocks)]) + "\n"


def _doc(cls: type) -> str:
    return cleandoc(cls.__doc__ or "").replace("``", "`")


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(header), ["---"] * len(list(header)), *map(list, rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells)


def _fields(layout: Layout[Any]) -> str:
    """The field table; the fields of an item stand under their own name."""
    return _table(("field", "wire type", "meaning"), _field_rows(layout, "")) if layout.fields else "No fields."


def _field_rows(layout: Layout[Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    owner = layout.cls.__name__
    if isinstance(layout, TruncateLayout):
        rows = (("number of relations", "Int32"), ("options", "Int8"), ("relation_ids", "n Int32 (Oid)"))
        yield from ((name, wire, meaning(owner, name)) for name, wire in rows)
        return
    for name, wire in layout.fields:
        yield f"{prefix}{name}", wire.name, meaning(owner, name)
        item = getattr(wire, "item", None)
        if isinstance(item, Layout):
            yield from _field_rows(item, f"{prefix}{name}." if isinstance(wire, Optional) else f"{prefix}{name}[].")


def _hex(found: list[Part]) -> str:
    return f"```hex\n{annotated(found)}\n```"


def _since(cls: type[PgoutputMessage]) -> str:
    first = SINCE.get(cls.__name__, SINCE_PROTO[cls.since])
    xid = " While a stream is open, an Int32 (TransactionId) stands after the tag." if cls.in_stream_xid else ""
    return f"Byte1('{cls.tag.decode()}'). pgoutput protocol version {cls.since}, PostgreSQL {first} and later.{xid}"


def _payload_parts(layout: Layout[Any], example: Example) -> list[Part]:
    reader = Reader(example.data)
    found = [read_part(Fixed(1), reader, "tag", "Byte1")]
    if example.in_stream:
        found.append(read_part(wire_type(TransactionId), reader, "xid"))
    return [*found, *parts(layout, reader, "")]


def _example(title: str, found: list[Part], example: Example) -> str:
    return f"## {title}\n\n{example.source}:\n\n{_hex(found)}"


def _pgoutput_page(layout: Layout[Any]) -> str:
    found = {label: example for label, example in pgoutput().items() if type(example.message) is layout.cls}
    shown = {label: example for label, example in found.items() if _belongs(label, layout.name, found)}
    examples = [
        _example(f"Example: {label}", _payload_parts(layout, example), example) for label, example in shown.items()
    ]
    return _page(layout.name, _doc(layout.cls), _since(layout.cls), _fields(layout), *examples)


def _belongs(label: str, name: str, found: dict[str, Example]) -> bool:
    """Every variant of the message, but the plain label only where it adds one."""
    if not label.startswith(name) or "options" in label:
        return False
    return label != name or not any(found[name].data == found[other].data for other in found if other != name)


def _options_page() -> str:
    """What START_REPLICATION may ask of the plugin."""
    versions = _table(
        ("protocol version", "PostgreSQL", "brings"),
        [(str(version), f"{max(13, since // 10000)} and later", _brought(version))
         for version, since in PROTO_VERSION_SINCE.items()],
    )  # fmt: skip
    defaults = {field.name: field.default for field in fields(PgoutputOptions)}
    needs = {"streaming": "2; parallel: 4", "two_phase": str(TWO_PHASE_PROTO_VERSION)}
    since = {"streaming": "14; parallel: 16"} | {name: str(first // 10000) for name, first in OPTION_SINCE.items()}
    options = _table(
        ("option", "default", "protocol version", "PostgreSQL"),
        [(name, "" if default is MISSING else f"`{default!r}`", needs.get(name, "1"), since.get(name, "13"))
         for name, default in defaults.items()],
    )  # fmt: skip
    return _page("Options of pgoutput", _doc(PgoutputOptions), options, versions)


def _brought(version: int) -> str:
    news = [layout.name for layout in LAYOUTS.values() if layout.cls.since == version]
    return ", ".join(news) or "StreamAbort's LSN and time"


def _tuple_page() -> str:
    examples = [
        _example(f"Example: kind {kind!r}", _payload_parts(LAYOUTS[example.message.tag], example), example)
        for kind in "nutb"
        for example in [pgoutput()[f"TupleData {kind!r}"]]
    ]
    kinds = _table(
        ("kind", "what follows", "meaning"),
        [("'n'", "nothing", "NULL"), ("'u'", "nothing", "a TOASTed value that did not change"),
         ("'t'", "Int32 n, Byten", "the type's output text"),
         ("'b'", "Int32 n, Byten", "the type's send format; with the option binary, PostgreSQL 14 and later")],
    )  # fmt: skip
    old = f"Before 'O' or 'K' rows: {_doc(OldTuple)}"
    return _page("TupleData", _doc(TupleData), "Int16 n, then for each of n columns a Byte1:", kinds, old, *examples)


def _replication_page(cls: type) -> str:
    example = replication()[cls.__name__]
    layout = REPLICATION[cls]
    found = [*_payload_parts(layout, example)]
    tag = f"Byte1('{example.data[:1].decode()}'), inside CopyData. PostgreSQL 13 and later."
    return _page(cls.__name__, _doc(cls), tag, _fields(layout), _example("Example", found, example))


def _command_page(keyword: str) -> str:
    classes = [command for command in COMMANDS if command.keyword == keyword]
    return _page(keyword, *(block for cls in classes for block in _command_blocks(cls, len(classes) > 1)))


def _command_blocks(cls: type[Command], titled: bool) -> Iterator[str]:
    exchanges = commands()[cls.__name__]
    newest = next((exchange for exchange in reversed(exchanges) if not _failed(exchange)), exchanges[-1])
    if titled:
        yield f"## {cls.__name__}"
    yield _doc(cls)
    yield f"PostgreSQL {SINCE[cls.__name__]} and later. In Python: `{cls.__module__}.{cls.__name__}`."
    if options := _options(cls):
        yield _table(("field", "type", "default", "meaning"), options)
    yield "As sent:\n\n" + _table(("servers", "command"), _texts(exchanges))
    yield "Answer: " + ", ".join(_answer(newest)) + "."
    found = _frame_parts("F", newest.asked)
    yield _example("Example" if not titled else f"Example: {cls.__name__}", found, newest.asked)


def _failed(exchange: Exchange) -> bool:
    return any(isinstance(message, ErrorResponse) for message in exchange.answer)


def _options(cls: type[Command]) -> list[tuple[str, str, str, str]]:
    return [
        (field.name, f"`{field.type}`", "" if field.default is MISSING else f"`{field.default!r}`",
         meaning(cls.__name__, field.name))
        for field in fields(cls)  # type: ignore[arg-type]
    ]  # fmt: skip


def _texts(exchanges: list[Exchange]) -> list[tuple[str, str]]:
    """Each text once, with the servers that it was sent to."""
    sent: dict[str, list[str]] = {}
    for exchange in exchanges:
        if "pg_" not in (text := exchange.asked.message.query):
            sent.setdefault(_without_positions(text), []).append(str(exchange.asked.server.major))
    return [(", ".join(dict.fromkeys(majors)), f"`{text}`") for text, majors in sent.items()]


def _without_positions(text: str) -> str:
    """A physical start position differs from server to server, and means nothing to the reader."""
    return " ".join("…" if "/" in word else word for word in text.split(" "))


def _answer(exchange: Exchange) -> Iterator[str]:
    names: list[str] = []
    for message in exchange.answer:
        name = type(message).__name__
        if isinstance(message, RowDescription):
            columns = ", ".join(f"{f.name} {TYPE_NAMES.get(f.type_oid, f.type_oid)}" for f in message.fields)
            name += f" ({columns})"
        if name not in names[-1:] and name != "ParameterStatus":
            names.append(name)
    yield from names


def _frame_parts(side: str, example: Example) -> list[Part]:
    """Tag, length, code and fields of a whole frame."""
    cls: type[WireMessage] = type(example.message)
    reader = Reader(example.data)
    found = [read_part(Fixed(1), reader, "tag", "Byte1")] if cls.tag else []
    found.append(read_part(wire_type(Int32), reader, "length"))
    if cls.code is not None:
        found.append(read_part(wire_type(Int32), reader, "code"))
    return [*found, *parts(Layout(cls), reader, "")]


def _messages_page(title: str, side: str, classes: Iterable[type[WireMessage]]) -> str:
    return _page(title, *(block for cls in classes for block in _message_blocks(side, cls)))


def _message_blocks(side: str, cls: type[WireMessage]) -> Iterator[str]:
    yield f"## {cls.__name__}"
    yield _doc(cls)
    head = [f"Byte1('{cls.tag.decode()}')"] if cls.tag else []
    code = [] if cls.code is None else [f"Int32({cls.code})"]
    yield ", ".join([*head, "Int32 length", *code]) + ", then the fields."
    yield _fields(Layout(cls))
    example = frames().get((side, cls.__name__))
    if example is None:
        yield f"There is no vector: it {EXEMPT[cls.__name__]}."
    elif len(example.data) <= LONGEST_EXAMPLE:
        yield f"{example.source}:\n\n{_hex(_frame_parts(side, example))}"


def _copy_page() -> str:
    always = (
        "In every state the backend may send NoticeResponse, ParameterStatus and NotificationResponse, and the "
        "frontend Terminate. In every state of an open COPY the backend may send ErrorResponse; then the state is "
        'FAILED. "Any other" is none of CopyData, CopyDone and CopyFail. What stands in no row is a ProtocolError.'
    )
    intro = "One table for in, out and both, from both ends (`wal2lake.wire.copy`)."
    pipelined = (
        "The frontend need not wait for an answer: what it asks behind its own CopyDone or CopyFail, or while the "
        "backend copies out, stays unread until the COPY is over. That is how libpq's PQputCopyEnd sends Sync at once "
        "after the end of a COPY that Execute began. What was sent before a CopyInResponse or CopyBothResponse is read "
        "within that COPY, by the rows above."
    )
    unsynced = (
        "An error in the extended protocol has all discarded until the next Sync. So while no Sync is under way, and "
        "the request being answered is not Query or FunctionCall, these rows hold instead, and the ErrorResponse of an "
        "open COPY leads to DISCARDING:"
    )
    extended = f"## Pipelining\n\n{pipelined}\n\n{unsynced}"
    return _page("COPY", intro, _copy_table(TABLE), always, extended, _copy_table(UNSYNCED), *_row_formats())


def _copy_table(rows: Iterable[Row]) -> str:
    return _table(
        ("state", "from", "message", "action", "then"),
        ((row.state.name, row.side.name.lower(), ", ".join(m.__name__ for m in row.messages) or "any other",
          row.action.name, row.then.name) for row in rows),
    )  # fmt: skip


def _row_formats() -> Iterator[str]:
    """The same rows in each format, as the newest server copied them out."""
    yield "## Row formats\n\nText and csv are read and written by `wal2lake.wire.copytext`, binary by `copyformat`."
    example = frames()["B", "CopyData"]
    capture = next(capture for capture in example.server.captures if capture.name == "copy")
    command, titled = "", ""
    for side, frame in capture.frames:
        message = read_frame(side, frame)
        if isinstance(message, Query):
            command = message.query
        elif side == "B" and isinstance(message, CopyData) and command in capture.sql[:3]:
            if titled != command:
                titled = command
                yield f"`{command}`:"
            yield _hex(_frame_parts("B", Example(example.server, capture, frame, message)))


def _index(made: dict[str, str]) -> str:
    def links(folder: str) -> str:
        return "\n".join(
            f"- [{text.splitlines()[0].removeprefix('# ')}]({path})"
            for path, text in made.items() if path.startswith(folder)
        )  # fmt: skip

    intro = (
        "Every message and command that the library reads and writes: fields with their wire types, since when, and "
        "an example that a real server or its client sent, byte by byte (offset, bytes, field). The pages are "
        "written by `python -m tests.vectors.pages` from the tables that the codec itself reads, and from the "
        f"vectors of PostgreSQL {SERVERS[0]} to {SERVERS[-1]}; a test keeps them the same."
    )
    sections = (
        ("Logical replication messages (pgoutput)", "pgoutput"),
        ("Streaming replication messages", "replication"),
        ("Replication commands", "commands"),
        ("Protocol 3 and COPY", "messages"),
    )
    return _page("The protocol", intro, *(f"## {title}\n\n{links(folder)}" for title, folder in sections))


if __name__ == "__main__":
    main()
