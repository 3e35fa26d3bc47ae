"""`python -m bench vectors`: every documented message against the servers whose vectors hold it; a gap is a failure."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tests.vectors import SERVERS, Server, load
from tests.vectors.coverage import EXEMPT, covered, documented, missing


def main(argv: list[str]) -> int:
    """Print the table; 1 when a documented message has no vector from a server that says it."""
    console = Console(width=100)
    servers = [load(major) for major in SERVERS]
    have = covered(servers)
    for family, labels in documented().items():
        table = Table("message", *map(str, SERVERS), title=family)
        for label, since in labels:
            cells = (_cell((family, label) in have[major], major < since, label) for major in SERVERS)
            table.add_row(label, *cells)
        console.print(table)
    for label, reason in EXEMPT.items():
        console.print(f"{label} {reason}.")
    gaps = missing(servers)
    console.print("\n".join(gaps) or f"{_total(servers)} vectors cover every documented message.")
    return 1 if gaps else 0


def _cell(covered_here: bool, too_old: bool, label: str) -> str:
    if covered_here:
        return "yes"
    return "·" if too_old or label in EXEMPT else "MISSING"


def _total(servers: list[Server]) -> int:
    return sum(len(capture.hex) for server in servers for capture in server.captures)
