--! since: 15
--! options: no xids; empty ones | 1 | 2
--! setup
CREATE TABLE t (id int PRIMARY KEY);
--! run
INSERT INTO t VALUES (1);
CREATE TABLE u (id int PRIMARY KEY);
INSERT INTO u VALUES (1);
DROP TABLE u;
