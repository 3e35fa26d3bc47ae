--! setup
CREATE TABLE arrays (id int PRIMARY KEY, i int[], n numeric(6,2)[], t text[], v varchar(5)[], b bool[], c char(3)[], bt bit(3)[], by bytea[], ts timestamptz(0)[], j jsonb[], u uuid[], p point[], d interval[], r int4range[], x "char"[], na name[]);
--! run
INSERT INTO arrays VALUES (1, '{1,NULL,-3}', '{1.50,NULL}', '{a,"b c","d\"e","f\\\\g",NULL,"NULL",""}', '{abc}', '{t,f,NULL}', '{a,abc}', '{101}', '{"\\xdead","\\x"}', '{2024-01-01 00:00:00+00}', '{"{\"a\": 1}"}', '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', '{"(1,2)"}', '{"1 day"}', '{"[1,2)"}', '{a}', '{nm}');
INSERT INTO arrays (id, i, t) VALUES (2, '{}', '{}'), (3, '{{1,2},{3,4}}', '[2:3]={a,b}'), (4, '[0:1][-1:0]={{1,2},{3,4}}', ARRAY['it''s', E'tab\t', 'comma,', '{brace}']);
UPDATE arrays SET i = i || 9, t[1] = 'first' WHERE id < 3;
UPDATE arrays SET id = id + 10 WHERE id > 2;
DELETE FROM arrays WHERE id = 1;
