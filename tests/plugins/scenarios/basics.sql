--! setup
CREATE TABLE plain (id int PRIMARY KEY, name text, amount numeric(10,2) DEFAULT 0, seen timestamptz);
CREATE TABLE pair (a int, b text, c bool NOT NULL DEFAULT false, PRIMARY KEY (b, a));
--! run
INSERT INTO plain VALUES (1, 'one', 1.50, '2024-02-29 12:00:00+00');
INSERT INTO plain SELECT i, 'row ' || i, i / 3.0, NULL FROM generate_series(2, 40) i;
BEGIN;
UPDATE plain SET amount = amount * 2 WHERE id % 5 = 0;
DELETE FROM plain WHERE id % 7 = 0;
INSERT INTO plain (id) VALUES (100);
UPDATE plain SET name = NULL, seen = 'infinity' WHERE id = 100;
COMMIT;
BEGIN;
INSERT INTO pair SELECT i, 'k' || i FROM generate_series(1, 20) i;
UPDATE pair SET c = NOT c;
UPDATE pair SET a = a + 100 WHERE a > 10;
DELETE FROM pair WHERE a > 105;
COMMIT;
INSERT INTO plain VALUES (1, 'again') ON CONFLICT (id) DO UPDATE SET name = excluded.name;
INSERT INTO plain VALUES (1, 'never') ON CONFLICT DO NOTHING;
WITH gone AS (DELETE FROM plain WHERE id < 10 RETURNING *) INSERT INTO pair SELECT id, name FROM gone;
