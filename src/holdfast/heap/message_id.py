"""Ids of messages: ULIDs that say where a message was first written, so that no map from ids to offsets is needed.

48 bits of milliseconds, 16 bits partition, 56 bits offset, 8 bits that a typing error or the id of another heap rarely gets right.
"""

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.native import native

PARTITIONS_MAX: Final = 1 << 16
OFFSET_MAX: Final = (1 << 56) - 1

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's
_VALUES: Final = {**{char: at for at, char in enumerate(_ALPHABET)}, "I": 1, "L": 1, "O": 0}
_CHARS: Final = 26
_HEADS_KEPT: Final = 65_536
_PAIRS: Final = tuple(first + second for first in _ALPHABET for second in _ALPHABET)


class MessagePlace(NamedTuple):
    """Where and when a message was first written."""

    partition: int
    offset: int
    enqueued_ms: int


def message_id(topic_id: bytes, partition: int, offset: int, enqueued_ms: int) -> str:
    """The id of a message, 26 characters."""
    return id_text(id_bytes(topic_id, partition, offset, enqueued_ms))


def id_bytes(topic_id: bytes, partition: int, offset: int, enqueued_ms: int) -> bytes:
    """The same as 16 bytes."""
    head = (enqueued_ms << 72 | partition << 56 | offset).to_bytes(15, "big")
    return head + bytes((zlib.crc32(head, zlib.crc32(topic_id)) & 0xFF,))


def message_ids(topic_id: bytes, partition: int, offsets: Sequence[int], times: Sequence[int]) -> list[str]:
    """The ids of many messages of a partition, of their offsets and when they were enqueued."""
    if native is not None:
        return native.message_ids(zlib.crc32(topic_id), partition, offsets, times)
    return plain_message_ids(topic_id, partition, offsets, times)


def plain_message_ids(topic_id: bytes, partition: int, offsets: Sequence[int], times: Sequence[int]) -> list[str]:
    """The same in Python. Those close together share most of their text."""
    seed, crc, partition_bits, found = zlib.crc32(topic_id), zlib.crc32, partition << 56, []
    for offset, enqueued_ms in zip(offsets, times, strict=True):
        head = enqueued_ms << 72 | partition_bits | offset
        number = head << 8 | crc(head.to_bytes(15, "big"), seed) & 0xFF
        found.append(_id_head(number >> 20) + _PAIRS[number >> 10 & 1023] + _PAIRS[number & 1023])
    return found


@lru_cache(maxsize=_HEADS_KEPT)
def _id_head(number: int) -> str:
    """All of a ULID but its last four characters, of its number without the last 20 bits."""
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(100, -1, -10)])


def id_text(data: bytes) -> str:
    """16 bytes as a ULID."""
    number = int.from_bytes(data, "big")
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])


def parse_message_id(topic_id: bytes, text: str) -> MessagePlace:
    """Where the message of an id is. `InvalidError`: no message of this heap has it."""
    number = 0
    for char in text.upper():
        value = _VALUES.get(char)
        if value is None:
            raise _invalid(text)
        number = number << 5 | value
    if len(text) != _CHARS or number >= 1 << 128:
        raise _invalid(text)
    place = MessagePlace(number >> 64 & 0xFFFF, number >> 8 & OFFSET_MAX, number >> 80)
    if id_bytes(topic_id, *place) != number.to_bytes(16, "big"):
        raise _invalid(text)
    return place


def _invalid(text: str) -> InvalidError:
    return InvalidError("message_id", text[:60], "the id of a message of this heap")
