"""The messages of protocol 3, from both ends: each is declared once, and both roles read and write the same table.

A tag means one thing from the frontend and another from the backend ('D' is Describe or DataRow), so there are two
tables. Authentication requests share 'R' and are told apart by their ``code``, as are the untagged messages that
begin a connection. Text that may come before an encoding is agreed on keeps unknown bytes (surrogateescape).

Source: PostgreSQL documentation, "Message Formats", "Error and Notice Message Fields".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from wal2lake.wire.fields import (
    Array,
    Choice,
    Int8,
    Int16,
    Int32,
    Integer,
    Layout,
    LooseString,
    NullableBytes,
    Octets4,
    Oid,
    RestOfMessage,
    Terminated,
    wire_type,
)

ASCII: Final = "".join(map(chr, range(1, 128)))
PROTOCOL_3_0: Final = 3 << 16
_COUNT: Final = Integer("Int16", "H")  # a statement has up to 65535 parameters
Formats = Annotated[tuple[int, ...], Array(_COUNT, wire_type(Int16))]
Values = Annotated[tuple[bytes | None, ...], Array(_COUNT, NullableBytes())]
Oids = Annotated[tuple[int, ...], Array(_COUNT, wire_type(Oid))]
Strings = Annotated[tuple[str, ...], Array(wire_type(Int32), wire_type(LooseString))]


class WireMessage:
    """A message of either side: ``tag`` is empty while a connection begins; ``code`` the Int32 that tells apart."""

    __slots__ = ()
    tag: ClassVar[bytes] = b""
    code: ClassVar[int | None] = None


class FrontendMessage(WireMessage):
    """What a client sends."""

    __slots__ = ()


class BackendMessage(WireMessage):
    """What a server sends."""

    __slots__ = ()


# The beginning of a connection: no tag, but a length and a code.


@dataclass(frozen=True, slots=True)
class StartupParameter:
    """A run-time parameter, or user, database, options, replication."""

    name: LooseString
    value: LooseString


@dataclass(frozen=True, slots=True)
class StartupMessage(FrontendMessage):
    """Protocol 3.x and the parameters, of which ``replication`` is true (physical) or database (logical)."""

    protocol: Annotated[int, Integer("Int32", "i", low=PROTOCOL_3_0, high=PROTOCOL_3_0 + 0xFFFF)]
    parameters: Annotated[tuple[StartupParameter, ...], Terminated(Layout(StartupParameter))]


@dataclass(frozen=True, slots=True)
class SSLRequest(FrontendMessage):
    """Answered by one byte: 'S' or 'N'."""

    code: ClassVar[int | None] = 80877103


@dataclass(frozen=True, slots=True)
class GSSENCRequest(FrontendMessage):
    """Answered by one byte: 'G' or 'N'."""

    code: ClassVar[int | None] = 80877104


@dataclass(frozen=True, slots=True)
class CancelRequest(FrontendMessage):
    """Ask to cancel what the backend of this key runs; never answered. The key is 4 bytes in protocol 3.0."""

    code: ClassVar[int | None] = 80877102
    process_id: Int32
    secret_key: RestOfMessage


# Authentication.


@dataclass(frozen=True, slots=True)
class AuthenticationOk(BackendMessage):
    """The client is who it says."""

    tag: ClassVar[bytes] = b"R"
    code: ClassVar[int | None] = 0


@dataclass(frozen=True, slots=True)
class AuthenticationKerberosV5(BackendMessage):
    """No longer sent by any supported server."""

    tag: ClassVar[bytes] = b"R"
    code: ClassVar[int | None] = 2


@dataclass(frozen=True, slots=True)
class AuthenticationCleartextPassword(BackendMessage):
    """A password is wanted as it is."""

    tag: ClassVar[bytes] = b"R"
    code: ClassVar[int | None] = 3


@dataclass(frozen=True, slots=True)
class AuthenticationMD5Password(BackendMessage):
    """A password is wanted, hashed with ``salt``."""

    tag: ClassVar[bytes] = b"R"
    code: ClassVar[int | None] = 5
    salt: Octets4


@dataclass(frozen=True, slots=True)
class AuthenticationGSS(BackendMessage):
    """GSSAPI begins."""

    tag: ClassVar[bytes] = b"R"
    code: ClassVar[int | None] = 7


@dataclass(frozen=True, slots=True)
class AuthenticationGSSContinue(BackendMessage):
    """GSSAPI or SSPI data."""

    tag: ClassVar[bytes] = b"R"
    code: ClassVar[int | None] = 8
    data: RestOfMessage


@dataclass(frozen=True, slots=True)
class AuthenticationSSPI(BackendMessage):
    """SSPI begins."""

    tag: ClassVar[bytes] = b"R"
    code: ClassVar[int | None] = 9


@dataclass(frozen=True, slots=True)
class AuthenticationSASL(BackendMessage):
    """SASL begins; the server's ``mechanisms`` in its order of preference."""

    tag: ClassVar[bytes] = b"R"
    code: ClassVar[int | None] = 10
    mechanisms: Annotated[tuple[str, ...], Terminated(wire_type(LooseString))]


@dataclass(frozen=True, slots=True)
class AuthenticationSASLContinue(BackendMessage):
    """A SASL challenge."""

    tag: ClassVar[bytes] = b"R"
    code: ClassVar[int | None] = 11
    data: RestOfMessage


@dataclass(frozen=True, slots=True)
class AuthenticationSASLFinal(BackendMessage):
    """SASL ends well; the mechanism's outcome, by which the client knows the server."""

    tag: ClassVar[bytes] = b"R"
    code: ClassVar[int | None] = 12
    data: RestOfMessage


@dataclass(frozen=True, slots=True)
class AuthenticationResponse(FrontendMessage):
    """Any answer to an authentication request; which of the next three it is, only the request tells."""

    tag: ClassVar[bytes] = b"p"
    data: RestOfMessage


@dataclass(frozen=True, slots=True)
class PasswordMessage(FrontendMessage):
    """The password, clear or hashed, whichever was asked for."""

    tag: ClassVar[bytes] = b"p"
    password: LooseString


@dataclass(frozen=True, slots=True)
class SASLInitialResponse(FrontendMessage):
    """The chosen mechanism and its first data; None is no data at all."""

    tag: ClassVar[bytes] = b"p"
    mechanism: LooseString
    data: Annotated[bytes | None, NullableBytes()]


# The session.


@dataclass(frozen=True, slots=True)
class BackendKeyData(BackendMessage):
    """What a CancelRequest needs; the key is 4 bytes in protocol 3.0, 4 to 256 since 3.2 (PostgreSQL 18)."""

    tag: ClassVar[bytes] = b"K"
    process_id: Int32
    secret_key: RestOfMessage


@dataclass(frozen=True, slots=True)
class NegotiateProtocolVersion(BackendMessage):
    """The server speaks nothing newer than ``version`` and does not know ``options`` (names beginning _pq_.)."""

    tag: ClassVar[bytes] = b"v"
    version: Int32
    options: Strings

    @property
    def minor(self) -> int:
        """The minor version, which is all that the documentation has here; every server sends the major one too."""
        return self.version & 0xFFFF


@dataclass(frozen=True, slots=True)
class ParameterStatus(BackendMessage):
    """A parameter's value, at start-up and whenever it changes, also in the midst of a COPY."""

    tag: ClassVar[bytes] = b"S"
    name: LooseString
    value: LooseString


@dataclass(frozen=True, slots=True)
class ReadyForQuery(BackendMessage):
    """'I' idle, 'T' in a transaction, 'E' in a failed one."""

    tag: ClassVar[bytes] = b"Z"
    status: Annotated[str, Choice("ITE")]


@dataclass(frozen=True, slots=True)
class ErrorField:
    """``type``: 'S' severity, 'C' SQLSTATE, 'M' message, 'D' detail, 'H' hint …; unknown ones are to be ignored."""

    type: Annotated[str, Choice(ASCII)]
    value: LooseString


@dataclass(frozen=True, slots=True)
class ErrorResponse(BackendMessage):
    """The command failed; SQLSTATE ('C') decides what it means, never the message's text."""

    tag: ClassVar[bytes] = b"E"
    fields: Annotated[tuple[ErrorField, ...], Terminated(Layout(ErrorField))]

    def field(self, kind: str) -> str | None:
        """The first field of this type, or None."""
        return next((field.value for field in self.fields if field.type == kind), None)


@dataclass(frozen=True, slots=True)
class NoticeResponse(BackendMessage):
    """A warning or other notice; may come at any time."""

    tag: ClassVar[bytes] = b"N"
    fields: Annotated[tuple[ErrorField, ...], Terminated(Layout(ErrorField))]


@dataclass(frozen=True, slots=True)
class NotificationResponse(BackendMessage):
    """NOTIFY from the backend ``process_id``; may come at any time."""

    tag: ClassVar[bytes] = b"A"
    process_id: Int32
    channel: LooseString
    payload: LooseString


@dataclass(frozen=True, slots=True)
class Terminate(FrontendMessage):
    """The client goes."""

    tag: ClassVar[bytes] = b"X"


# The simple query protocol.


@dataclass(frozen=True, slots=True)
class Query(FrontendMessage):
    """SQL, or a replication command."""

    tag: ClassVar[bytes] = b"Q"
    query: LooseString


@dataclass(frozen=True, slots=True)
class RowDescriptionField:
    """A column of a result; ``table_oid`` and ``attnum`` are 0 for what is no table's column; ``format`` 1: binary."""

    name: LooseString
    table_oid: Oid
    attnum: Int16
    type_oid: Oid
    typlen: Int16
    typmod: Int32
    format: Int16


@dataclass(frozen=True, slots=True)
class RowDescription(BackendMessage):
    """The columns of the rows to come."""

    tag: ClassVar[bytes] = b"T"
    fields: Annotated[tuple[RowDescriptionField, ...], Array(wire_type(Int16), Layout(RowDescriptionField))]


@dataclass(frozen=True, slots=True)
class DataRow(BackendMessage):
    """One row; None is NULL."""

    tag: ClassVar[bytes] = b"D"
    values: Values


@dataclass(frozen=True, slots=True)
class CommandComplete(BackendMessage):
    """The command's name, often with a count."""

    tag: ClassVar[bytes] = b"C"
    command: LooseString


@dataclass(frozen=True, slots=True)
class EmptyQueryResponse(BackendMessage):
    """In place of CommandComplete for an empty query."""

    tag: ClassVar[bytes] = b"I"


# COPY, in all three directions.


@dataclass(frozen=True, slots=True)
class CopyInResponse(BackendMessage):
    """The frontend is to send; ``format`` 0: text rows, 1: binary."""

    tag: ClassVar[bytes] = b"G"
    format: Int8
    column_formats: Formats


@dataclass(frozen=True, slots=True)
class CopyOutResponse(BackendMessage):
    """The backend is going to send."""

    tag: ClassVar[bytes] = b"H"
    format: Int8
    column_formats: Formats


@dataclass(frozen=True, slots=True)
class CopyBothResponse(BackendMessage):
    """Both send: a replication stream begins."""

    tag: ClassVar[bytes] = b"W"
    format: Int8
    column_formats: Formats


@dataclass(frozen=True, slots=True)
class CopyData(FrontendMessage, BackendMessage):
    """A piece of the stream; the backend sends whole rows or replication messages, the frontend any bytes."""

    tag: ClassVar[bytes] = b"d"
    data: RestOfMessage


@dataclass(frozen=True, slots=True)
class CopyDone(FrontendMessage, BackendMessage):
    """The sender has sent all."""

    tag: ClassVar[bytes] = b"c"


@dataclass(frozen=True, slots=True)
class CopyFail(FrontendMessage):
    """The frontend gives up; the COPY shall fail."""

    tag: ClassVar[bytes] = b"f"
    reason: LooseString


# The extended query protocol: a walsender reads it to refuse it.


@dataclass(frozen=True, slots=True)
class Parse(FrontendMessage):
    """Prepare a statement."""

    tag: ClassVar[bytes] = b"P"
    statement: LooseString
    query: LooseString
    parameter_types: Oids


@dataclass(frozen=True, slots=True)
class Bind(FrontendMessage):
    """Make a portal of a statement and its parameters."""

    tag: ClassVar[bytes] = b"B"
    portal: LooseString
    statement: LooseString
    parameter_formats: Formats
    parameters: Values
    result_formats: Formats


@dataclass(frozen=True, slots=True)
class Describe(FrontendMessage):
    """'S' a statement or 'P' a portal."""

    tag: ClassVar[bytes] = b"D"
    kind: Annotated[str, Choice("SP")]
    name: LooseString


@dataclass(frozen=True, slots=True)
class Execute(FrontendMessage):
    """Run a portal; ``max_rows`` 0: all."""

    tag: ClassVar[bytes] = b"E"
    portal: LooseString
    max_rows: Int32


@dataclass(frozen=True, slots=True)
class Close(FrontendMessage):
    """'S' a statement or 'P' a portal."""

    tag: ClassVar[bytes] = b"C"
    kind: Annotated[str, Choice("SP")]
    name: LooseString


@dataclass(frozen=True, slots=True)
class FunctionCall(FrontendMessage):
    """A function called by its OID."""

    tag: ClassVar[bytes] = b"F"
    function_oid: Oid
    argument_formats: Formats
    arguments: Values
    result_format: Int16


@dataclass(frozen=True, slots=True)
class Flush(FrontendMessage):
    """Send what waits; ignored in copy-in mode."""

    tag: ClassVar[bytes] = b"H"


@dataclass(frozen=True, slots=True)
class Sync(FrontendMessage):
    """The end of a sequence of commands; ends the discarding after an error; ignored in copy-in mode."""

    tag: ClassVar[bytes] = b"S"


@dataclass(frozen=True, slots=True)
class ParseComplete(BackendMessage):
    """Parse succeeded."""

    tag: ClassVar[bytes] = b"1"


@dataclass(frozen=True, slots=True)
class BindComplete(BackendMessage):
    """Bind succeeded."""

    tag: ClassVar[bytes] = b"2"


@dataclass(frozen=True, slots=True)
class CloseComplete(BackendMessage):
    """Close succeeded."""

    tag: ClassVar[bytes] = b"3"


@dataclass(frozen=True, slots=True)
class NoData(BackendMessage):
    """The statement or portal returns no rows."""

    tag: ClassVar[bytes] = b"n"


@dataclass(frozen=True, slots=True)
class ParameterDescription(BackendMessage):
    """The types of a statement's parameters."""

    tag: ClassVar[bytes] = b"t"
    types: Oids


@dataclass(frozen=True, slots=True)
class PortalSuspended(BackendMessage):
    """Execute's ``max_rows`` were reached."""

    tag: ClassVar[bytes] = b"s"


@dataclass(frozen=True, slots=True)
class FunctionCallResponse(BackendMessage):
    """What the function returned; None is NULL."""

    tag: ClassVar[bytes] = b"V"
    result: Annotated[bytes | None, NullableBytes()]


FRONTEND: Final[tuple[type[FrontendMessage], ...]] = (
    StartupMessage, SSLRequest, GSSENCRequest, CancelRequest, AuthenticationResponse, Query, Terminate,
    CopyData, CopyDone, CopyFail, Parse, Bind, Describe, Execute, Close, FunctionCall, Flush, Sync,
)  # fmt: skip
ANSWERS: Final[tuple[type[FrontendMessage], ...]] = (PasswordMessage, SASLInitialResponse)
BACKEND: Final[tuple[type[BackendMessage], ...]] = (
    AuthenticationOk, AuthenticationKerberosV5, AuthenticationCleartextPassword, AuthenticationMD5Password,
    AuthenticationGSS, AuthenticationGSSContinue, AuthenticationSSPI, AuthenticationSASL,
    AuthenticationSASLContinue, AuthenticationSASLFinal, BackendKeyData, NegotiateProtocolVersion, ParameterStatus,
    ReadyForQuery, ErrorResponse, NoticeResponse, NotificationResponse, RowDescription, DataRow, CommandComplete,
    EmptyQueryResponse, CopyInResponse, CopyOutResponse, CopyBothResponse, CopyData, CopyDone, ParseComplete,
    BindComplete, CloseComplete, NoData, ParameterDescription, PortalSuspended, FunctionCallResponse,
)  # fmt: skip
