"""The numbers that tell messages of one tag apart, as the documentation has them: read and written alike they would
agree with each other whatever they were.

Source: PostgreSQL documentation, "Message Formats".
"""

from __future__ import annotations

import pytest

from wal2lake.wire.framing import BackendReader, FrontendReader, write_frame
from wal2lake.wire.messages import (
    PROTOCOL_3_0,
    AuthenticationCleartextPassword,
    AuthenticationGSS,
    AuthenticationGSSContinue,
    AuthenticationKerberosV5,
    AuthenticationMD5Password,
    AuthenticationOk,
    AuthenticationSASL,
    AuthenticationSASLContinue,
    AuthenticationSASLFinal,
    AuthenticationSSPI,
    BackendMessage,
    FrontendMessage,
    GSSENCRequest,
    SSLRequest,
    StartupMessage,
)


@pytest.mark.parametrize(
    ("code", "rest", "message"),
    [
        (0, b"", AuthenticationOk()),
        (2, b"", AuthenticationKerberosV5()),
        (3, b"", AuthenticationCleartextPassword()),
        (5, b"salt", AuthenticationMD5Password(b"salt")),
        (7, b"", AuthenticationGSS()),
        (8, b"token", AuthenticationGSSContinue(b"token")),
        (9, b"", AuthenticationSSPI()),
        (10, b"SCRAM-SHA-256\0\0", AuthenticationSASL(("SCRAM-SHA-256",))),
        (11, b"r=", AuthenticationSASLContinue(b"r=")),
        (12, b"v=", AuthenticationSASLFinal(b"v=")),
    ],
)
def test_how_a_server_asks_who_it_is(code: int, rest: bytes, message: BackendMessage) -> None:
    frame = b"R" + (8 + len(rest)).to_bytes(4, "big") + code.to_bytes(4, "big") + rest
    assert write_frame(message) == frame
    reader = BackendReader()
    reader.feed(frame)
    assert reader.receive() == message


@pytest.mark.parametrize(
    ("major", "minor", "message"),
    [(1234, 5679, SSLRequest()), (1234, 5680, GSSENCRequest()), (3, 0, StartupMessage(PROTOCOL_3_0, ()))],
)
def test_how_a_client_begins(major: int, minor: int, message: FrontendMessage) -> None:
    rest = b"\0" if isinstance(message, StartupMessage) else b""
    frame = (8 + len(rest)).to_bytes(4, "big") + major.to_bytes(2, "big") + minor.to_bytes(2, "big") + rest
    assert write_frame(message) == frame
    reader = FrontendReader()
    reader.feed(frame)
    assert reader.receive() == message
