"""What is copied as bytes, not decoded: base backups, and WAL as segment files. The stream itself is postgres/'s."""
