-- A shop in two schemas that share a table name, with every kind of table and value the pipeline must carry.
CREATE SCHEMA shop;
CREATE SCHEMA stock;

CREATE TYPE shop.order_status AS ENUM ('new', 'paid', 'shipped', 'returned');
CREATE DOMAIN shop.quantity AS integer CHECK (VALUE >= 0);

-- TOASTed column, jsonb, text array, timestamptz.
CREATE TABLE shop.customers (
    id         bigint PRIMARY KEY,
    name       text NOT NULL,
    tags       text[] NOT NULL DEFAULT '{}',
    profile    jsonb,
    biography  text,
    active     boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE shop.customers ALTER biography SET STORAGE EXTERNAL;

-- uuid key that changes, TOASTed bytea and text, numeric, double.
CREATE TABLE shop.products (
    sku         uuid PRIMARY KEY,
    title       varchar(120) NOT NULL,
    price       numeric(12,2) NOT NULL,
    weight_kg   double precision,
    description text,
    picture     bytea
);
ALTER TABLE shop.products ALTER description SET STORAGE EXTERNAL, ALTER picture SET STORAGE EXTERNAL;

CREATE TABLE shop.orders (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL,
    status      shop.order_status NOT NULL DEFAULT 'new',
    total       numeric(14,2) NOT NULL DEFAULT 0,
    note        text,
    placed_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Composite key, a domain.
CREATE TABLE shop.order_lines (
    order_id bigint NOT NULL,
    line_no  smallint NOT NULL,
    sku      uuid NOT NULL,
    quantity shop.quantity NOT NULL,
    price    numeric(12,2) NOT NULL,
    PRIMARY KEY (order_id, line_no)
);

-- Filled and truncated.
CREATE TABLE shop.carts (
    customer_id bigint PRIMARY KEY,
    items       jsonb NOT NULL,
    expires     timestamp NOT NULL
);

-- The same name as shop.orders; a composite key of text and integer that changes.
CREATE TABLE stock.orders (
    supplier text NOT NULL,
    number   integer NOT NULL,
    due      date,
    lines    jsonb,
    PRIMARY KEY (supplier, number)
);

-- REPLICA IDENTITY FULL and no key: equal rows may stand in it more than once.
CREATE TABLE stock.prices (
    sku        uuid NOT NULL,
    valid_from date NOT NULL,
    price      numeric(12,4),
    remark     text
);
ALTER TABLE stock.prices REPLICA IDENTITY FULL;

-- No key at all: rows are only ever added.
CREATE TABLE stock.movements (
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind     text NOT NULL,
    amount   numeric,
    interval interval,
    detail   text
);

CREATE PUBLICATION wal2lake FOR ALL TABLES;

INSERT INTO shop.customers
SELECT i, 'Customer ' || i, ARRAY['seed', 'group ' || i % 7], jsonb_build_object('score', i % 100, 'vip', i % 50 = 0),
       CASE i % 3 WHEN 0 THEN repeat(md5(i::text), 120) WHEN 1 THEN '' END, i % 11 <> 0,
       timestamptz '2024-02-29 12:00+00' + i * interval '1 minute 0.123456 seconds'
FROM generate_series(1, 20000) i;

INSERT INTO shop.products
SELECT md5(i::text)::uuid, 'Product № ' || i || ' – größe', (i * 37 % 100000) / 100.0,
       CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN 'NaN' ELSE i / 7.0 END,
       repeat(md5(i::text), CASE WHEN i % 4 = 0 THEN 200 ELSE 1 END), decode(repeat(md5('p' || i), i % 90), 'hex')
FROM generate_series(1, 4000) i;

INSERT INTO shop.orders (customer_id, status, total, note)
SELECT 1 + i % 20000, (ARRAY['new', 'paid', 'shipped'])[1 + i % 3]::shop.order_status, i % 1000 + 0.5,
       CASE i % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'note ' || i END
FROM generate_series(1, 30000) i;

INSERT INTO shop.order_lines
SELECT o, l, md5((1 + o % 4000)::text)::uuid, o % 9, 9.99 FROM generate_series(1, 30000) o, generate_series(1, 2) l;

INSERT INTO shop.carts SELECT i, '[]', timestamp '2030-01-01' + i * interval '1 hour' FROM generate_series(1, 500) i;

INSERT INTO stock.orders
SELECT 'supplier ' || i % 40, i, date '2025-01-01' + i % 365, jsonb_build_array(i, 'piece', NULL)
FROM generate_series(1, 2000) i;

INSERT INTO stock.prices
SELECT md5((i % 4000)::text)::uuid, date '2025-01-01' + i % 30, i % 17 + 0.1250, CASE WHEN i % 2 = 0 THEN 'list' END
FROM generate_series(1, 3000) i;
INSERT INTO stock.prices SELECT * FROM stock.prices LIMIT 200;

INSERT INTO stock.movements (kind, amount, interval, detail)
SELECT 'opening', i / 3.0, i * interval '1 hour', '' FROM generate_series(1, 5000) i;
