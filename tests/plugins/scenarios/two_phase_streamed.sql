--! since: 15
--! two_phase
--! live
--! setup
CREATE TABLE t (id int PRIMARY KEY, v text);
--! run
BEGIN;
INSERT INTO t SELECT i, repeat('a', 400) FROM generate_series(1, 300) i;
--! wait
SAVEPOINT s;
INSERT INTO t SELECT i, repeat('gone', 100) FROM generate_series(301, 600) i;
--! wait
ROLLBACK TO s;
PREPARE TRANSACTION 'streamed';
--! wait
COMMIT PREPARED 'streamed';
BEGIN;
UPDATE t SET v = 'b';
--! wait
PREPARE TRANSACTION 'streamed, rolled back';
--! wait
ROLLBACK PREPARED 'streamed, rolled back';
INSERT INTO t VALUES (1000, 'last');
