"""CityHash128 of version 1.0.2, the checksum of ClickHouse's compressed blocks. Later versions give other numbers.

`clickhouse-cityhash` computes it where it is installed. The one in plain Python takes a tenth of a second for a megabyte; its names
are those of the algorithm's description.
"""

import struct
from collections.abc import Callable
from importlib import import_module
from typing import Final

_MASK_64: Final = (1 << 64) - 1
_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F
_K3: Final = 0xC949D7C7509E6557
_MUL: Final = 0x9DDFEA08EB382D69
_ROUND: Final = struct.Struct("<8Q")
_FOUR: Final = struct.Struct("<4Q")


def city_hash_128(data: bytes) -> bytes:
    """The 16 bytes of the checksum, as they precede a block."""
    return _native(data) if _native is not None else python_city_hash_128(data)


def python_city_hash_128(data: bytes) -> bytes:
    """The same in plain Python."""
    size = len(data)
    if size >= 16:
        low, high = _city_hash_128_with_seed(data[16:], _fetch_64(data, 0) ^ _K3, _fetch_64(data, 8))
    elif size >= 8:
        low, high = _city_hash_128_with_seed(
            b"", _fetch_64(data, 0) ^ (size * _K0 & _MASK_64), _fetch_64(data, size - 8) ^ _K1
        )
    else:
        low, high = _city_hash_128_with_seed(data, _K0, _K1)
    return struct.pack("<2Q", low, high)


def _load_native() -> Callable[[bytes], bytes] | None:
    try:
        native = import_module("clickhouse_cityhash.cityhash").CityHash128
    except ImportError:
        return None

    def city_hash(data: bytes) -> bytes:
        number = native(data)  # its upper half is the word that comes first
        return struct.pack("<2Q", number >> 64, number & _MASK_64)

    return city_hash


_native: Final = _load_native()


def _fetch_64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotate(value: int, shift: int) -> int:
    return (value >> shift | value << 64 - shift) & _MASK_64


def _shift_mix(value: int) -> int:
    return value ^ value >> 47


def _hash_len_16(one: int, two: int) -> int:
    a = _shift_mix((one ^ two) * _MUL & _MASK_64)
    return _shift_mix((two ^ a) * _MUL & _MASK_64) * _MUL & _MASK_64


def _hash_len_0_to_16(data: bytes) -> int:
    size = len(data)
    if size > 8:
        last = _fetch_64(data, size - 8)
        return _hash_len_16(_fetch_64(data, 0), _rotate((last + size) & _MASK_64, size)) ^ last
    if size >= 4:
        first, last = int.from_bytes(data[:4], "little"), int.from_bytes(data[size - 4 :], "little")
        return _hash_len_16((size + (first << 3)) & _MASK_64, last)
    if size > 0:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[size - 1] << 2)
        return _shift_mix((y * _K2 ^ z * _K3) & _MASK_64) * _K2 & _MASK_64
    return _K2


def _weak_hash_len_32_with_seeds(four: tuple[int, ...], a: int, b: int) -> tuple[int, int]:
    w, x, y, z = four
    a += w
    b = _rotate((b + a + z) & _MASK_64, 21)
    c = a
    a = (a + x + y) & _MASK_64
    return (a + z) & _MASK_64, (b + _rotate(a, 44) + c) & _MASK_64


def _city_murmur(data: bytes, a: int, b: int) -> tuple[int, int]:
    size = len(data)
    if size <= 16:
        a = _shift_mix(a * _K1 & _MASK_64) * _K1 & _MASK_64
        c = (b * _K1 + _hash_len_0_to_16(data)) & _MASK_64
        d = _shift_mix((a + (_fetch_64(data, 0) if size >= 8 else c)) & _MASK_64)
    else:
        c = _hash_len_16((_fetch_64(data, size - 8) + _K1) & _MASK_64, a)
        d = _hash_len_16((b + size) & _MASK_64, (c + _fetch_64(data, size - 16)) & _MASK_64)
        a = (a + d) & _MASK_64
        for at in range(0, size - 16, 16):
            a = (a ^ _shift_mix(_fetch_64(data, at) * _K1 & _MASK_64) * _K1) * _K1 & _MASK_64
            b ^= a
            c = (c ^ _shift_mix(_fetch_64(data, at + 8) * _K1 & _MASK_64) * _K1) * _K1 & _MASK_64
            d ^= c
    a, b = _hash_len_16(a, c), _hash_len_16(d, b)
    return a ^ b, _hash_len_16(b, a)


def _city_hash_128_with_seed(data: bytes, x: int, y: int) -> tuple[int, int]:
    size = len(data)
    if size < 128:
        return _city_murmur(data, x, y)
    z = size * _K1 & _MASK_64
    v0 = (_rotate(y ^ _K1, 49) * _K1 + _fetch_64(data, 0)) & _MASK_64
    v1 = (_rotate(v0, 42) * _K1 + _fetch_64(data, 8)) & _MASK_64
    w0 = (_rotate((y + z) & _MASK_64, 35) * _K1 + x) & _MASK_64
    w1 = _rotate((x + _fetch_64(data, 88)) & _MASK_64, 53) * _K1 & _MASK_64
    rounds = size // 128 * 2
    for at in range(0, rounds * 64, 64):
        eight = _ROUND.unpack_from(data, at)
        x = _rotate((x + y + v0 + eight[2]) & _MASK_64, 37) * _K1 & _MASK_64 ^ w1
        y = _rotate((y + v1 + eight[6]) & _MASK_64, 42) * _K1 & _MASK_64 ^ v0
        z = _rotate(z ^ w0, 33)
        v0, v1 = _weak_hash_len_32_with_seeds(eight[:4], v1 * _K1 & _MASK_64, x + w0)
        w0, w1 = _weak_hash_len_32_with_seeds(eight[4:], z + w1, y)
        z, x = x, z
    return _finish(data, size - rounds * 64, (x, y, z, v0, v1, w0, w1))


def _finish(data: bytes, left: int, state: tuple[int, ...]) -> tuple[int, int]:
    x, y, z, v0, v1, w0, w1 = state
    y = (y + _rotate(w0, 37) * _K0 + z) & _MASK_64
    x = (x + _rotate((v0 + z) & _MASK_64, 49) * _K0) & _MASK_64
    for done in range(32, left + 32, 32):
        at = len(data) - done
        y = (_rotate((y - x) & _MASK_64, 42) * _K0 + v1) & _MASK_64
        w0 = (w0 + _fetch_64(data, at + 16)) & _MASK_64
        x = (_rotate(x, 49) * _K0 + w0) & _MASK_64
        w0 = (w0 + v0) & _MASK_64
        v0, v1 = _weak_hash_len_32_with_seeds(_FOUR.unpack_from(data, at), v0, v1)
    x, y = _hash_len_16(x, v0), _hash_len_16(y, w0)
    return (_hash_len_16((x + v1) & _MASK_64, w1) + y) & _MASK_64, _hash_len_16(
        (x + w1) & _MASK_64, (y + v1) & _MASK_64
    )
