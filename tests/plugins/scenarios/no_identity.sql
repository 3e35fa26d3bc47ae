--! options: default | skip-empty-xacts | 1 | 2
--! publication: FOR TABLE keyless WITH (publish = 'insert')
--! publication: FOR TABLE nothing WITH (publish = 'insert')
--! publication: FOR TABLE keyed
--! setup
CREATE TABLE keyless (a int, b text);
CREATE TABLE nothing (a int PRIMARY KEY, b text);
CREATE TABLE keyed (a int PRIMARY KEY, b text);
ALTER TABLE nothing REPLICA IDENTITY NOTHING;
--! run
INSERT INTO keyless VALUES (1, 'a');
INSERT INTO nothing VALUES (1, 'a');
BEGIN;
INSERT INTO keyed VALUES (1, 'a');
UPDATE keyless SET b = 'b';
UPDATE nothing SET a = 2;
DELETE FROM keyless;
DELETE FROM nothing;
DELETE FROM keyed;
COMMIT;
