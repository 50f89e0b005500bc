"""Variable-length integers, seven bits a byte, lowest first (LEB128), and zigzag for signed ones.

Kafka's records and flexible messages, STRM's index and ClickHouse's blocks all use them. The one rule: never past `end`, never more
than `bits` bits. What is wrong with the bytes is a `VarintError`; the reader of a format decides what that means there.
"""

from typing import Final

_UINT64: Final = 2**64 - 1


class VarintError(ValueError):
    """Bytes that are no varint. `overflow`: it has too many bits; otherwise it is cut off."""

    def __init__(self, at: int, overflow: bool) -> None:
        super().__init__(at, overflow)  # args are the facts, so it pickles
        self.at, self.overflow = at, overflow


def read_uvarint(data: bytes | bytearray | memoryview, at: int, end: int, bits: int = 64) -> tuple[int, int]:
    """An unsigned number of at most `bits` bits, and the position behind it."""
    total = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if shift + 7 > bits and byte >> (bits - shift):
            raise VarintError(at, overflow=True)
        total |= (byte & 0x7F) << shift
        if byte < 0x80:
            return total, at
        shift += 7
    raise VarintError(at, overflow=False)


def put_uvarint(out: bytearray, value: int) -> None:
    """Append a number of 0 to 2^64 - 1."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_varint(out: bytearray, value: int) -> None:
    """Append a signed number, zigzag: 0, -1, 1, -2 … become 0, 1, 2, 3 …, modulo 2^64."""
    value = (value + 2**63 & _UINT64) - 2**63
    put_uvarint(out, (value << 1 ^ value >> 63) & _UINT64)


def unzigzag(value: int) -> int:
    """The signed number that zigzag made `value` of."""
    return value >> 1 ^ -(value & 1)
