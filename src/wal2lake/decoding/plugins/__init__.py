"""The output plugins that ship. Each is written against wal2lake.decoding alone, as anybody's own would be."""
