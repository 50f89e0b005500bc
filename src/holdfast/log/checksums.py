"""Checksums of what is put together from parts whose checksums are known, without going over the bytes again.

A batch comes with the CRC-32C of nearly all of its bytes, and it was checked when it arrived; the WAL and segments want a checksum
of their own around it. `joined` finds it from the two. What it trusts is memory: damage on disk or on the way is found as before.
"""

from functools import cache
from struct import Struct
from typing import Final

from crc32c import crc32c

from holdfast.log.batches.header import CRC_AT, CRC_COVERS_FROM, Buffer
from holdfast.vocabulary.native import native

COMBINE_MIN_BYTES: Final = 64 * 1024  # below this, going over the bytes is quicker

_POLYNOMIAL: Final = 0x82F63B78  # CRC-32C, bits reversed
_UINT32: Final = Struct(">I")

_Tables = tuple[tuple[int, ...], ...]  # what each of the four bytes of a checksum becomes


def joined_by_tables(first: int, second: int, second_bytes: int, /) -> int:
    """The pure Python `joined`: the checksum of two parts one behind the other, from theirs and a length."""
    power = 0
    while second_bytes:
        if second_bytes & 1:
            a, b, c, d = _shift(power)
            first = a[first & 255] ^ b[first >> 8 & 255] ^ c[first >> 16 & 255] ^ d[first >> 24]
        second_bytes >>= 1
        power += 1
    return first ^ second


joined = joined_by_tables if native is None else native.joined


def batch_checksum(batch: Buffer) -> int:
    """The checksum of all bytes of one whole batch, whose own CRC was checked before."""
    if len(batch) < COMBINE_MIN_BYTES:
        return crc32c(batch)
    (known,) = _UINT32.unpack_from(batch, CRC_AT)
    return joined(crc32c(memoryview(batch)[:CRC_COVERS_FROM]), known, len(batch) - CRC_COVERS_FROM)


@cache
def _shift(power: int) -> _Tables:
    """What 2 ** `power` zero bytes do to a checksum: a linear map, so that each of its bytes has a table."""
    if power == 0:
        bits = [_by_one_byte(1 << bit) for bit in range(32)]
    else:
        half = _shift(power - 1)
        bits = [_apply(half, _apply(half, 1 << bit)) for bit in range(32)]
    return tuple(tuple(_sum(bits[8 * at : 8 * at + 8], byte) for byte in range(256)) for at in range(4))


def _by_one_byte(checksum: int) -> int:
    for _ in range(8):
        checksum = checksum >> 1 ^ (_POLYNOMIAL if checksum & 1 else 0)
    return checksum


def _apply(tables: _Tables, checksum: int) -> int:
    a, b, c, d = tables
    return a[checksum & 255] ^ b[checksum >> 8 & 255] ^ c[checksum >> 16 & 255] ^ d[checksum >> 24]


def _sum(bits: list[int], byte: int) -> int:
    total = 0
    for bit, value in enumerate(bits):
        if byte >> bit & 1:
            total ^= value
    return total
