"""What the server says beside its answers reaches the user, on every connection.

A WARNING goes to the log as one (without a configured log: to standard error), anything less as information. The text
of what code of the database's own raised, and of SQLSTATEs whose messages quote values, stays on the server.

Some warnings mean "I go on without what you asked for". PostgreSQL 18 says so of a publication that is missing when a
change is decoded (LoadPublications in pgoutput.c), where 13 to 17 end the stream with an error; the changes that it
would have published are not sent. A warning with the SQLSTATE of an error (classes 0A, 42 and 55: not supported,
unknown, not in the state for it) is told by the server as a warning because it chose to go on. On a stream of changes
that is the reader's to choose: ``refusal`` is the error it stands for. A notice is heard exactly where it stands amid
the messages of a COPY (getCopyDataMessage in fe-protocol3.c), so whatever came before it is sound.

Source: PostgreSQL documentation, "Error and Notice Message Fields", "libpq: Notice Processing".
"""

from __future__ import annotations

import logging
import re
from typing import Protocol

from psycopg import pq
from psycopg.errors import Diagnostic

from wal2lake.errors import Wal2LakeError
from wal2lake.postgres.errors import reported

_GOES_ON_WITHOUT = ("0A", "42", "55")
_QUOTES_VALUES = ("22", "23", "P0")
_RAISED = re.compile(r"exec_stmt_raise|PLy_output|do_util_elog|pltcl_elog")  # PL/pgSQL, Python, Perl, Tcl
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

logger = logging.getLogger("wal2lake.server")


class Notice(Protocol):
    """The fields of a notice by the names that psycopg gives them."""

    @property
    def severity_nonlocalized(self) -> str | None: ...
    @property
    def sqlstate(self) -> str | None: ...
    @property
    def message_primary(self) -> str | None: ...
    @property
    def source_function(self) -> str | None: ...


class Notices:
    """The notice handler of one libpq connection. ``refusal``: the first warning that is an error to its reader."""

    def __init__(self) -> None:
        self.refusal: Wal2LakeError | None = None

    def __call__(self, result: pq.abc.PGresult) -> None:
        self.hear(Diagnostic(result, "utf-8"))

    def hear(self, notice: Notice) -> None:
        refusal = refusal_of(notice)
        if refusal is None:
            log_notice(notice)
        elif self.refusal is None:
            self.refusal = refusal


def refusal_of(notice: Notice) -> Wal2LakeError | None:
    """The error that a warning stands for when the server goes on without what was asked for; None for any other."""
    sqlstate = notice.sqlstate or ""
    if notice.severity_nonlocalized != "WARNING" or not sqlstate.startswith(_GOES_ON_WITHOUT):
        return None
    return reported(sqlstate, _text(notice), notice.source_function or "")


def log_notice(notice: Notice) -> None:
    """Log a notice; the handler of ordinary connections."""
    warning = notice.severity_nonlocalized == "WARNING"
    level, verb = (logging.WARNING, "warns") if warning else (logging.INFO, "notes")
    logger.log(level, "PostgreSQL %s: %s (SQLSTATE %s).", verb, _text(notice), notice.sqlstate)


def _text(notice: Notice) -> str:
    if (notice.sqlstate or "").startswith(_QUOTES_VALUES) or _RAISED.fullmatch(notice.source_function or ""):
        return "the text may quote a value; the server's own log has it"
    return _CONTROL.sub("?", notice.message_primary or "").rstrip(".")
