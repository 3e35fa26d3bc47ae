--! since: 15
--! setup
CREATE TABLE scales (id int PRIMARY KEY, rounded numeric(5,-2), tiny numeric(3,10), list numeric(4,-1)[]);
--! run
INSERT INTO scales VALUES (1, 12345, 0.0000000123, '{123,NULL}'), (2, NULL, NULL, '{}');
UPDATE scales SET rounded = -rounded;
