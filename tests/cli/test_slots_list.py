"""What `slots list` shows of a slot: a zero is a value, and what the server gave up is named."""

from __future__ import annotations

from rich.console import Console

from wal2lake.cli.slots import listed, table
from wal2lake.lsn import LSN
from wal2lake.postgres.slots import SlotState


def test_the_wal_that_a_slot_keeps() -> None:
    states = [
        SlotState("behind", restart_lsn=LSN(1 << 24), wal_status="extended"),
        SlotState("whole", slot_type="physical", restart_lsn=LSN(1 << 25)),
        SlotState("ahead", restart_lsn=LSN(1 << 26)),
        SlotState("gone", wal_status="lost", invalidation_reason="wal_removed"),
    ]
    found = listed(states, LSN(1 << 25))
    assert [slot["retained_wal"] for slot in found] == [1 << 24, 0, 0, None]
    console = Console(width=140)
    with console.capture() as capture:
        console.print(table(found))
    _, behind, whole, _, gone = capture.get().splitlines()
    assert "16.8 MB" in behind and behind.split()[-1] == "extended"
    assert " 0 B" in whole
    assert gone.split()[-1] == "wal_removed"
