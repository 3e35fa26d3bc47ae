"""Logical replication messages (pgoutput protocol versions 1 to 4), sans-IO, read and written by one field table."""
