--! catalog changes
--! since: 14
--! setup
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE u (id int PRIMARY KEY, v text);
CREATE TABLE emptied (id int PRIMARY KEY);
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE moods (id int PRIMARY KEY, m mood);
--! run
--! session: a
BEGIN;
INSERT INTO t SELECT i, repeat('a', 400) FROM generate_series(1, 400) i;
--! session: b
BEGIN;
INSERT INTO u SELECT i, repeat('b', 400) FROM generate_series(1, 400) i;
INSERT INTO moods VALUES (1, 'sad');
SELECT pg_logical_emit_message(true, 'streamed', 'in b');
--! session: a
SAVEPOINT s;
UPDATE t SET v = 'a ' || id WHERE id <= 300;
INSERT INTO moods VALUES (2, 'ok');
RELEASE s;
SAVEPOINT r;
INSERT INTO t SELECT i, repeat('gone', 100) FROM generate_series(1001, 1400) i;
ROLLBACK TO r;
TRUNCATE emptied;
--! session: c
INSERT INTO t VALUES (2000, 'small, between');
--! session: b
UPDATE u SET id = id + 1000 WHERE id <= 300;
DELETE FROM u WHERE id > 1150;
COMMIT;
--! session: a
INSERT INTO t SELECT i, repeat('c', 400) FROM generate_series(3000, 3400) i;
COMMIT;
BEGIN;
INSERT INTO u SELECT i, repeat('d', 300) FROM generate_series(5000, 5800) i;
TRUNCATE t, u;
COMMIT;
BEGIN;
ALTER TABLE t ADD w int;
INSERT INTO t SELECT i, repeat('e', 300), i FROM generate_series(1, 400) i;
ALTER TABLE t DROP v;
INSERT INTO t SELECT i, i FROM generate_series(401, 1200) i;
COMMIT;
