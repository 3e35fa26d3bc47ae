"""`python -m wal2lake` is the `wal2lake` command."""

from wal2lake.cli.main import main

main()
