"""Judging the headers of consecutive batches."""

from typing import Final, TypeVar

from holdfast.log.batches.header import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_COVERS_FROM,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
)
from holdfast.log.batches.rules import Rule

T = TypeVar("T", bound=tuple[object, ...])

RECORD_BYTES_MIN: Final = 7  # a record without key, value and headers
_MAGIC_AT: Final = 16
_CODEC_MAX: Final = 4
_INT64_MAX: Final = 2**63 - 1


def scan(
    buffer: Buffer, stored: bool, batch_bytes_max: int, records_max: int, kind: type[T], /
) -> list[T] | tuple[int, int, int, int]:
    """The headers of all batches in `buffer`, or the first fault."""
    view = memoryview(buffer)
    found: list[T] = []
    at = 0
    while at < len(view):
        broken = judge(view, at, stored, batch_bytes_max, records_max)
        if broken is not None:
            return (int(broken[0]), at, -1, broken[1])
        fields = HEADER.unpack_from(view, at)
        found.append(tuple.__new__(kind, fields))
        at += fields[1] + LENGTH_COVERS_FROM
    return found


def judge(view: memoryview, at: int, stored: bool, batch_bytes_max: int, records_max: int) -> tuple[Rule, int] | None:
    """The first rule the header at `at` breaks, with the value that breaks it."""
    left = len(view) - at
    # Magic first: an older format has another layout, and "magic 1" says more than a wrong length.
    if left > _MAGIC_AT and view[at + _MAGIC_AT] != 2:
        magic = view[at + _MAGIC_AT]
        return Rule.MAGIC, magic - 256 if magic > 127 else magic
    if left < HEADER_BYTES:
        return Rule.CUT, left
    header = BatchHeader._make(HEADER.unpack_from(view, at))
    if header.length < HEADER_BYTES - LENGTH_COVERS_FROM:
        return Rule.LENGTH, header.length
    if not stored and header.size_bytes > batch_bytes_max:
        return Rule.SIZE, header.size_bytes
    if header.size_bytes > left:
        return Rule.CUT, left
    return _judge_contents(header, stored, records_max) or _judge_producer(header, stored)


def _judge_contents(header: BatchHeader, stored: bool, records_max: int) -> tuple[Rule, int] | None:
    codec, count, last = header.attributes & CODEC_MASK, header.count, header.last_offset_delta
    if codec > _CODEC_MAX:
        return Rule.CODEC, codec
    if count < (0 if stored else 1) or (not stored and count > records_max):
        return Rule.COUNT, count
    if not codec and count * RECORD_BYTES_MIN > header.size_bytes - HEADER_BYTES:
        return Rule.COUNT, count
    if (last < 0 or count - 1 > last) if stored else last != count - 1:
        return Rule.OFFSETS, last
    if stored and not 0 <= header.base_offset <= _INT64_MAX - last:
        return Rule.BASE_OFFSET, header.base_offset
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp < -1:
            return Rule.TIMESTAMP, timestamp
    return None


def _judge_producer(header: BatchHeader, stored: bool) -> tuple[Rule, int] | None:
    if header.producer_id < -1:
        return Rule.PRODUCER, header.producer_id
    if stored:
        return None
    if header.attributes & CONTROL:
        return Rule.CONTROL, header.attributes
    if header.producer_id == -1:
        return (Rule.TRANSACTIONAL, header.attributes) if header.attributes & TRANSACTIONAL else None
    if header.producer_epoch < 0:
        return Rule.PRODUCER, header.producer_epoch
    if header.base_sequence < 0:
        return Rule.SEQUENCE, header.base_sequence
    return None
