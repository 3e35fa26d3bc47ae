"""`python -m bench silent`: what changes behind the stream's back ends equal in the lake, or the table says why not.

Each script of silent_cases.py runs in three ways: as one batch, with a batch and a look after each step, and with the
pipeline stopped meanwhile. Then every published table of it must hold what the source holds (``equal``), or be
quarantined where the case declares that; it is ``silent`` where a table differs and passes for one that is in order. A
benign script after which a table was read anew is ``needless``. `--case "dropped"` chooses by a part of the name.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import psycopg

from bench.rows import difference, published
from bench.silent_cases import ALL, PLAIN, ROOT, SOLO, SOLO_ROOT, Case, cases
from bench.silent_site import Site
from wal2lake.testing.embedded import EmbeddedPostgres

LEAST_SCRIPTS, LEAST_BENIGN = 80, 25
_VIA_ROOT = "WITH (publish_via_partition_root = true)"
_OPTIONS = {
    PLAIN: "FOR TABLE public.marker",
    ROOT: f"FOR TABLE public.marker {_VIA_ROOT}",
    ALL: "FOR ALL TABLES",
    SOLO: "FOR TABLE public.marker",
    SOLO_ROOT: f"FOR TABLE public.marker {_VIA_ROOT}",
}


@dataclass(frozen=True)
class Outcome:
    """How a case ended in one of the three ways: equal, quarantined, silent or needless; and why, in words."""

    case: Case
    way: str
    end: str
    words: str

    @property
    def good(self) -> bool:
        return self.end == "equal" or (self.end == "quarantined" and self.case.quarantined)


def main(argv: list[str]) -> int:
    """Print every case that did not end equal, then the counts; 0 when nothing is silent, needless or undeclared."""
    chosen = _parser().parse_args(argv)
    wanted = [case for case in cases() if chosen.case in case.name and chosen.group in case.group]
    began = time.monotonic()
    with _place() as (server, folder):
        outcomes = list(judge(server, folder, wanted, [way for way in WAYS if chosen.way in way]))
    for outcome in outcomes:
        if outcome.end != "equal":
            print(f"{outcome.end}: {outcome.case.name} ({outcome.case.group}; {outcome.way}): {outcome.words}")
    benign = sum(case.benign for case in wanted)
    print(f"{len(wanted) - benign} scripts and {benign} benign ones, in {time.monotonic() - began:.0f} s")
    ends = Counter(outcome.end for outcome in outcomes)
    print(" / ".join(f"{end} {ends[end]}" for end in ("equal", "quarantined", "silent", "needless")))
    whole = len(wanted) == len(cases())
    assert not whole or (len(wanted) - benign >= LEAST_SCRIPTS and benign >= LEAST_BENIGN)
    return 0 if all(outcome.good for outcome in outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench silent", description=__doc__)
    parser.add_argument("--case", default="", help="a part of the names of the cases wanted")
    parser.add_argument("--group", default="", help="a part of the names of their groups")
    parser.add_argument("--way", default="", help="a part of the names of the ways")
    return parser


def judge(server: EmbeddedPostgres, folder: Path, wanted: Sequence[Case], ways: Sequence[str]) -> Iterator[Outcome]:
    """Run the cases, those of a group at once, in each way."""
    for group in _groups(wanted):
        for way in ways:
            with Site(server, folder, _OPTIONS[group[0].group]) as site:
                outcomes = list(_judge(site, group, way))
            print(f"{group[0].group}, {way}: {dict(Counter(outcome.end for outcome in outcomes))}", flush=True)
            yield from outcomes


@contextmanager
def _place() -> Iterator[tuple[EmbeddedPostgres, Path]]:
    """A server whose vacuums come when they are called, and a folder for logs and lakes."""
    settings = {"autovacuum": "off", "max_locks_per_transaction": "256"}
    folder = Path(tempfile.mkdtemp(prefix="wal2lake-silent-"))
    try:
        with EmbeddedPostgres(settings=settings) as server:
            yield server, folder
    finally:
        shutil.rmtree(folder)


def _groups(wanted: Sequence[Case]) -> Iterator[list[Case]]:
    for group, own in groupby(sorted(wanted, key=lambda case: case.group), key=lambda case: case.group):
        together = list(own)
        yield from [[case] for case in together] if group in (SOLO, SOLO_ROOT) else [together]


def _judge(site: Site, group: Sequence[Case], way: str) -> Iterator[Outcome]:
    schemas = {f"c{number}": case for number, case in enumerate(group)}
    for schema, case in schemas.items():
        _prepare(site, schema, case)
    site.start()
    site.settle()
    before = {schema: _plans(site, schema) for schema in schemas}
    WAYS[way](site, schemas)
    site.settle()
    for schema, case in schemas.items():
        yield _outcome(site, schema, case, way, before[schema])


def _prepare(site: Site, schema: str, case: Case) -> None:
    _step(site, schema, case, f"CREATE SCHEMA {schema}")
    _step(site, schema, case, case.setup)
    for table in case.published:
        what = f"TABLES IN SCHEMA {schema}" if table == "@" else f"TABLE {schema}.{table}"
        site.sql(f"ALTER PUBLICATION pub ADD {what}")


def _step(site: Site, schema: str, case: Case, statement: str) -> None:
    try:
        site.sql(f"SET search_path TO {schema}, public", statement.replace("@", schema))
    except psycopg.Error as error:
        raise ValueError(f"{case.name}: {statement}") from error


def _steps(site: Site, schemas: dict[str, Case], between: Callable[[], None] = lambda: None) -> None:
    for number in range(max(len(case.steps) for case in schemas.values())):
        for schema, case in schemas.items():
            if number < len(case.steps):
                _step(site, schema, case, case.steps[number])
        between()


def _one_batch(site: Site, schemas: dict[str, Case]) -> None:
    _steps(site, schemas)
    site.batch()


def _batch_per_step(site: Site, schemas: dict[str, Case]) -> None:
    def between() -> None:
        site.batch()
        site.look()

    _steps(site, schemas, between)


def _stopped(site: Site, schemas: dict[str, Case]) -> None:
    _steps(site, schemas)
    site.start()


WAYS: dict[str, Callable[[Site, dict[str, Case]], None]] = {
    "one batch": _one_batch,
    "a batch per step": _batch_per_step,
    "stopped meanwhile": _stopped,
}


def _plans(site: Site, schema: str) -> dict[str, str]:
    """By which plan each published table was read."""
    plans = {name: site.state(schema, name).plan for name in published(site.connection, schema)}
    return {name: plan.plan_id for name, plan in plans.items() if plan is not None}


def _outcome(site: Site, schema: str, case: Case, way: str, before: dict[str, str]) -> Outcome:
    for name in published(site.connection, schema):
        quarantine = site.state(schema, name).quarantine
        if quarantine is not None:
            return Outcome(case, way, "needless" if case.benign else "quarantined", quarantine.reason)
    differs = difference(site.connection, site.config.lake.path, schema)
    if differs is not None:
        return Outcome(case, way, "silent", differs)
    after = _plans(site, schema)
    anew = [name for name, plan in before.items() if after.get(name) != plan]
    if case.benign and anew:
        return Outcome(case, way, "needless", f"read anew: {', '.join(anew)}")
    return Outcome(case, way, "equal", "")
