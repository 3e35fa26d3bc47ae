--! options: default | skip-empty-xacts | 1 | 2
--! setup
CREATE TABLE t (id int PRIMARY KEY, a int, doubled int GENERATED ALWAYS AS (a * 2) STORED, b text);
--! run
INSERT INTO t (id, a, b) VALUES (1, 2, 'x');
UPDATE t SET a = 3;
DELETE FROM t;
