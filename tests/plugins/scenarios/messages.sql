--! since: 14
--! setup
CREATE TABLE t (id int PRIMARY KEY);
SELECT pg_replication_origin_create('elsewhere');
--! run
SELECT pg_logical_emit_message(false, 'now', 'at once');
BEGIN;
SELECT pg_logical_emit_message(true, 'then', 'first');
INSERT INTO t VALUES (1);
SELECT pg_logical_emit_message(true, 'then', '');
SELECT pg_logical_emit_message(false, 'now', 'amid a transaction');
SELECT pg_logical_emit_message(true, '', 'no prefix');
COMMIT;
BEGIN;
SELECT pg_logical_emit_message(true, 'alone', 'nothing else in this transaction');
COMMIT;
BEGIN;
INSERT INTO t VALUES (9);
SELECT pg_logical_emit_message(true, 'gone', 'with the transaction');
SELECT pg_logical_emit_message(false, 'stays', 'at once');
ROLLBACK;
SELECT pg_replication_origin_session_setup('elsewhere');
BEGIN;
SELECT pg_logical_emit_message(true, 'remote', 'with an origin');
INSERT INTO t VALUES (3);
COMMIT;
SELECT pg_replication_origin_session_reset();
SELECT pg_logical_emit_message(true, 'pre fix, "quoted" it''s', E'con\ttent\nlines "quoted" \\ é€😀');
SELECT pg_logical_emit_message(false, 'long', repeat('long ', 500));
BEGIN;
SAVEPOINT s;
SELECT pg_logical_emit_message(true, 'gone', 'with the subtransaction');
SELECT pg_logical_emit_message(false, 'stays', 'out of the subtransaction');
ROLLBACK TO s;
SELECT pg_logical_emit_message(true, 'wal2json', 'kept'), pg_logical_emit_message(true, 'other', 'kept');
INSERT INTO t VALUES (2);
COMMIT;
