"""Runs targets against mutants and says what is a bug: any other exception, no offset, too long, too much memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.fuzz.mutate import mutant
from tests.fuzz.targets import Target
from wal2lake.errors import ProtocolError

SLOWEST: Final = 2.0  # seconds of processor time that one mutant may take
BATCH: Final = 200


@dataclass
class Bug:
    """A mutant that broke a rule; ``data`` reproduces it."""

    target: str
    data: bytes
    problem: str

    def __str__(self) -> str:
        return f"{self.target}: {self.problem}\n  bytes.fromhex('{self.data.hex()}')"


def check(target: Target, data: bytes) -> Bug | None:
    """Run one mutant."""
    began = time.process_time()
    try:
        target.run(data)
    except ProtocolError as error:
        if error.offset is None or not 0 <= error.offset <= len(data):
            return Bug(target.name, data, f"offset {error.offset} of {len(data)}: {error}")
    except MemoryError:
        return Bug(target.name, data, "takes too much memory")
    except Exception as error:  # noqa: BLE001 - whatever else is raised is what the fuzzer is looking for
        return Bug(target.name, data, f"{type(error).__name__}: {error}")
    took = time.process_time() - began
    return Bug(target.name, data, f"takes {took:.1f} s") if took > SLOWEST else None


def warm(targets: list[Target]) -> None:
    """Run each target once: what is imported or compiled at first use is no mutant's fault."""
    for target in targets:
        target.run(target.corpus[0])


def fuzz(targets: list[Target], random: Random) -> list[Bug]:
    """One round: BATCH mutants for every target; at most one bug of each target is reported."""
    bugs = dict[str, Bug]()
    for target in targets:
        for _ in range(BATCH):
            bug = check(target, mutant(random, target.corpus))
            if bug is not None:
                bugs.setdefault(target.name, bug)
    return list(bugs.values())
