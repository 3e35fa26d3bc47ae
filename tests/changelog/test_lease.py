"""The lease as a machine of states: who may take it, while clocks run at paces of their own and answers are lost.

What holds whatever happens: an epoch is nobody else's; who takes a lease over has seen it unchanged for as long as it
lasts, by his own clock, or it was given back, or nobody's; and who is told that he holds it does, or renewed it less
than its time ago.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import count
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.changelog.memory import MemoryStorage
from wal2lake.changelog import lease
from wal2lake.changelog.documents import read_document
from wal2lake.changelog.storage import Hold, Stored, Version
from wal2lake.errors import ConnectError
from wal2lake.files import LockHeldError

NAME = "lock"
ACTORS = st.integers(0, 1)
LOST = st.just([]) | st.lists(st.booleans(), max_size=2)
AFTER = st.sampled_from([0.0, 0.6 * lease.LEASE_S, 1.2 * lease.LEASE_S])  # of sleep
_numbers = count()


class View(MemoryStorage):
    """The store as one machine sees it. ``lost``: of its next puts, whether each counts though nobody answers."""

    def __init__(self, store: MemoryStorage, where: str) -> None:
        super().__init__()
        self.where, self._store, self.lost = where, store, list[bool]()

    def exists(self, name: str) -> bool:
        return self._store.exists(name)

    def read(self, name: str) -> Stored:
        return self._store.read(name)

    def swap(self, name: str, data: bytes, version: Version | None) -> Version | None:
        if not self.lost:
            return self._store.swap(name, data, version)
        if self.lost.pop():
            self._store.swap(name, data, version)
        raise ConnectError("nobody answers")


class Leases(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store, run = MemoryStorage(), next(_numbers)
        self.views = [View(self.store, f"{run} {actor}") for actor in range(2)]
        self.clocks, self.at = [100.0, 2000.0], 0
        self.held: dict[int, tuple[AbstractContextManager[Hold], Hold]] = {}
        self.renewed: dict[int, float] = {}
        self.seen: dict[int, tuple[Version, float]] = {}
        self.nobodys: set[Version] = set()
        self.epoch = 0
        self.patches = [patch.object(lease, "clock", lambda: self.clocks[self.at]), patch.object(lease, "RENEW_S", 1e6)]
        for each in self.patches:
            each.start()

    def teardown(self) -> None:
        for holder in [*self.held]:
            self.give_back(holder, [])
        for each in self.patches:
            each.stop()

    def stored(self) -> tuple[Version, int, str] | None:
        """Version, epoch and holder of what is there."""
        if not self.store.exists(NAME):
            return None
        found = self.store.read(NAME)
        values = read_document(found.data, NAME)
        return found.version, int(values["epoch"]), str(values["holder"])

    @rule(actor=ACTORS, lost=LOST, after=AFTER)
    def take(self, actor: int, lost: list[bool], after: float) -> None:
        if actor in self.held:
            return
        self.clocks[actor] += after
        self.at, self.views[actor].lost, before = actor, lost[:], self.stored()
        asked = lease.leased(self.views[actor], NAME)
        try:
            hold = asked.__enter__()
        except LockHeldError:
            if before is not None and self.seen.get(actor, ("", 0.0))[0] != before[0]:
                self.seen[actor] = before[0], self.clocks[actor]
            return
        except ConnectError:
            if (after := self.stored()) is not None and after != before:
                self.nobodys.add(after[0])
                self.epoch = after[1]
            return
        finally:
            self.views[actor].lost.clear()
        if before is not None and before[2] and before[0] not in self.nobodys:
            version, since = self.seen[actor]
            assert version == before[0] and self.clocks[actor] - since >= lease.LEASE_S
        assert hold.epoch > self.epoch
        self.epoch, self.renewed[actor] = hold.epoch, self.clocks[actor]
        self.held[actor] = asked, hold

    @precondition(lambda self: self.held)
    @rule(actor=ACTORS, lost=LOST, after=AFTER)
    def work(self, actor: int, lost: list[bool], after: float) -> None:
        """As before each put."""
        if actor not in self.held:
            return
        self.clocks[actor] += after
        self.at, self.views[actor].lost = actor, lost[:]
        _, hold = self.held[actor]
        due = self.clocks[actor] - self.renewed[actor] > lease.LEASE_S
        try:
            hold.check()
        except LockHeldError:
            assert hold.epoch < self.epoch, "nobody has taken it"
        except ConnectError:
            assert due
        else:
            assert hold.epoch == self.epoch or not due
            if due:
                self.renewed[actor] = self.clocks[actor]
        finally:
            self.views[actor].lost.clear()

    @precondition(lambda self: self.held)
    @rule(actor=ACTORS, lost=LOST)
    def give_back(self, actor: int, lost: list[bool]) -> None:
        if actor not in self.held:
            return
        self.at, self.views[actor].lost = actor, lost[:]
        asked, hold = self.held.pop(actor)
        asked.__exit__(None, None, None)
        self.views[actor].lost.clear()
        if (found := self.stored()) is not None and found[1] == hold.epoch:
            self.nobodys.add(found[0])  # this process has it no more, whether the store was told or not

    @invariant()
    def one_epoch_is_ones(self) -> None:
        epochs = [hold.epoch for _, hold in self.held.values()]
        assert len({*epochs}) == len(epochs)
        found = self.stored()
        assert found is None or found[1] == self.epoch


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
