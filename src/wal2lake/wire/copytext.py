"""COPY's text and csv formats, read and written: NULL is a string of its own, and no value is ever taken for it.

Values are bytes in the client's encoding, which must keep ASCII to itself (UTF-8 does). A line ends with a newline on
every platform: the protocol's COPY knows no other. A row without columns is an empty line, which reads as one value.

Source: PostgreSQL documentation, COPY, "File Formats"; src/backend/commands/copyto.c (CopyAttributeOutText,
CopyAttributeOutCSV), copyfromparse.c (CopyReadAttributesText, CopyReadAttributesCSV).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from wal2lake.errors import ConfigError, ProtocolError
from wal2lake.wire.copyformat import ROW_LIMIT, Row, RowReader

_LETTERS: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_ESCAPED: Final = {value: b"\\" + letter for letter, value in _LETTERS.items()}
_ESCAPE: Final = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_END: Final = b"\\."
_NOT_A_DELIMITER: Final = b"\\.abcdefghijklmnopqrstuvwxyz0123456789"


class LineFormat(ABC):
    """Rows as lines; ``field`` matches a value's bytes and what ends it."""

    field: re.Pattern[bytes]

    def __init__(self, delimiter: bytes, null: bytes, header: bool) -> None:
        """Raise ConfigError for what the server refuses too (ProcessCopyOptions)."""
        if len(delimiter) != 1 or delimiter in b"\r\n":
            raise ConfigError("COPY's delimiter is one byte, and no line break.")
        if delimiter in null or b"\n" in null or b"\r" in null:
            raise ConfigError("COPY's NULL string holds neither the delimiter nor a line break.")
        self.delimiter = delimiter
        self.null = null
        self.header = header

    @abstractmethod
    def scan(self, data: bytes | bytearray, at: int, quoted: bool) -> tuple[int, bool]:
        """Go on from ``at``, which stands within quotes or not, to the newline that ends the row.

        Without one: to where to go on when there is more data, which is no newline outside of quotes.
        """

    @abstractmethod
    def value(self, raw: bytes) -> bytes | None:
        """What a field's bytes stand for; None is NULL."""

    @abstractmethod
    def raw(self, value: bytes | None) -> bytes:
        """The field's bytes for a value; the inverse of ``value``."""

    def split(self, line: bytes) -> Row:
        """The values of a line, which comes without its newline."""
        values: list[bytes | None] = []
        at = 0
        while True:
            match = self.field.match(line, at)
            if match is None:
                raise ProtocolError("A field is neither followed by the delimiter nor the last.", offset=at)
            values.append(self.value(match[1]))
            at = match.end()
            if match.end(1) == at:
                return tuple(values)

    def write(self, row: Sequence[bytes | None]) -> bytes:
        """One line, with its newline; raise ProtocolError for a value that would be read as NULL."""
        return self.delimiter.join(map(self.raw, row)) + b"\n"


class TextFormat(LineFormat):
    """COPY … (FORMAT text, DELIMITER, NULL, HEADER)."""

    def __init__(self, delimiter: bytes = b"\t", null: bytes = b"\\N", *, header: bool = False) -> None:
        super().__init__(delimiter, null, header)
        if delimiter in _NOT_A_DELIMITER:
            raise ConfigError("COPY's delimiter in text format is no lower-case letter, digit, dot or backslash.")
        mark = re.escape(delimiter)
        self._line = re.compile(rb"(?:[^\\\n]|\\.)*+", re.DOTALL)
        self.field = re.compile(rb"((?:[^\\%b]|\\.|\\\Z)*+)(?:%b|\Z)" % (mark, mark), re.DOTALL)
        self._special = re.compile(rb"[\\\b\f\n\r\t\v%b]" % mark)

    def scan(self, data: bytes | bytearray, at: int, quoted: bool) -> tuple[int, bool]:
        return _end_of(self._line, data, at), False

    def value(self, raw: bytes) -> bytes | None:
        if raw == self.null:
            return None
        return _ESCAPE.sub(_unescape, raw) if b"\\" in raw else raw

    def raw(self, value: bytes | None) -> bytes:
        if value is None:
            return self.null
        raw = self._special.sub(lambda match: _ESCAPED.get(match[0], b"\\" + match[0]), value)
        if raw == self.null:
            raise ProtocolError("A value is the same as the NULL string: it would be read as NULL.")
        return raw


class CsvFormat(LineFormat):
    """COPY … (FORMAT csv, DELIMITER, NULL, HEADER, QUOTE, ESCAPE, FORCE_QUOTE); the last for all columns or none."""

    def __init__(
        self,
        delimiter: bytes = b",",
        null: bytes = b"",
        *,
        header: bool = False,
        quote: bytes = b'"',
        escape: bytes | None = None,
        force_quote: bool = False,
    ) -> None:
        super().__init__(delimiter, null, header)
        escape = quote if escape is None else escape
        if len(quote) != 1 or len(escape) != 1 or quote in b"\r\n" or escape in b"\r\n":
            raise ConfigError("COPY's quote and escape are one byte each, and no line break.")
        if quote == delimiter or quote in null:
            raise ConfigError("COPY's quote is neither the delimiter nor part of the NULL string.")
        self.quote, self.escape, self.force_quote = quote, escape, force_quote
        mark, q, e = map(re.escape, (delimiter, quote, escape))
        quoted = rb"%b(?:%b[%b%b]|[^%b])*+%b" % (q, e, e, q, q, q)
        self._outside = re.compile(rb"[^%b\n]*+" % q)
        lone = rb"" if escape == quote else rb"|%b(?=[^%b%b])" % (e, e, q)
        self._inside = re.compile(rb"(?:%b[%b%b]|[^%b%b]%b)*+" % (e, e, q, q, e, lone))
        self.field = re.compile(rb"((?:[^%b%b]|%b)*+)(?:%b|\Z)" % (q, mark, quoted, mark))
        self._quoted = re.compile(quoted)
        self._escaped = re.compile(rb"%b([%b%b])" % (e, e, q))
        self._special = re.compile(rb"[%b%b\r\n]" % (mark, q))
        self._to_escape = re.compile(rb"[%b%b]" % (e, q))

    def scan(self, data: bytes | bytearray, at: int, quoted: bool) -> tuple[int, bool]:
        while True:
            at = _end_of(self._inside if quoted else self._outside, data, at)
            if data[at : at + 1] != self.quote or (quoted and self.escape == self.quote and at + 1 == len(data)):
                return at, quoted
            at, quoted = at + 1, not quoted

    def value(self, raw: bytes) -> bytes | None:
        if self.quote not in raw:
            return None if raw == self.null else raw
        return self._quoted.sub(lambda match: self._escaped.sub(rb"\1", match[0][1:-1]), raw)

    def raw(self, value: bytes | None) -> bytes:
        if value is None:
            return self.null
        if self.force_quote or value in (self.null, _END) or self._special.search(value):
            return self.quote + self._to_escape.sub(lambda match: self.escape + match[0], value) + self.quote
        return value


class LineReader(RowReader):
    """COPY in a format of lines; ``names`` are the header's, once it has come."""

    def __init__(self, format: LineFormat, limit: int = ROW_LIMIT) -> None:
        super().__init__(limit)
        self.format = format
        self.names: Row | None = None
        self._scanned = 0  # of the row that the buffer begins with
        self._quoted = False  # whether it goes on within quotes

    def _may_complete_row(self, data: bytes | memoryview) -> bool:
        return b"\n" in bytes(data)

    def _rows(self, data: bytearray) -> tuple[list[Row], int]:
        rows: list[Row] = []
        used = 0
        while not self.ended and (end := self._line_end(data, used)) is not None:
            if end - used > self.limit:
                raise self._error(f"A row is longer than {self.limit} bytes.", used)
            self._line(bytes(data[used:end]), rows, used)
            used = end + 1
        if self.ended and used < len(data):
            raise self._error("Data follows the end of the COPY.", used)
        return rows, used

    def _line_end(self, data: bytearray, start: int) -> int | None:
        """The newline of the row at ``start``, if it is there; no byte is looked at twice."""
        at, self._quoted = self.format.scan(data, start + self._scanned, self._quoted)
        found = not self._quoted and data[at : at + 1] == b"\n"
        self._scanned = 0 if found else at - start
        return at if found else None

    def _line(self, line: bytes, rows: list[Row], at: int) -> None:
        if line == _END and isinstance(self.format, TextFormat):
            self.ended = True
            return
        try:
            row = self.format.split(line)
        except ProtocolError as error:
            raise self._error(error.message, at + (error.offset or 0)) from None
        if self.format.header and self.names is None:
            self.names = row
        else:
            rows.append(row)


def _end_of(pattern: re.Pattern[bytes], data: bytes | bytearray, at: int) -> int:
    """Where a pattern ends that matches anywhere, if only nothing."""
    match = pattern.match(data, at)
    assert match is not None
    return match.end()


def _unescape(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, character = match.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    return _LETTERS.get(character, character)
