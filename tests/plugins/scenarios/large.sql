--! setup
CREATE TABLE large (id int PRIMARY KEY, t text, b bytea, j jsonb);
--! run
INSERT INTO large VALUES (1, repeat('é"\', 100000), decode(repeat('00ff', 50000), 'hex'), jsonb_build_object('k', repeat('v', 100000)));
UPDATE large SET t = t || '!';
UPDATE large SET j = j || '{"more": 1}';
UPDATE large SET id = 2;
INSERT INTO large SELECT i, md5(i::text), decode(md5(i::text), 'hex'), to_jsonb(i) FROM generate_series(10, 300) i;
DELETE FROM large WHERE id = 2;
