--! since: 15
--! two_phase
--! live
--! setup
CREATE TABLE t (id int PRIMARY KEY, v text);
--! run
BEGIN;
INSERT INTO t VALUES (1, 'rolled back');
UPDATE t SET v = 'rolled back still';
PREPARE TRANSACTION 'gone';
--! wait
ROLLBACK PREPARED 'gone';
INSERT INTO t VALUES (2, 'between');
BEGIN;
INSERT INTO t VALUES (3, 'gone');
SAVEPOINT s;
INSERT INTO t VALUES (4, 'gone');
PREPARE TRANSACTION 'gone again';
--! wait
ROLLBACK PREPARED 'gone again';
BEGIN;
INSERT INTO t VALUES (5, 'kept');
PREPARE TRANSACTION 'kept';
--! wait
COMMIT PREPARED 'kept';
INSERT INTO t VALUES (6, 'last');
