--! setup
CREATE SCHEMA "Other Schema";
CREATE TYPE mood AS ENUM ('sad', 'it''s ok', '"happy"', '');
CREATE TYPE "Mixed Case" AS ENUM ('a', 'b');
CREATE TYPE "Other Schema"."T y" AS (x int, y text, z numeric(5,2)[]);
CREATE TYPE complex AS (r float8, i float8);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN money_like AS numeric(10,2) DEFAULT 1;
CREATE DOMAIN nested AS positive NOT NULL;
CREATE DOMAIN "Texts" AS text[];
CREATE TYPE floats AS RANGE (subtype = float8);
CREATE TABLE moods (id int PRIMARY KEY, m mood, ms mood[], x "Mixed Case", xs "Mixed Case"[]);
CREATE TABLE composites (id int PRIMARY KEY, c complex, cs complex[], t "Other Schema"."T y", ts "Other Schema"."T y"[]);
CREATE TABLE domains (id positive PRIMARY KEY, m money_like, n nested, t "Texts", f floats, ps positive[]);
--! run
INSERT INTO moods VALUES (1, 'sad', '{sad,"it''s ok"}', 'a', '{a,b,NULL}'), (2, '"happy"', NULL, NULL, '{}'), (3, '', '{""}', 'b', NULL);
UPDATE moods SET m = 'it''s ok' WHERE id < 3;
INSERT INTO composites VALUES (1, '(1.5,-2)', '{"(1,2)","(,)"}', ROW(1, 'a "quoted" (text), it''s', '{1.50,NULL}'), ARRAY[ROW(1, 'x', NULL)::"Other Schema"."T y"]), (2, NULL, NULL, NULL, NULL);
UPDATE composites SET c.r = 7, id = 5 WHERE id = 1;
INSERT INTO domains VALUES (1, 12.345, 3, '{a,"b c"}', '[1.5,2.5)', '{1,2}'), (2, DEFAULT, 4, NULL, NULL, NULL);
UPDATE domains SET id = id + 10;
DELETE FROM domains;
DELETE FROM moods WHERE id = 3;
