"""The words of a replication command: quoting on the way out, the scanner on the way in; they are inverse.

Keywords are upper case only; an unquoted identifier is folded to lower case; there are no escapes but doubled quotes.

Source: src/backend/replication/repl_scanner.l.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from wal2lake.errors import ConfigError, ProtocolError, ServerConfigError
from wal2lake.lsn import LSN
from wal2lake.names import quoted

NAME_MAX_BYTES: Final = 63
OptionValue = str | int | None

_TOKEN = re.compile(
    r"""\s*(?:(?P<lsn>[0-9A-Fa-f]+/[0-9A-Fa-f]+)
          |(?P<number>[0-9]+)
          |(?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
          |"(?P<quoted>(?:[^"\0]|"")+)"
          |'(?P<string>(?:[^'\0]|'')*)'
          |(?P<punctuation>[(),.;])
          |(?P<end>\Z))""",
    re.VERBOSE,
)


def quote_identifier(name: str) -> str:
    """``name`` in double quotes; raise ConfigError for what the server would refuse or silently truncate."""
    if not name or "\0" in name or len(name.encode("utf-8", "replace")) > NAME_MAX_BYTES:
        raise ConfigError(f"{name!r} cannot be a name: it needs 1 to {NAME_MAX_BYTES} bytes, none of them zero.")
    return quoted(name)


def quote_string(value: str) -> str:
    """``value`` in single quotes; raise ConfigError for a null byte, which would end the command."""
    if "\0" in value:
        raise ConfigError("A replication command cannot hold a null byte.")
    return "'" + value.replace("'", "''") + "'"


def require(what: str, version: int, since: int) -> None:
    """Raise ServerConfigError unless server ``version`` (server_version_num) knows ``what``."""
    if version < since:
        raise ServerConfigError(
            f"PostgreSQL {version // 10000} does not know {what}.",
            hint=f"PostgreSQL {since // 10000} and later do.",
        )


class Token(NamedTuple):
    """``kind`` is a group of the scanner's expression; ``offset`` is where it begins, in characters."""

    kind: str
    text: str
    offset: int


class Tokens:
    """A cursor over the words of one command; everything unexpected is ProtocolError with its offset."""

    def __init__(self, command: str) -> None:
        self._tokens = list(_scan(command))
        self._next = 0

    @property
    def current(self) -> Token:
        return self._tokens[self._next]

    def error(self, expected: str) -> ProtocolError:
        found = self.current.text or "the end of the command"
        return self.refuse(f"Expected {expected}, found {found!r}.")

    def refuse(self, sentence: str) -> ProtocolError:
        """The error to raise for what was read up to here."""
        return ProtocolError(sentence, offset=self.current.offset)

    def take(self, kind: str, expected: str) -> str:
        if self.current.kind != kind:
            raise self.error(expected)
        self._next += 1
        return self._tokens[self._next - 1].text

    def accept(self, *texts: str) -> str | None:
        """Step over a keyword or a punctuation mark if one of ``texts`` stands here."""
        if self.current.kind in ("word", "punctuation") and self.current.text in texts:
            self._next += 1
            return self._tokens[self._next - 1].text
        return None

    def expect(self, text: str) -> None:
        if self.accept(text) is None:
            raise self.error(text)

    def identifier(self) -> str:
        """A name; one that the server would truncate is refused, as in ``quote_identifier``."""
        quoted = self.current.kind == "quoted"
        name = self.current.text.replace('""', '"') if quoted else self.current.text.lower()
        if len(name.encode("utf-8", "replace")) > NAME_MAX_BYTES:
            raise self.error(f"a name of at most {NAME_MAX_BYTES} bytes")
        self.take(self.current.kind if quoted else "word", "a name")
        return name

    def string(self) -> str:
        return self.take("string", "a string in single quotes").replace("''", "'")

    def number(self) -> int:
        """UCONST: an unsigned integer of 32 bits."""
        if self.current.kind != "number":
            raise self.error("a number")
        number = uint32(self.current.text)
        if number is None:
            raise self.error("a number below 2^32")
        self._next += 1
        return number

    def lsn(self) -> LSN:
        if self.current.kind == "lsn" and max(map(len, self.current.text.split("/"))) > 8:
            raise self.error("an LSN such as 16/B374D848")
        return LSN.parse(self.take("lsn", "an LSN such as 16/B374D848"))

    def timeline(self) -> int:
        timeline = self.number()
        if not timeline:
            raise self.refuse("A timeline lies between 1 and 4294967295; 0 does not.")
        return timeline

    def options(self) -> dict[str, OptionValue]:
        """``( name [ value ] [, …] )``; a name without a value is there with None."""
        self.expect("(")
        options: dict[str, OptionValue] = {}
        while True:
            name = self.identifier()
            if name in options:
                raise self.refuse(f"Option {name} is given twice.")
            options[name] = self._option_value()
            if self.accept(","):
                continue
            self.expect(")")
            return options

    def _option_value(self) -> OptionValue:
        match self.current.kind:
            case "number":
                return self.number()
            case "string":
                return self.string()
            case "word" | "quoted":
                return self.identifier()
        return None

    def finish(self) -> None:
        self.accept(";")
        self.take("end", "the end of the command")


def uint32(digits: str) -> int | None:
    """The number of 32 bits that ASCII ``digits`` are, or None.

    Any number of zeros may stand before it, though Python makes a number of some thousand digits at most.
    """
    if not digits.isascii() or not digits.isdecimal():
        return None
    number = int(digits.lstrip("0")[:11] or "0")  # what a longer one begins with is too large already
    return number if number < 1 << 32 else None


def first_word(command: str) -> str:
    """The word that a command begins with; empty when it begins otherwise."""
    match = _TOKEN.match(command)
    return match["word"] or "" if match else ""


def _scan(command: str) -> list[Token]:
    tokens: list[Token] = []
    offset = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(command, offset)
        if match is None or match.lastgroup is None:
            raise ProtocolError("The replication command has a character that begins no word.", offset=offset)
        quote = match.lastgroup in ("quoted", "string")
        tokens.append(Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup) - quote))
        offset = match.end()
    return tokens


def option_list(options: list[str]) -> str:
    """`` (a, b)``, or nothing when there is none."""
    return f" ({', '.join(options)})" if options else ""


def boolean(tokens: Tokens, name: str, value: OptionValue) -> bool:
    """defGetBoolean: no value is true; raise ProtocolError for what is no boolean."""
    if value in (None, 1, "true", "on"):
        return True
    if value in (0, "false", "off"):
        return False
    raise tokens.refuse(f"Option {name} needs a boolean.")
