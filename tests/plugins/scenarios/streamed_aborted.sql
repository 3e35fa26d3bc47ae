--! since: 14
--! live
--! setup
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE u (id int PRIMARY KEY, v text);
--! run
--! session: a
BEGIN;
INSERT INTO t SELECT i, repeat('a', 400) FROM generate_series(1, 300) i;
--! wait
SAVEPOINT s;
INSERT INTO u SELECT i, repeat('s', 400) FROM generate_series(1, 300) i;
SAVEPOINT n;
INSERT INTO u SELECT i, repeat('n', 400) FROM generate_series(301, 600) i;
--! wait
ROLLBACK TO n;
--! session: b
BEGIN;
INSERT INTO t SELECT i, repeat('b', 400) FROM generate_series(10001, 10300) i;
--! wait
--! session: a
INSERT INTO u SELECT i, repeat('m', 400) FROM generate_series(601, 900) i;
--! wait
ROLLBACK TO s;
INSERT INTO u VALUES (7, 'kept');
COMMIT;
--! session: b
DELETE FROM t WHERE id < 200;
--! wait
ROLLBACK;
--! session: c
BEGIN;
SAVEPOINT x;
INSERT INTO u SELECT i, repeat('x', 400) FROM generate_series(20001, 20300) i;
SELECT pg_logical_emit_message(true, 'aborted', 'in c');
TRUNCATE u;
--! wait
RELEASE x;
ROLLBACK;
INSERT INTO u VALUES (8, 'after');
BEGIN;
INSERT INTO t VALUES (50000, 'aborted, not streamed');
ROLLBACK;
