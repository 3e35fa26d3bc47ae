--! options: default | skip-empty-xacts | 1 | 2
--! setup
CREATE TABLE measures (day date PRIMARY KEY) PARTITION BY RANGE (day);
CREATE TABLE measures_2023 PARTITION OF measures FOR VALUES FROM ('2023-01-01') TO ('2024-01-01');
CREATE TABLE measures_2024 PARTITION OF measures FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
--! run
INSERT INTO measures VALUES ('2023-05-01'), ('2024-05-01');
TRUNCATE measures;
