"""Changed bytes: what a broken or hostile client could send, made of what a real one does.

Input number N of a seed is always the same, so that a finding is repeated by its number alone.
"""

from collections.abc import Callable, Sequence
from struct import pack
from typing import TYPE_CHECKING

from holdfast.vocabulary.random import SeededRandom

if TYPE_CHECKING:
    from random import Random  # noqa: TID251 (a type: `random_of` makes one of a seed)

_NUMBERS = (0, 1, -1, 2, 127, 128, 255, 256, 32_767, -32_768, 65_535, 1 << 20, (1 << 31) - 1, -(1 << 31))
_LONGS = (0, -1, -2, (1 << 63) - 1, -(1 << 63))
_TEXTS = (
    b"\0",
    b"\xff",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x92\xa9",
    b"*",
    b"../",
    b"\r\n",
    b"%00",
    b"'",
    b'"',
    b"{",
    b"[",
)
_VARINTS = (b"\xff" * 5, b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\x80", b"\x01")


def _overwrite(data: bytearray, random: "Random", piece: bytes) -> None:
    at = random.randrange(len(data) + 1)
    data[at : at + len(piece)] = piece


def _flip(data: bytearray, random: "Random") -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _number(data: bytearray, random: "Random") -> None:
    _overwrite(data, random, pack(">i", random.choice(_NUMBERS))[random.choice((0, 2, 3)) :])


def _long(data: bytearray, random: "Random") -> None:
    _overwrite(data, random, pack(">q", random.choice(_LONGS)))


def _insert(data: bytearray, random: "Random") -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.choice(
        (random.choice(_TEXTS), random.choice(_VARINTS), random.randbytes(random.randrange(1, 40)))
    )


def _delete(data: bytearray, random: "Random") -> None:
    at = random.randrange(len(data) + 1)
    del data[at : at + random.randrange(1, 20)]


def _truncate(data: bytearray, random: "Random") -> None:
    del data[random.randrange(len(data) + 1) :]


def _repeat(data: bytearray, random: "Random") -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = data[at : at + random.randrange(1, 60)] * random.randrange(1, 4)


def _varint(data: bytearray, random: "Random") -> None:
    _overwrite(data, random, random.choice(_VARINTS))


_MUTATIONS: Sequence[Callable[[bytearray, "Random"], None]] = (
    *(_flip, _flip, _number, _number, _long),
    *(_insert, _delete, _truncate, _repeat, _varint),
)


def random_of(seed: int, number: int) -> "Random":
    """The randomness of one input."""
    return SeededRandom(seed * 1_000_003 + number).random


def mutated(data: bytes, random: "Random", corpus: Sequence[bytes]) -> bytes:
    """`data` with a few changes; sometimes the end of another input."""
    changed = bytearray(data)
    if random.random() < 0.1:
        other = random.choice(corpus)
        changed[random.randrange(len(changed) + 1) :] = other[random.randrange(len(other) + 1) :]
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 8))):
        random.choice(_MUTATIONS)(changed, random)
    return bytes(changed)
