--! setup
CREATE TABLE nothing ();
CREATE TABLE nulls (id int PRIMARY KEY, a text, b int, c bool, d timestamptz, e bytea, f jsonb);
CREATE TABLE blanks (id text PRIMARY KEY, a text, b char(3), c bytea, d text[]);
CREATE TABLE dropped (a int, id int PRIMARY KEY, b text, c text);
ALTER TABLE dropped DROP a, DROP b;
ALTER TABLE nothing REPLICA IDENTITY FULL;
--! run
INSERT INTO nothing DEFAULT VALUES;
INSERT INTO nothing DEFAULT VALUES;
INSERT INTO nulls SELECT i FROM generate_series(1, 5) i;
UPDATE nulls SET a = '', f = 'null' WHERE id = 2;
UPDATE nulls SET id = 6 WHERE id = 3;
INSERT INTO blanks VALUES ('', '', '', '', '{}'), (' ', NULL, '  x', '\x', '{NULL}'), ('null', 'null', 'nul', 'null', '{null}');
UPDATE blanks SET id = id || ' ' WHERE a IS NULL;
UPDATE blanks SET a = ' ' WHERE id = '';
DELETE FROM blanks;
INSERT INTO dropped VALUES (1, 'c'), (2, NULL);
UPDATE dropped SET id = 3 WHERE id = 1;
DELETE FROM dropped;
DELETE FROM nulls WHERE id > 4;
