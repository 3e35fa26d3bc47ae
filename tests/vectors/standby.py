"""A real standby through the proxy: its walreceiver says what no other client does, Hot standby feedback above all."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from tests.vectors import Capture
from tests.vectors.client import Proxy
from tests.vectors.conversations import capture
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import versioned_server


def capture_standby(server: EmbeddedPostgres, major: int) -> Capture:
    """The conversation of a primary and a standby made of its files; the primary is stopped and started again."""
    with tempfile.TemporaryDirectory(prefix="wal2lake-standby-") as folder:
        Path(folder).chmod(0o755)
        server.stop()
        subprocess.run(["cp", "-a", str(server.data_dir), f"{folder}/data"], check=True)
        server.start()
        subprocess.run(["cp", "-a", f"{folder}/data/PG_VERSION", f"{folder}/data/standby.signal"], check=True)
        proxy = Proxy(server.port)
        settings = {
            "primary_conninfo": f"host=127.0.0.1 port={proxy.port} user=postgres sslmode=disable gssencmode=disable",
            "hot_standby_feedback": "on",
            "wal_receiver_status_interval": "1",
            "max_prepared_transactions": "5",
        }
        with versioned_server(major, settings, data_dir=Path(folder)):
            server.psql("SELECT pg_logical_emit_message(true, 'p', 'to the standby')")
            time.sleep(2.5)  # two rounds of status and feedback, which come once a second
        proxy.close()
    return capture("standby", ["SELECT pg_logical_emit_message(true, 'p', 'to the standby')"], proxy.frames)
