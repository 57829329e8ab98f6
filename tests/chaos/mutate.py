"""Bytes that were something once: seeded mutations of messages and files."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Mutation = Callable[[Random, bytearray], None]


def flip(random: Random, data: bytearray) -> None:
    for _ in range(random.choice((1, 1, 2, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def scramble(random: Random, data: bytearray) -> None:
    at = random.randrange(len(data))
    size = random.choice((1, 4, 8, 64))
    data[at : at + size] = random.randbytes(len(data[at : at + size]))


def extremes(random: Random, data: bytearray) -> None:
    """Numbers become 0, -1 or the largest there is."""
    at = random.randrange(len(data))
    size = random.choice((1, 2, 4, 8, 10))
    data[at : at + size] = random.choice((b"\x00", b"\xff", b"\x7f")) * len(data[at : at + size])


def cut(random: Random, data: bytearray) -> None:
    del data[random.randrange(len(data)) :]


def drop(random: Random, data: bytearray) -> None:
    at = random.randrange(len(data))
    del data[at : at + random.choice((1, 2, 16))]


def repeat(random: Random, data: bytearray) -> None:
    at, size = random.randrange(len(data)), random.choice((1, 8, 64, 512))
    data[at:at] = data[at : at + size] * random.choice((1, 2, 16))


def move(random: Random, data: bytearray) -> None:
    at, to, size = (random.randrange(len(data)) for _ in range(3))
    data[to : to + size] = data[at : at + size]


SAME_LENGTH: tuple[Mutation, ...] = (flip, flip, flip, scramble, extremes)
ANY_LENGTH: tuple[Mutation, ...] = (*SAME_LENGTH, cut, drop, repeat, move)


def mutated(random: Random, data: bytes, how: tuple[Mutation, ...] = ANY_LENGTH) -> bytes:
    """The bytes after one to three mutations."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3))):
        if found:
            random.choice(how)(random, found)
    return bytes(found)
