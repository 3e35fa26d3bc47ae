"""What chance does to a message: bits flip, bytes vanish or repeat, counts become huge, two messages run together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

EXTREMES: Final = tuple(
    value.to_bytes(size, "big")
    for size in (1, 2, 4, 8)
    for value in (0, 1, (1 << 8 * size - 1) - 1, (1 << 8 * size) - 1)
)
Mutation = Callable[[Random, bytearray, Sequence[bytes]], None]


def flip(random: Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def overwrite(random: Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    extreme = random.choice(EXTREMES)
    at = random.randint(0, len(data))
    data[at : at + len(extreme)] = extreme


def cut(random: Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    del data[random.randint(0, len(data)) :]


def delete(random: Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    at = random.randint(0, len(data))
    del data[at : at + random.randint(1, 8)]


def insert(random: Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    at = random.randint(0, len(data))
    data[at:at] = random.randbytes(random.randint(1, 8))


def repeat(random: Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    at = random.randint(0, len(data))
    data[at:at] = data[at : at + random.randint(1, 32)]


def splice(random: Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    other = random.choice(corpus)
    data[random.randint(0, len(data)) :] = other[random.randint(0, len(other)) :]


MUTATIONS: Final[tuple[Mutation, ...]] = (flip, flip, overwrite, overwrite, cut, delete, insert, repeat, splice)


def mutant(random: Random, corpus: Sequence[bytes]) -> bytes:
    """One member of the corpus after one to four mutations."""
    data = bytearray(random.choice(corpus))
    for _ in range(random.randint(1, 4)):
        random.choice(MUTATIONS)(random, data, corpus)
    return bytes(data)
