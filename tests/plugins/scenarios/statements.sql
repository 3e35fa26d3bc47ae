--! setup
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE log (id serial PRIMARY KEY, old text, new text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log (old, new) VALUES (CASE WHEN TG_OP <> ''INSERT'' THEN OLD.v END, CASE WHEN TG_OP <> ''DELETE'' THEN NEW.v END); RETURN NULL; END';
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note();
CREATE TABLE self (id int PRIMARY KEY, up int REFERENCES self ON DELETE SET NULL);
CREATE TABLE identity (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text DEFAULT 'it''s', w timestamptz DEFAULT '2024-01-01', x int DEFAULT 1 + 2, y text DEFAULT lower('A'), z numeric(5,2) NOT NULL DEFAULT 0);
--! run
INSERT INTO t VALUES (1, 'a'), (2, 'b');
UPDATE t SET v = upper(v);
INSERT INTO t VALUES (2, 'conflict'), (3, 'new') ON CONFLICT (id) DO UPDATE SET v = excluded.v || ' updated';
DELETE FROM t WHERE id = 1;
INSERT INTO self VALUES (1, NULL), (2, 1), (3, 2), (4, 2);
DELETE FROM self WHERE id = 2;
INSERT INTO identity (v) VALUES (DEFAULT), ('x'), (NULL);
INSERT INTO identity DEFAULT VALUES;
BEGIN;
SELECT * FROM t WHERE id = 2 FOR UPDATE;
SELECT * FROM t WHERE id = 3 FOR KEY SHARE;
UPDATE t SET v = 'locked' WHERE id = 2;
DECLARE c CURSOR FOR SELECT * FROM t FOR UPDATE;
FETCH c;
UPDATE t SET v = 'by cursor' WHERE CURRENT OF c;
COMMIT;
INSERT INTO log (new) SELECT 'many ' || i FROM generate_series(1, 200) i;
DELETE FROM log WHERE id % 3 = 0;
