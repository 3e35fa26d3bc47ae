--! setup
CREATE SCHEMA "Weird "" schema";
CREATE SCHEMA "select";
CREATE TABLE "Weird "" schema"."Tab.le, ""x""" ("Id" int PRIMARY KEY, "sp ace" text, "quo""te" text, "back\slash" text, "Ümläut" text, "tab	" int, "select" bool, "order" int, "user" name, plain_1 text, "1digit" int, "$dollar" int);
CREATE TABLE "select"."table" ("from" int PRIMARY KEY, "where" text, "end" text, "between" int, "value" int, "name" text, "char" text, "interval" text);
CREATE TABLE public."it's" ("a'b" int PRIMARY KEY, "😀" text);
CREATE TABLE a_name_that_is_exactly_sixty_three_bytes_long_as_names_may_be_ (id int PRIMARY KEY);
--! run
INSERT INTO "Weird "" schema"."Tab.le, ""x""" VALUES (1, 'a', 'b', 'c', 'd', 1, true, 2, 'u', 'p', 3, 4);
INSERT INTO "Weird "" schema"."Tab.le, ""x""" ("Id") VALUES (2);
UPDATE "Weird "" schema"."Tab.le, ""x""" SET "Id" = 3, "quo""te" = 'new' WHERE "Id" = 1;
DELETE FROM "Weird "" schema"."Tab.le, ""x""";
INSERT INTO "select"."table" VALUES (1, 'w', 'e', 1, 2, 'n', 'c', 'i');
UPDATE "select"."table" SET "from" = 2;
INSERT INTO "it's" VALUES (1, '😀'), (2, NULL);
DELETE FROM "it's" WHERE "a'b" = 1;
INSERT INTO a_name_that_is_exactly_sixty_three_bytes_long_as_names_may_be_ VALUES (1);
TRUNCATE "it's", "select"."table", "Weird "" schema"."Tab.le, ""x""";
