"""Hashes that must match others bit for bit: the placement ring's, Kafka's murmur2, and Java's `String.hashCode`."""

from typing import Final

_MASK_64: Final = (1 << 64) - 1
_MASK_32: Final = (1 << 32) - 1


def fnv1a_64(data: bytes) -> int:
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & _MASK_64
    return value


def fmix_64(value: int) -> int:
    """Murmur3's finaliser: spreads labels that differ in one digit over the whole ring."""
    value ^= value >> 33
    value = (value * 0xFF51AFD7ED558CCD) & _MASK_64
    value ^= value >> 33
    value = (value * 0xC4CEB9FE1A85EC53) & _MASK_64
    return value ^ (value >> 33)


def ring_hash(label: str) -> int:
    """The position of `label` on the placement ring. It never changes: placements depend on it."""
    return fmix_64(fnv1a_64(label.encode()))


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 as an unsigned 32-bit number."""
    length = len(data)
    value = (0x9747B28C ^ length) & _MASK_32
    for at in range(0, length - length % 4, 4):
        k = (int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995) & _MASK_32
        k = ((k ^ (k >> 24)) * 0x5BD1E995) & _MASK_32
        value = ((value * 0x5BD1E995) & _MASK_32) ^ k
    tail = data[length - length % 4 :]
    if tail:
        value = ((value ^ int.from_bytes(tail, "little")) * 0x5BD1E995) & _MASK_32
    value = ((value ^ (value >> 13)) * 0x5BD1E995) & _MASK_32
    return value ^ (value >> 15)


def kafka_partition(key: bytes, partitions: int) -> int:
    """The partition Kafka's default partitioner gives `key`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: signed 32 bits over UTF-16 code units."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[at : at + 2], "big")) & _MASK_32
    return value - (1 << 32) if value >= 1 << 31 else value
