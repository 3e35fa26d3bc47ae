"""Reading and writing stand beside each other and follow one field table per message (messages.py).

Whatever bytes come, the outcome is a message or ProtocolError with the offset; a message must fill its payload.
A payload is what XLogData carries: the tag byte, then the fields.
"""

from __future__ import annotations

from typing import Any

from wal2lake.errors import ProtocolError
from wal2lake.pgoutput.messages import LAYOUTS, PgoutputMessage
from wal2lake.wire.fields import Layout, Reader


def read_message(payload: bytes | memoryview) -> PgoutputMessage:
    """Read one message that stands outside of a stream's chunk; raise ProtocolError (offset into ``payload``)."""
    reader = Reader(payload)
    layout = read_tag(reader)
    return read_body(reader, layout)


def write_message(message: PgoutputMessage) -> bytes:
    """The payload of ``message`` outside of a stream's chunk; raise ProtocolError when a value has no wire form."""
    out = bytearray(message.tag)
    LAYOUTS[message.tag].write(out, message)
    return bytes(out)


def read_tag(reader: Reader) -> Layout[Any]:
    """Step over the tag byte and find the layout that it names."""
    tag = reader.take(1)
    if tag not in LAYOUTS:
        raise ProtocolError(f"No pgoutput message has the tag {tag!r}.", offset=0)
    return LAYOUTS[tag]


def read_body(reader: Reader, layout: Layout[Any]) -> PgoutputMessage:
    """Read the fields, which must be all that is left."""
    message: PgoutputMessage = layout.read(reader)
    reader.place = layout.name
    reader.end()
    return message
