"""CityHash128 as of its version 1.0.2, which ClickHouse's compressed blocks are checked by. Later versions give other numbers.

In plain Python, about a tenth of a second for a megabyte of packed data. The names are those of the algorithm's description.
"""

import struct
from typing import Final

_ALL: Final = (1 << 64) - 1
_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F
_K3: Final = 0xC949D7C7509E6557
_MUL: Final = 0x9DDFEA08EB382D69
_ROUND: Final = struct.Struct("<8Q")
_FOUR: Final = struct.Struct("<4Q")


def city_hash_128(data: bytes) -> bytes:
    """The 16 bytes as they stand before a block."""
    size = len(data)
    if size >= 16:
        low, high = _seeded(data[16:], _fetch(data, 0) ^ _K3, _fetch(data, 8))
    elif size >= 8:
        low, high = _seeded(b"", _fetch(data, 0) ^ (size * _K0 & _ALL), _fetch(data, size - 8) ^ _K1)
    else:
        low, high = _seeded(data, _K0, _K1)
    return struct.pack("<2Q", low, high)


def _fetch(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotated(value: int, shift: int) -> int:
    return (value >> shift | value << 64 - shift) & _ALL


def _mixed(value: int) -> int:
    return value ^ value >> 47


def _joined(one: int, two: int) -> int:
    a = _mixed((one ^ two) * _MUL & _ALL)
    return _mixed((two ^ a) * _MUL & _ALL) * _MUL & _ALL


def _up_to_16(data: bytes) -> int:
    size = len(data)
    if size > 8:
        last = _fetch(data, size - 8)
        return _joined(_fetch(data, 0), _rotated((last + size) & _ALL, size)) ^ last
    if size >= 4:
        first, last = int.from_bytes(data[:4], "little"), int.from_bytes(data[size - 4 :], "little")
        return _joined((size + (first << 3)) & _ALL, last)
    if size > 0:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[size - 1] << 2)
        return _mixed((y * _K2 ^ z * _K3) & _ALL) * _K2 & _ALL
    return _K2


def _weak(four: tuple[int, ...], a: int, b: int) -> tuple[int, int]:
    w, x, y, z = four
    a += w
    b = _rotated((b + a + z) & _ALL, 21)
    c = a
    a = (a + x + y) & _ALL
    return (a + z) & _ALL, (b + _rotated(a, 44) + c) & _ALL


def _murmur(data: bytes, a: int, b: int) -> tuple[int, int]:
    size = len(data)
    if size <= 16:
        a = _mixed(a * _K1 & _ALL) * _K1 & _ALL
        c = (b * _K1 + _up_to_16(data)) & _ALL
        d = _mixed((a + (_fetch(data, 0) if size >= 8 else c)) & _ALL)
    else:
        c = _joined((_fetch(data, size - 8) + _K1) & _ALL, a)
        d = _joined((b + size) & _ALL, (c + _fetch(data, size - 16)) & _ALL)
        a = (a + d) & _ALL
        for at in range(0, size - 16, 16):
            a = (a ^ _mixed(_fetch(data, at) * _K1 & _ALL) * _K1) * _K1 & _ALL
            b ^= a
            c = (c ^ _mixed(_fetch(data, at + 8) * _K1 & _ALL) * _K1) * _K1 & _ALL
            d ^= c
    a, b = _joined(a, c), _joined(d, b)
    return a ^ b, _joined(b, a)


def _seeded(data: bytes, x: int, y: int) -> tuple[int, int]:
    size = len(data)
    if size < 128:
        return _murmur(data, x, y)
    z = size * _K1 & _ALL
    v0 = (_rotated(y ^ _K1, 49) * _K1 + _fetch(data, 0)) & _ALL
    v1 = (_rotated(v0, 42) * _K1 + _fetch(data, 8)) & _ALL
    w0 = (_rotated((y + z) & _ALL, 35) * _K1 + x) & _ALL
    w1 = _rotated((x + _fetch(data, 88)) & _ALL, 53) * _K1 & _ALL
    rounds = size // 128 * 2
    for at in range(0, rounds * 64, 64):
        eight = _ROUND.unpack_from(data, at)
        x = _rotated((x + y + v0 + eight[2]) & _ALL, 37) * _K1 & _ALL ^ w1
        y = _rotated((y + v1 + eight[6]) & _ALL, 42) * _K1 & _ALL ^ v0
        z = _rotated(z ^ w0, 33)
        v0, v1 = _weak(eight[:4], v1 * _K1 & _ALL, x + w0)
        w0, w1 = _weak(eight[4:], z + w1, y)
        z, x = x, z
    return _ended(data, size - rounds * 64, (x, y, z, v0, v1, w0, w1))


def _ended(data: bytes, left: int, state: tuple[int, ...]) -> tuple[int, int]:
    x, y, z, v0, v1, w0, w1 = state
    y = (y + _rotated(w0, 37) * _K0 + z) & _ALL
    x = (x + _rotated((v0 + z) & _ALL, 49) * _K0) & _ALL
    for done in range(32, left + 32, 32):
        at = len(data) - done
        y = (_rotated((y - x) & _ALL, 42) * _K0 + v1) & _ALL
        w0 = (w0 + _fetch(data, at + 16)) & _ALL
        x = (_rotated(x, 49) * _K0 + w0) & _ALL
        w0 = (w0 + v0) & _ALL
        v0, v1 = _weak(_FOUR.unpack_from(data, at), v0, v1)
    x, y = _joined(x, v0), _joined(y, w0)
    return (_joined((x + v1) & _ALL, w1) + y) & _ALL, _joined((x + w1) & _ALL, (y + v1) & _ALL)
