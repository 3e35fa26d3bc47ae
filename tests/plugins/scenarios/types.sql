--! setup
CREATE TABLE scalars (id int PRIMARY KEY, b bool, i2 smallint, i8 bigint, o oid, f4 real, f8 double precision, n numeric, nn numeric(12,4), ns numeric(7,0), m money, c "char", ch char, ch7 char(7), vc varchar, vc9 varchar(9), t text, nm name, ba bytea, bt bit, bt5 bit(5), vb bit varying, vb8 bit varying(8));
CREATE TABLE moments (id int PRIMARY KEY, d date, t time, t2 time(2), tz timetz, tz0 timetz(0), ts timestamp, ts3 timestamp(3), tstz timestamptz, tstz1 timestamptz(1), i interval, i2 interval(2), iy interval year to month, ids interval day to second(3), ihm interval hour to minute);
CREATE TABLE shapes (id int PRIMARY KEY, p point, l line, s lseg, b box, pa path, po polygon, c circle);
CREATE TABLE nets (id int PRIMARY KEY, i inet, c cidr, m macaddr, m8 macaddr8, u uuid);
CREATE TABLE documents (id int PRIMARY KEY, j json, jb jsonb, x xml, jp jsonpath, tv tsvector, tq tsquery);
CREATE TABLE spans (id int PRIMARY KEY, i4 int4range, i8 int8range, n numrange, d daterange, ts tsrange, tz tstzrange);
CREATE TABLE internals (id int PRIMARY KEY, rc regclass, rp regproc, rt regtype, rn regnamespace, l pg_lsn, x xid, t tid, ov oidvector, iv int2vector, s txid_snapshot, rf refcursor);
--! run
INSERT INTO scalars VALUES (1, true, -32768, 9223372036854775807, 4294967295, 1.5, 1e300, 123456789012345678901234567890.123, 1.5, 12345, 12.34, 'x', 'y', 'abc', 'v', 'varchar9!', 'text', 'name', '\xdeadbeef', '1', '10101', '', '1100');
INSERT INTO scalars VALUES (2, false, 32767, -9223372036854775808, 0, 'NaN', '-Infinity', 'NaN', 0, NULL, -0.01, '', ' ', '', '', '', '', '', '', '0', '00000', '1', '');
INSERT INTO scalars (id) VALUES (3);
INSERT INTO scalars (id, f4, f8, n, t, vc, ba) VALUES (4, 'Infinity', 0.1::float8 + 0.2, 0.10, E'it''s "quoted" \\ back/slash', E'tab\there', '\x00ff5c27');
INSERT INTO scalars (id, f4, f8, n, t, c) VALUES (5, 1e-38, 5e-324, '-0.000', E'line\nline\r\x01\x7f\u00a0é€😀', E'\\');
UPDATE scalars SET t = '{"a": [1, 2]}', n = -n, f8 = f8 / 3 WHERE id IN (1, 4);
DELETE FROM scalars WHERE id < 4;
INSERT INTO moments VALUES (1, '2024-02-29', '23:59:59.999999', '12:34:56.789', '12:00:00.5+02', '12:00-11:30', '2024-02-29 12:00:00.123456', '2024-01-01 00:00:00.1239', '2024-07-01 12:00+02', '2024-07-01 12:00:00.16-08', '1 year 2 months 3 days 04:05:06.789', '1.239 seconds', '3 years 2 months', '5 days 04:03:02.123456', '1:02:03');
INSERT INTO moments (id, d, ts, tstz) VALUES (2, 'infinity', '-infinity', 'infinity'), (3, '0044-03-15 BC', '4713-01-01 00:00:00 BC', '0001-01-01 00:00:00+00'), (4, '5874897-12-31', '294276-12-31 23:59:59.999999', '294276-12-31 23:59:59.999999+00');
INSERT INTO moments (id, i, t) VALUES (5, '-1 year -2 mons +3 days -04:05:06', '24:00:00'), (6, '00:00:00', '00:00:00');
INSERT INTO shapes VALUES (1, '(1.5,-2)', '{1,2,3}', '[(0,0),(1,1)]', '(2,2),(0,0)', '[(0,0),(1,1),(2,0)]', '((0,0),(1,1),(2,0))', '<(0,0),5>'), (2, NULL, NULL, NULL, NULL, '((0,0),(1,1))', NULL, NULL);
INSERT INTO nets VALUES (1, '192.168.0.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'), (2, '::1', '2001:db8::/32', NULL, NULL, NULL);
INSERT INTO documents VALUES (1, '{"a":  "b\"c", "d": [1, 2.50, null, "\u00e9"]}', '{"z": 1, "a": "\\"}', '<a b="c">&amp;</a>', '$.a[*] ? (@ > 1)', 'fat:2 cat:3A', '''fat'' & ''cat'''), (2, 'null', '"text"', '', 'strict $', '', NULL);
INSERT INTO spans VALUES (1, '[1,5)', '(,10]', '[1.5,2.5]', '[2024-01-01,2024-02-01)', '["2024-01-01 00:00","2024-01-02 00:00")', '(,"2024-01-01 00:00+00"]'), (2, 'empty', '(,)', 'empty', NULL, 'empty', '(,)');
INSERT INTO internals VALUES (1, 'pg_class', 'now', 'int4', 'pg_catalog', '16/B374D848', '7', '(1,2)', '1 2 3', '4 5', '10:20:10,14', 'cursor');
UPDATE internals SET rc = 'pg_type', l = NULL;
