--! since: 15
--! two_phase
--! setup
CREATE TABLE t (id int PRIMARY KEY, v text);
--! run
BEGIN;
INSERT INTO t VALUES (1, 'first');
PREPARE TRANSACTION 'first';
INSERT INTO t VALUES (2, 'between');
COMMIT PREPARED 'first';
BEGIN;
INSERT INTO t VALUES (3, 'second');
SAVEPOINT s;
INSERT INTO t VALUES (4, 'second, subtransaction');
RELEASE s;
SAVEPOINT r;
DELETE FROM t;
ROLLBACK TO r;
SELECT pg_logical_emit_message(true, 'prepared', 'with it');
PREPARE TRANSACTION 'it''s "second" \ back';
COMMIT PREPARED 'it''s "second" \ back';
BEGIN;
INSERT INTO t VALUES (6, 'decoded at commit');
PREPARE TRANSACTION 'third_nodecode';
INSERT INTO t VALUES (7, 'between');
COMMIT PREPARED 'third_nodecode';
BEGIN;
INSERT INTO t VALUES (8, 'one');
PREPARE TRANSACTION 'x1';
BEGIN;
INSERT INTO t VALUES (9, 'two');
PREPARE TRANSACTION 'x2';
COMMIT PREPARED 'x2';
COMMIT PREPARED 'x1';
BEGIN;
TRUNCATE t;
INSERT INTO t SELECT i, 'n' FROM generate_series(1, 20) i;
PREPARE TRANSACTION 'truncating';
COMMIT PREPARED 'truncating';
