-- What is mirrored; PostgreSQL's image runs this once, when it makes the database.
CREATE PUBLICATION wal2lake FOR ALL TABLES;
