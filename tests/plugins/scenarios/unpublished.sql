--! translated
--! since: 15
--! options: default | skip-empty-xacts | 1 | 2
--! publication: FOR TABLE published, narrow (id, a, c), keyless
--! setup
CREATE TABLE published (id int PRIMARY KEY, v text);
CREATE TABLE hidden (id int PRIMARY KEY, v text);
CREATE TABLE narrow (id int PRIMARY KEY, a text, b text, c int);
CREATE TABLE keyless (a int, b text);
--! run
BEGIN;
INSERT INTO published VALUES (1, 'a');
INSERT INTO hidden VALUES (1, 'not published');
INSERT INTO narrow VALUES (1, 'a', 'not listed', 2);
COMMIT;
INSERT INTO keyless VALUES (1, 'inserts need no key');
UPDATE published SET v = 'b';
