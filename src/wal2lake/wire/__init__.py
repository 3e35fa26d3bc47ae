"""The frontend/backend protocol's bytes, sans-IO: no socket, no clock, both roles, one table per message."""
