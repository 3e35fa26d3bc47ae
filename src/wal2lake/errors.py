"""Every failure is one of these: a whole sentence with place and cure, never a cell value or a credential.

The exit codes are part of the command line's contract (docs/errors.md) and never change their meaning.
``transient`` says whether waiting can mend it: the supervisor restarts what is, and stops for the rest.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

RESYNC: Final = "Call `wal2lake resync` with the table's name: it is read anew."
BEGIN_ANEW: Final = "`wal2lake drop --with-log`, then `wal2lake run`"  # the one way; every table is read again


class Wal2LakeError(Exception):
    """The root of the tree.

    ``message`` is a sentence; ``hint`` the cure; ``relation`` (schema.table), ``column``, ``offset`` (bytes
    into the message) and ``lsn`` say where, as far as it is known.
    """

    exit_code: ClassVar[int] = 1
    transient: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        relation: str | None = None,
        column: str | None = None,
        offset: int | None = None,
        lsn: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.relation = relation
        self.column = column
        self.offset = offset
        self.lsn = lsn

    def __str__(self) -> str:
        lsn = None if self.lsn is None else f"{self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}"
        places = (("relation", self.relation), ("column", self.column), ("offset", self.offset), ("LSN", lsn))
        where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        return self.message + (f" [{where}]" if where else "") + (f" {self.hint}" if self.hint else "")

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross process borders (Spark tasks), so they pickle with all their places."""
        places = {name: getattr(self, name) for name in ("hint", "relation", "column", "offset", "lsn")}
        return _rebuild, (type(self), self.message, places)


def _rebuild(kind: type[Wal2LakeError], message: str, places: dict[str, Any]) -> Wal2LakeError:
    return kind(message, **places)


class ConfigError(Wal2LakeError):
    """A setting, flag or argument is wrong."""

    exit_code = 2


class ProtocolError(Wal2LakeError):
    """Bytes that are not what the protocol says, with the offset into the message; decoders raise no other."""

    exit_code = 3


class ConnectError(Wal2LakeError):
    """The server cannot be reached, went away, or lacks disk, memory or connections for now."""

    exit_code = 4
    transient = True


class AuthError(Wal2LakeError):
    """The server refuses the credentials or the TLS peer."""

    exit_code = 5


class RightsError(Wal2LakeError):
    """The role may not do this (REPLICATION attribute, SELECT, ownership)."""

    exit_code = 6


class ServerConfigError(Wal2LakeError):
    """The server is not set up for this: wal_level, slots, senders, version."""

    exit_code = 7


class PublicationError(Wal2LakeError):
    """The publication is missing or does not fit."""

    exit_code = 8


class SlotMissingError(Wal2LakeError):
    """The replication slot does not exist (any more)."""

    exit_code = 9


class SlotInUseError(Wal2LakeError):
    """Another process streams from the slot, or works on its change log."""

    exit_code = 10


class SlotLostError(Wal2LakeError):
    """The slot was invalidated: WAL that it needs is gone."""

    exit_code = 11


class LogMismatchError(Wal2LakeError):
    """The change log and the slot do not belong together (system, timeline, slot, position)."""

    exit_code = 12


class LogFullError(Wal2LakeError):
    """The disk under the change log or the lake is full."""

    exit_code = 13


class LogCorruptError(Wal2LakeError):
    """A file of the change log is damaged, lost or of another format; the sentence names it and its cure."""

    exit_code = 14


class UnrepresentableError(Wal2LakeError):
    """A value has no place in the column's lake type, and the policy is ``error``."""

    exit_code = 15


class SchemaChangeError(Wal2LakeError):
    """A schema change that the target cannot follow."""

    exit_code = 16


class SinkError(Wal2LakeError):
    """The target table cannot be written or is not ours."""

    exit_code = 17


class VerifyError(Wal2LakeError):
    """Source and lake differ, or could not be brought to one LSN."""

    exit_code = 18


class SparkError(Wal2LakeError):
    """Spark cannot start or a job failed for a reason of its own (Java, memory, configuration)."""

    exit_code = 19


class ServerError(Wal2LakeError):
    """PostgreSQL reported an error that has no class of its own here; the SQLSTATE stands in the message."""

    exit_code = 20


class LockedError(Wal2LakeError):
    """Another session holds or awaits a lock that shuts everybody else out of a table."""

    exit_code = 21
    transient = True


class SlotExistsError(Wal2LakeError):
    """There is a replication slot of this name already."""

    exit_code = 22


class PluginError(Wal2LakeError):
    """An output plugin written in Python is missing, incomplete, or failed."""

    exit_code = 23


class InterruptedByUser(Wal2LakeError):
    """Ctrl-C, SIGTERM or SIGHUP ended the command before its work was done."""

    exit_code = 130
