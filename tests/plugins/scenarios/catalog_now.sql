--! options: 1 catalog | 2 catalog | 2 pk
--! setup
CREATE TABLE t (id int PRIMARY KEY, v text DEFAULT 'then', n int);
--! run
INSERT INTO t VALUES (1, 'a', 2);
BEGIN;
ALTER TABLE t ALTER v SET DEFAULT 'now', ALTER n SET NOT NULL;
INSERT INTO t VALUES (2, 'b', 3);
ALTER TABLE t DROP n;
INSERT INTO t VALUES (3, 'c');
COMMIT;
