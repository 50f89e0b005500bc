"""Confluent's wire format: a zero byte, the id of a schema in four, for Protobuf the indexes of a message, then the value.

The one rule: nothing of the value is looked at here.
"""

import struct
from typing import Final

from holdfast.pipeline.formats.decoded import BadValueError

MAGIC: Final = 0
PREFIX_BYTES: Final = 5
INDEXES_MAX: Final = 32
"""Messages nested deeper are not Protobuf's: its parsers stop long before."""

_PREFIX: Final = struct.Struct(">BI")
_VARINT_BYTES_MAX: Final = 5


def schema_id(prefix: bytes) -> int:
    """The id in the first five bytes of a value."""
    if len(prefix) < PREFIX_BYTES:
        raise BadValueError(f"truncated: {len(prefix)} bytes, a value with a schema id has at least {PREFIX_BYTES}")
    magic, number = _PREFIX.unpack_from(prefix)
    if magic != MAGIC:
        raise BadValueError(f"wrong magic byte {magic}: a value with a schema id begins with {MAGIC}")
    return int(number)


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes of a Protobuf value's message from the outermost in, and where the message begins."""
    count, at = _zigzag(payload, PREFIX_BYTES)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise BadValueError(f"invalid number of message indexes {count}: must be 0 to {INDEXES_MAX}")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number in range(_VARINT_BYTES_MAX):
        if at >= len(payload):
            raise BadValueError("truncated: the value ends within its message indexes")
        octet = payload[at]
        at += 1
        value |= (octet & 0x7F) << (7 * number)
        if octet < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise BadValueError("a message index has more than 32 bits")
