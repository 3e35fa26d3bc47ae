--! catalog changes
--! setup
CREATE TABLE t (id int PRIMARY KEY, v text, n int);
CREATE INDEX t_v ON t (v);
--! run
INSERT INTO t SELECT i, 'v' || i, i FROM generate_series(1, 3) i;
BEGIN;
ALTER TABLE t ALTER n TYPE numeric(8,2);
INSERT INTO t VALUES (4, 'after', 4.5);
COMMIT;
BEGIN;
CLUSTER t USING t_v;
UPDATE t SET v = 'clustered' WHERE id = 1;
COMMIT;
BEGIN;
ALTER TABLE t ADD r int DEFAULT 7, ALTER v TYPE varchar(20);
DELETE FROM t WHERE id = 2;
COMMIT;
BEGIN;
CREATE TABLE copied AS SELECT id, v FROM t;
ALTER TABLE copied ADD PRIMARY KEY (id);
UPDATE copied SET v = 'copied' WHERE id = 1;
COMMIT;
BEGIN;
CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY);
INSERT INTO unlogged VALUES (1);
INSERT INTO copied VALUES (9, 'beside unlogged');
CREATE TEMP TABLE temporary (id int) ON COMMIT DROP;
INSERT INTO temporary VALUES (1);
COMMIT;
