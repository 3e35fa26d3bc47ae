"""Rounds on every core; what a round tries depends on the seed and its number alone, so any run can be repeated."""

from __future__ import annotations

import resource
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from multiprocessing import get_context
from random import Random
from typing import Final

from tests.fuzz import changelog, columnar, files, targets
from tests.fuzz.run import Bug, fuzz, warm
from tests.fuzz.targets import Target

MEMORY_LIMIT: Final = 4 << 30  # bytes of address space: an allocation by an untrusted count becomes a MemoryError
_chosen: list[Target] = []  # of a worker process


def chosen(name: str) -> list[Target]:
    """The targets that have ``name`` in theirs."""
    return [
        target
        for target in (*targets.targets(), *columnar.targets(), *changelog.targets(), *files.targets())
        if name in target.name
    ]


def rounds(name: str, seed: int, jobs: int) -> Iterator[list[Bug]]:
    """The bugs of each round, in the rounds' order, without end; closing it waits for the rounds under way."""
    spawned = get_context("spawn")  # delta-rs has threads by now, which a fork would not have
    with ProcessPoolExecutor(jobs, spawned, _begin, (name,)) as pool:
        numbers = count()
        pending = deque(pool.submit(_round, seed, number) for number in islice(numbers, 2 * jobs))
        try:
            while True:
                yield pending.popleft().result()
                pending.append(pool.submit(_round, seed, next(numbers)))
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(name: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to hear
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))
    _chosen.extend(chosen(name))
    warm(_chosen)


def _round(seed: int, number: int) -> list[Bug]:
    return fuzz(_chosen, Random(f"{seed} {number}"))
