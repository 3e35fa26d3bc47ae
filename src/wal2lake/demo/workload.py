"""What a shop does to its database all day, at a steady rate: each step is one transaction.

Every step is chosen by a seeded generator, so a run can be repeated; what a step changes is named by its method.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import psycopg

from wal2lake.errors import Wal2LakeError
from wal2lake.postgres.errors import map_error

_LARGE_EVERY_S = 12.0
_STEPS_PER_SECOND = 25


class Workload(threading.Thread):
    """Runs until ``finish`` is called; ``error`` holds what ended it before.

    ``large_every_s``: seconds between two large transactions, the first of which comes after a third of that.
    """

    def __init__(self, dsn: str, seed: int = 0, *, large_every_s: float = _LARGE_EVERY_S) -> None:
        super().__init__(name="workload", daemon=True)
        self.error: Wal2LakeError | None = None
        self.transactions = 0
        self._dsn = dsn
        self._large_every_s = large_every_s
        self._random = random.Random(seed)  # noqa: S311 - a workload, not a secret
        self._finish = threading.Event()
        self._altered = False

    def finish(self) -> None:
        """End after the present transaction and wait for it; raises what went wrong meanwhile."""
        self._finish.set()
        self.join()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                self._loop(connection)
        except psycopg.Error as error:
            self.error = map_error(error)

    def _loop(self, connection: psycopg.Connection) -> None:
        steps = self._steps()
        names, weights = list(steps), [weight for weight, _ in steps.values()]
        next_large = time.monotonic() + self._large_every_s / 3
        while not self._finish.wait(1 / _STEPS_PER_SECOND):
            if time.monotonic() > next_large:
                next_large += self._large_every_s
                self._large(connection)
                self._truncate_carts(connection)
            name = self._random.choices(names, weights)[0]
            steps[name][1](connection)
            self.transactions += 1

    def _steps(self) -> dict[str, tuple[int, Callable[[psycopg.Connection], None]]]:
        return {
            "place orders": (30, self._place_orders),
            "pay and ship": (20, self._pay_and_ship),
            "edit customers": (15, self._edit_customers),
            "reprice": (12, self._reprice),
            "change keys": (6, self._change_keys),
            "return orders": (8, self._return_orders),
            "restock": (10, self._restock),
            "carts": (5, self._carts),
            "roll back": (5, self._roll_back),
            "savepoint": (4, self._savepoint),
        }

    def _pick(self, modulus: int) -> dict[str, int]:
        return {"m": modulus, "r": self._random.randrange(modulus)}

    def _place_orders(self, connection: psycopg.Connection) -> None:
        """One transaction over three tables."""
        count = self._random.randint(1, 20)
        with connection.transaction():
            connection.execute(
                "WITH placed AS (INSERT INTO shop.orders (customer_id, total, note)"
                " SELECT 1 + (random() * 19999)::int, (random() * 900)::numeric(14,2),"
                "   CASE WHEN random() < .5 THEN 'gift' END FROM generate_series(1, %(n)s) RETURNING id)"
                " INSERT INTO shop.order_lines SELECT id, l, gen_random_uuid(), (random() * 9)::int, 4.20"
                " FROM placed, generate_series(1, 3) l",
                {"n": count},
            )
            connection.execute("INSERT INTO stock.movements (kind, amount) VALUES ('sale', %s)", [count])

    def _pay_and_ship(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "UPDATE shop.orders SET status = CASE status WHEN 'new' THEN 'paid' ELSE 'shipped' END::shop.order_status,"
            " note = CASE WHEN id %% 2 = 0 THEN NULL ELSE '' END WHERE id %% %(m)s = %(r)s AND status <> 'returned'",
            self._pick(900),
        )

    def _edit_customers(self, connection: psycopg.Connection) -> None:
        """Most edits leave the TOASTed biography as it is; some change it, empty it or take it away."""
        pick = self._pick(700)
        connection.execute(
            "UPDATE shop.customers SET profile = jsonb_set(coalesce(profile, '{}'), '{score}', to_jsonb(random())),"
            " tags = tags || 'edited, \"twice\"'::text WHERE id %% %(m)s = %(r)s AND cardinality(tags) < 12",
            pick,
        )
        connection.execute(
            "UPDATE shop.customers SET biography = CASE id %% 3 WHEN 0 THEN NULL WHEN 1 THEN ''"
            " ELSE repeat(md5(random()::text), 150) END WHERE id %% %(m)s = %(r)s AND id %% 5 = 0",
            pick,
        )
        if self._altered:
            connection.execute("UPDATE shop.customers SET loyalty = loyalty + 1 WHERE id %% %(m)s = %(r)s", pick)

    def _reprice(self, connection: psycopg.Connection) -> None:
        """Products with unchanged TOAST values, and the table of REPLICA IDENTITY FULL with its equal rows."""
        with connection.transaction():
            connection.execute(
                "UPDATE shop.products SET price = price * 1.01, weight_kg = -weight_kg"
                " WHERE abs(hashtext(sku::text)) %% %(m)s = %(r)s AND price < 1e8",
                self._pick(150),
            )
            connection.execute(
                "UPDATE stock.prices SET price = price + 0.0001 WHERE abs(hashtext(sku::text)) %% %(m)s = %(r)s",
                self._pick(400),
            )
            connection.execute(
                "DELETE FROM stock.prices WHERE ctid IN (SELECT ctid FROM stock.prices"
                " WHERE abs(hashtext(sku::text)) %% %(m)s = %(r)s LIMIT 3)",
                self._pick(50),
            )
            connection.execute("INSERT INTO stock.prices SELECT * FROM stock.prices LIMIT 3")

    def _change_keys(self, connection: psycopg.Connection) -> None:
        """Keys change while TOASTed columns of the same rows do not, and keys go round within a transaction."""
        with connection.transaction():
            connection.execute(
                "UPDATE shop.products SET sku = gen_random_uuid() WHERE sku IN"
                " (SELECT sku FROM shop.products WHERE abs(hashtext(sku::text)) %% %(m)s = %(r)s LIMIT 5)",
                self._pick(300),
            )
            connection.execute(
                "UPDATE stock.orders SET number = number + 100000 WHERE number %% %(m)s = %(r)s", self._pick(200)
            )
            connection.execute("UPDATE shop.customers SET id = -id WHERE id IN (7, 9, -7, -9)")

    def _return_orders(self, connection: psycopg.Connection) -> None:
        with connection.transaction():
            pick = self._pick(1500)
            connection.execute("DELETE FROM shop.order_lines WHERE order_id %% %(m)s = %(r)s", pick)
            connection.execute("DELETE FROM shop.orders WHERE id %% %(m)s = %(r)s", pick)

    def _restock(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "INSERT INTO stock.movements (kind, amount, interval, detail) SELECT 'restock', random(), "
            " random() * interval '3 days', CASE WHEN i %% 2 = 0 THEN 'élan ' || i END"
            " FROM generate_series(1, %s) i",
            [self._random.randint(1, 60)],
        )

    def _carts(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "INSERT INTO shop.carts SELECT i, '[1, 2.50]', now()::timestamp"
            " FROM generate_series(%(a)s::int, %(a)s::int + 20) i"
            " ON CONFLICT (customer_id) DO UPDATE SET items = '[\"again\"]'",
            {"a": self._random.randrange(3000)},
        )

    def _roll_back(self, connection: psycopg.Connection) -> None:
        """What never happened must not arrive."""
        with connection.transaction(force_rollback=True):
            connection.execute("UPDATE shop.orders SET total = -1 WHERE id < 200")
            connection.execute("DELETE FROM stock.orders")

    def _savepoint(self, connection: psycopg.Connection) -> None:
        with connection.transaction():
            connection.execute("INSERT INTO stock.movements (kind) VALUES ('kept')")
            with connection.transaction(force_rollback=True):
                connection.execute("INSERT INTO stock.movements (kind) VALUES ('rolled back')")

    def _truncate_carts(self, connection: psycopg.Connection) -> None:
        with connection.transaction():
            connection.execute("TRUNCATE shop.carts")
            connection.execute("INSERT INTO shop.carts VALUES (1, '{}', '2031-01-01')")

    def _large(self, connection: psycopg.Connection) -> None:
        """A transaction of tens of thousands of changes; the first one is followed by the ALTER TABLE."""
        with connection.transaction():
            connection.execute(
                "INSERT INTO stock.movements (kind, amount, detail)"
                " SELECT 'count', i, md5(i::text) FROM generate_series(1, 20000) i"
            )
            connection.execute("UPDATE shop.orders SET total = total + 1 WHERE id %% %(m)s = %(r)s", self._pick(5))
        if not self._altered:  # the default reaches existing rows without any change message
            connection.execute("ALTER TABLE shop.customers ADD COLUMN IF NOT EXISTS loyalty integer DEFAULT 10")
            self._altered = True
