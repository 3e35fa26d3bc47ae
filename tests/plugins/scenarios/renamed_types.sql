--! setup
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a int, b int);
CREATE DOMAIN positive AS int;
CREATE SCHEMA other;
CREATE TABLE t (id int PRIMARY KEY, m mood, ms mood[], p pair, ps pair[], d positive);
--! run
INSERT INTO t VALUES (1, 'sad', '{sad,ok}', '(1,2)', '{"(3,4)"}', 1);
BEGIN;
ALTER TYPE mood RENAME TO "Feeling";
ALTER TYPE pair SET SCHEMA other;
ALTER TABLE t ADD n int;
INSERT INTO t VALUES (2, 'ok', '{ok}', '(5,6)', NULL, 2);
COMMIT;
BEGIN;
INSERT INTO t VALUES (3, 'ok', '{ok}', '(7,8)', NULL, 3);
ALTER TYPE "Feeling" RENAME TO mood;
ALTER TYPE other.pair RENAME TO two;
ALTER TABLE t ADD o int;
INSERT INTO t VALUES (4, 'ok', '{ok}', '(9,0)', '{}', 4);
COMMIT;
UPDATE t SET id = 5 WHERE id = 4;
