--! setup
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE u (id int PRIMARY KEY, v text);
--! run
--! session: a
BEGIN;
INSERT INTO t VALUES (1, 'a');
--! session: b
BEGIN;
INSERT INTO u VALUES (1, 'b');
--! session: c
BEGIN;
INSERT INTO t VALUES (3, 'c');
SAVEPOINT s;
--! session: a
INSERT INTO u VALUES (2, 'a');
--! session: b
INSERT INTO t VALUES (2, 'b');
SAVEPOINT s;
DELETE FROM u WHERE id = 1;
--! session: c
INSERT INTO u VALUES (3, 'c');
ROLLBACK TO s;
INSERT INTO u VALUES (4, 'c');
--! session: b
ROLLBACK TO s;
COMMIT;
--! session: c
COMMIT;
--! session: d
INSERT INTO t VALUES (7, 'd between');
UPDATE u SET v = 'd' WHERE id = 1;
--! session: a
UPDATE u SET v = 'a again' WHERE id = 2;
COMMIT;
