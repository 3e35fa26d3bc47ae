--! setup
CREATE TABLE t (id int PRIMARY KEY, v text);
SELECT pg_replication_origin_create('one');
SELECT pg_replication_origin_create('another "one"');
--! run
INSERT INTO t VALUES (1, 'local');
SELECT pg_replication_origin_session_setup('one');
BEGIN;
SELECT pg_replication_origin_xact_setup('0/1234', '2024-02-29 12:00:00+00');
INSERT INTO t VALUES (2, 'from one');
UPDATE t SET v = 'from one' WHERE id = 1;
COMMIT;
INSERT INTO t VALUES (3, 'from one, without a position');
BEGIN;
INSERT INTO t VALUES (31, 'and another');
COMMIT;
SELECT pg_replication_origin_session_reset();
INSERT INTO t VALUES (4, 'local again');
SELECT pg_replication_origin_session_setup('another "one"');
BEGIN;
SELECT pg_replication_origin_xact_setup('16/B374D848', '2024-02-29 12:00:00.25+00');
INSERT INTO t VALUES (5, 'from another');
SAVEPOINT s;
DELETE FROM t WHERE id < 3;
RELEASE s;
COMMIT;
TRUNCATE t;
SELECT pg_replication_origin_session_reset();
INSERT INTO t VALUES (6, 'local at last');
