"""What the server cannot send as text in UTF-8: that one transaction is read in another manner, and the stream goes on.

Two kinds of value end a walsender at the same change for ever: a text with bytes that have no form in UTF-8, and a
bytea of more than 512 MB, whose hexadecimal text would pass the 1 GB that PostgreSQL can hold. All before its
transaction has come when the error does, and is durable; so the transaction is the next one. A session of its own asks
for it in binary form, or with text as the database stores it, takes nothing behind it, and ends.

Of a transaction that is sent before its commit that is not so: it is not the next one, and may never commit. So the
session that meets such a value there is followed by one that takes transactions when they commit, streamed and prepared
ones too. So is one that ends with any other error of the server's, for only a transaction in progress meets some.
PostgreSQL 14 and 15 were seen to fail where a subtransaction that is rolled back had rewritten a table and filled it
("could not map filenode … to relation OID"): at each new try, as long as the transaction is streamed.

Bytes of another encoding may look like UTF-8 and be another text. So where text came as it is stored, whatever is not
ASCII in a row is made what UTF-8 never has, and its table is left out with that reason, when its rows are decoded; the
others are not concerned. A database of encoding SQL_ASCII needs none of it: its text comes as it is stored at any time
(read_ahead.py), for the server would convert nothing and only end the stream.

Source: pg_server_to_any in src/backend/utils/mb/mbutils.c; byteaout and byteasend in src/backend/utils/adt/varlena.c.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import psycopg

from wal2lake.capture.startup import PLUGIN_OPTIONS, STREAMING_OPTIONS, TWO_PHASE_OPTIONS
from wal2lake.columnar.headers import COMMIT, DELETE, INSERT, ORIGIN, RELATION, TYPE, UPDATE, MessageColumns
from wal2lake.errors import BEGIN_ANEW, ProtocolError, ServerError, Wal2LakeError
from wal2lake.login import Dsn
from wal2lake.lsn import LSN
from wal2lake.names import qualified
from wal2lake.pgoutput.codec import read_message, write_message
from wal2lake.pgoutput.messages import Delete, Insert, Relation, Update
from wal2lake.pgoutput.options import OPTION_SINCE
from wal2lake.pgoutput.tuples import TupleColumn
from wal2lake.postgres.connection import connect
from wal2lake.postgres.errors import TooLargeError, UnsendableError

_AGAIN = f"have every table read again: {BEGIN_ANEW}"
_TOO_LARGE = (
    "Leave the column out of the publication (a column list, PostgreSQL 15 and later), or delete the row; then "
)
_NO_TEXT = "Mend the text (its bytes are no characters of the database's encoding); then "
_LARGEST = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r' AND pg_relation_size(c.reltoastrelid) > 0
   AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.atttypid = 17)
 ORDER BY pg_relation_size(c.reltoastrelid) DESC LIMIT 3
"""
_NOT_ASCII = re.compile(rb"[\x80-\xff]")

logger = logging.getLogger("wal2lake.capture")


@dataclass(frozen=True, slots=True)
class Manner:
    """How a session asks for what it reads; another than the usual one is for one transaction alone."""

    binary: bool = False
    as_stored: bool = False
    streaming: bool = False
    two_phase: bool = False

    @property
    def usual(self) -> bool:
        return not (self.binary or self.as_stored)

    @property
    def options(self) -> Mapping[str, str]:
        """Of pgoutput."""
        if not self.usual:
            return PLUGIN_OPTIONS | {"binary": "true"} if self.binary else PLUGIN_OPTIONS
        streaming = STREAMING_OPTIONS if self.streaming else {}
        return PLUGIN_OPTIONS | streaming | (TWO_PHASE_OPTIONS if self.two_phase else {})

    def beyond(self, error: ServerError, dsn: Dsn) -> Manner:
        """The manner in which the transaction can be had that ended this one by ``error``; which is raised, with the
        cure in its hint, when there is none."""
        if self.streaming or self.two_phase:
            return replace(self, streaming=False, two_phase=False)
        if not isinstance(error, UnsendableError):
            raise error
        too_large = isinstance(error, TooLargeError)
        other = replace(self, binary=True) if too_large else replace(self, as_stored=True)
        # in binary form nothing tells text from what is none
        if other == self or (other.binary and other.as_stored) or (too_large and not _knows_binary(dsn)):
            error.hint = f"{_TOO_LARGE if too_large else _NO_TEXT}{_AGAIN}.{_largest(dsn) if too_large else ''}"
            raise error
        return other


class OneTransaction:
    """The next transaction of a stream, behind ``durable``, and nothing else; ``over`` when its commit has come."""

    def __init__(self, manner: Manner, durable: LSN) -> None:
        self.over = False
        self._manner = manner
        self._durable = durable
        self._relations: dict[int, Relation] = {}

    def take(self, messages: MessageColumns) -> MessageColumns:
        """What of ``messages`` is to be stored. Raises ProtocolError as ``require_names``."""
        commits = messages.rows_of(COMMIT)
        ends = commits[messages.end_lsns(commits) > self._durable]
        if len(ends):
            self.over = True
            messages = messages.where(np.arange(len(messages)) <= ends[0])
        if self._manner.as_stored:
            return _without_foreign_text(messages)
        self._tell_largest(messages)
        return messages

    def _tell_largest(self, messages: MessageColumns) -> None:
        for number in messages.rows_of(RELATION).tolist():
            announced = messages.message(number)
            assert isinstance(announced, Relation)
            self._relations[announced.relation_id] = announced
        changes = messages.rows_of(INSERT, UPDATE, DELETE)
        if len(changes):
            row = changes[[messages.lengths[changes].argmax()]]
            relation = self._relations.get(int(messages.ids(row)[0]))
            name = "an unknown table" if relation is None else qualified(relation.namespace, relation.name)
            logger.warning("The largest change in it is of %s and has %d bytes.", name, messages.lengths[row][0])


def require_names(messages: MessageColumns, *, ascii_only: bool = False) -> None:
    """Raise ProtocolError for a name that is no UTF-8, where text came as the database stores it: the log must be able
    to tell its tables. ``ascii_only``: of what looks like UTF-8 nobody knows whether it is."""
    for row in messages.rows_of(RELATION, TYPE, ORIGIN).tolist():
        try:
            known = repr(messages.message(row)).isascii() or not ascii_only
        except ProtocolError:
            known = False
        if not known:
            hint = f"Rename what is not named in {'ASCII' if ascii_only else 'UTF-8'}; then {_AGAIN}."
            problem = "A table, column, type or origin has a name that cannot be had in UTF-8."
            raise ProtocolError(problem, hint=hint, lsn=int(messages.lsn[row]))


def _without_foreign_text(messages: MessageColumns) -> MessageColumns:
    """The same messages, with 0xFF in the place of each byte of a row's text that is not ASCII."""
    require_names(messages, ascii_only=True)
    foreign = {row: _marked(messages.payload_of(row)) for row in messages.rows_of(INSERT, UPDATE, DELETE).tolist()}
    payloads = (foreign.get(row) or messages.payload_of(row) for row in range(len(messages)))
    return MessageColumns.of(zip(messages.lsn.tolist(), payloads, strict=True))


def _marked(payload: bytes) -> bytes:
    message = read_message(payload)
    assert isinstance(message, Insert | Update | Delete)
    for part in ("old", "new"):
        row = getattr(message, part, None)
        if row is not None:
            message = replace(message, **{part: replace(row, columns=tuple(map(_mark, row.columns)))})
    return write_message(message)


def _mark(column: TupleColumn) -> TupleColumn:
    return column if column.data is None else TupleColumn(column.kind, _NOT_ASCII.sub(b"\xff", column.data))


def _knows_binary(dsn: Dsn) -> bool:
    with connect(dsn, application_name="wal2lake capture") as connection:
        return connection.info.server_version >= OPTION_SINCE["binary"]


def _largest(dsn: Dsn) -> str:
    """Which tables may have the value: those of the database with the most bytes out of line, beside a bytea."""
    found: list[tuple[str, str]] = []
    briefly = {"lock_timeout": "1s"}
    with (
        contextlib.suppress(psycopg.Error, Wal2LakeError),  # it is a hint
        connect(dsn, application_name="wal2lake capture", settings=briefly) as connection,
    ):
        found = connection.execute(_LARGEST).fetchall()
    names = ", ".join(qualified(*name) for name in found)
    return f" The tables with the largest values beside a bytea column: {names}." if names else ""
