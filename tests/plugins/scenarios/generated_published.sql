--! since: 18
--! publication: FOR ALL TABLES WITH (publish_generated_columns = stored)
--! setup
CREATE TABLE t (id int PRIMARY KEY, a int, doubled int GENERATED ALWAYS AS (a * 2) STORED, b text);
--! run
INSERT INTO t (id, a, b) VALUES (1, 2, 'x');
UPDATE t SET a = 3;
DELETE FROM t;
