--! since: 14
--! setup
CREATE TABLE infinities (id int PRIMARY KEY, n numeric, ns numeric[], nr numrange, m nummultirange);
--! run
INSERT INTO infinities VALUES (1, 'Infinity', '{Infinity,-Infinity,NaN}', '[-Infinity,Infinity]', '{[1,2),[3,Infinity)}'), (2, '-Infinity', '{}', 'empty', '{}');
UPDATE infinities SET n = -n;
