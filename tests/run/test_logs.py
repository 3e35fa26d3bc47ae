"""What a process of its own tells on standard error, and how it reads again."""

from __future__ import annotations

import subprocess
import sys

from wal2lake.run.logs import Line, read_line

TELL = """
import logging
from wal2lake.run.logs import configure_logging
configure_logging()
configure_logging()
for name in ("wal2lake.capture", "py4j.clientserver", "pyspark.sql", "elsewhere"):
    logging.getLogger(name).info("news of %s", name)
    logging.getLogger(name).warning("trouble of %s", name)
"""


def test_our_news_are_told_and_of_others_only_the_warnings() -> None:
    done = subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True)
    assert [read_line(line) for line in done.stderr.splitlines()] == [
        Line("INFO", "news of wal2lake.capture"),
        Line("WARNING", "trouble of wal2lake.capture"),
        Line("WARNING", "trouble of py4j.clientserver"),
        Line("WARNING", "trouble of pyspark.sql"),
        Line("WARNING", "trouble of elsewhere"),
    ]
    assert done.stdout == ""


def test_a_line_of_nobodys_logger_stays_as_it_is() -> None:
    assert read_line("  File INFO x.py") == Line("", "  File INFO x.py")
