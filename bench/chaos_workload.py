"""Four connections that write at random, one of which changes definitions and the publication as well.

Whatever fails (a key that is taken, a deadlock, a column that is not there, a server that is gone) is rolled back and
forgotten: what counts is what the server holds at the end.
"""

from __future__ import annotations

import random
import threading
import time

import psycopg

from bench.chaos_tables import CHANGES, LARGE, SHAPES, fill, statement, swap

CONNECTIONS = 4
_PAUSE_S = 0.02
_AWAY_S = 0.2  # before a server that is gone is asked again


class Writer(threading.Thread):
    """One connection. ``changes``: the seconds between two changes of definitions; None: it makes none."""

    def __init__(self, dsn: str, seed: str, changes: float | None) -> None:
        super().__init__(name=f"writer {seed}", daemon=True)
        self.transactions = self.failed = 0
        self._dsn = dsn
        self._dice = random.Random(seed)
        self._changes = changes
        self._stopped = threading.Event()

    def finish(self) -> None:
        """Let it end, and wait for that."""
        self._stopped.set()
        self.join()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as connection:
                    self._write(connection)
            except psycopg.OperationalError:
                time.sleep(_AWAY_S)  # the server is gone for a while

    def _write(self, connection: psycopg.Connection) -> None:
        connection.execute("SET lock_timeout TO '3s'; SET search_path TO shop")
        due = time.monotonic() + (self._changes or 0)
        while not self._stopped.is_set() and not connection.closed:
            if self._changes is not None and time.monotonic() >= due:
                self._change(connection)
                due = time.monotonic() + self._changes * self._dice.uniform(0.5, 1.5)
            else:
                self._transaction(connection)
            self._stopped.wait(_PAUSE_S * self._dice.random())

    def _change(self, connection: psycopg.Connection) -> None:
        shape = self._dice.choice(SHAPES)
        for step in self._dice.choice(CHANGES):
            self._try(connection, fill(step, shape, self._dice))

    def _transaction(self, connection: psycopg.Connection) -> None:
        """A few statements on a few tables, some of them undone by a savepoint, or all."""
        dice = self._dice
        if dice.random() < 0.005:
            self._try(connection, f"BEGIN; SAVEPOINT a; DELETE FROM plain WHERE id = 1; RELEASE a; {LARGE}; ROLLBACK")
            return
        steps = [statement(dice.choice(SHAPES), dice) for _ in range(dice.randint(1, 6))]
        if dice.random() < 0.1:
            steps += swap(dice.choice(SHAPES), dice)
        if dice.random() < 0.2:
            steps.insert(dice.randrange(len(steps)), "SAVEPOINT a")
            steps.append(dice.choice(("ROLLBACK TO a", "RELEASE a")))
        end = "ROLLBACK" if dice.random() < 0.1 else "COMMIT"
        self._try(connection, "; ".join(["BEGIN", *steps, end]))

    def _try(self, connection: psycopg.Connection, text: str) -> None:
        self.transactions += 1
        try:
            connection.execute(text.encode())
        except psycopg.OperationalError:
            self.failed += 1
            if connection.closed:
                raise
            connection.execute("ROLLBACK")
        except psycopg.Error:
            self.failed += 1
            connection.execute("ROLLBACK")
