"""The slot's SQL interface: the same messages over an ordinary connection, which needs no walsender.

Source: PostgreSQL documentation, "Replication Management Functions" (pg_logical_slot_get_changes and its kin).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.errors import Diagnostic

from wal2lake.arguments import as_lsn, as_name, as_options
from wal2lake.errors import ConfigError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.connection import Connection, mapped_errors
from wal2lake.postgres.logical import GivenOptions
from wal2lake.postgres.notices import refusal_of
from wal2lake.wire.replication import XLogData


def slot_changes(
    connection: Connection,
    slot: str,
    *,
    peek: bool = False,
    upto_lsn: LSN | None = None,
    upto_nchanges: int | None = None,
    plugin_options: PgoutputOptions | GivenOptions = (),
    binary: bool = True,
) -> Iterator[XLogData]:
    """pg_logical_slot_get_binary_changes, or with ``peek`` and without ``binary`` its kin, as a walsender would send.

    Both limits end after a whole transaction. The server collects all before it answers, so set one. Unless ``peek``,
    the slot has moved behind what is returned when the first message comes: to lose nothing, peek, store, then
    advance. Raises SlotMissingError, SlotInUseError, SlotLostError, RightsError, ServerError; PublicationError, with
    nothing returned, when a publication was missing when a row was changed; and ConfigError for an option without a
    value, which these functions cannot give (START_REPLICATION can), and for arguments of a wrong kind.
    """
    function = f"pg_logical_slot_{'peek' if peek else 'get'}{'_binary' if binary else ''}_changes"
    version = connection.info.server_version
    if isinstance(plugin_options, PgoutputOptions):
        pairs = plugin_options.build(version)
    else:
        pairs = as_options(plugin_options, "plugin_options")
    options = [part for name, value in pairs for part in (name, _required(name, value))]
    sql = f"SELECT lsn::text, data FROM {function}(%s, %s, %s, VARIADIC %s::text[])"
    limit = None if upto_lsn is None else str(as_lsn(upto_lsn, "upto_lsn"))
    refusals: list[Wal2LakeError] = []
    with mapped_errors(), connection.cursor() as cursor:
        with _collect_refusals(connection, refusals):
            cursor.execute(sql.encode(), [as_name(slot, "slot"), limit, upto_nchanges, options])
        if refusals:
            raise refusals[0]
        for lsn, data in cursor:
            position = LSN.parse(lsn)
            yield XLogData(position, position, 0, data if isinstance(data, bytes) else data.encode())


def _required(name: str, value: str | None) -> str:
    if value is None:
        raise ConfigError(
            f"The slot's SQL functions cannot give an option without a value: {name}.",
            hint="Write the value out (true, of a boolean), or stream from the slot.",
        )
    return value


@contextmanager
def _collect_refusals(connection: Connection, refusals: list[Wal2LakeError]) -> Iterator[None]:
    """Gather what the block's warnings stand for where the server goes on without what was asked for (notices.py)."""

    def collect(notice: Diagnostic) -> None:
        if (refused := refusal_of(notice)) is not None:
            refusals.append(refused)

    connection.add_notice_handler(collect)
    try:
        yield
    finally:
        connection.remove_notice_handler(collect)
