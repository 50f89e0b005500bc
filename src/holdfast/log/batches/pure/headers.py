"""Judging the headers of consecutive batches."""

from typing import Final, TypeVar, cast

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
from holdfast.log.batches.rules import BatchRule

T = TypeVar("T", bound=tuple[object, ...])

RECORD_BYTES_MIN: Final = 7  # a record without key, value and headers
_MAGIC_AT: Final = 16
_END_OFFSET: Final = 3  # of a summary
_FAULT_FIELDS: Final = 4
_CODEC_MAX: Final = 4
_BUFFERS_MAX: Final = 4096  # in one block, and joined with one call
_INT64_MAX: Final = 2**63 - 1


def scan(
    buffer: Buffer, stored: bool, batch_bytes_max: int, records_max: int, kind: type[T], /
) -> list[T] | tuple[int, int, int, int]:
    """The headers of all batches in `buffer`, or the first fault."""
    view = memoryview(buffer)
    found: list[T] = []
    at = 0
    while at < len(view):
        broken = first_fault(view, at, stored, batch_bytes_max, records_max)
        if broken is not None:
            return (int(broken[0]), at, -1, broken[1])
        fields = HEADER.unpack_from(view, at)
        found.append(tuple.__new__(kind, fields))
        at += fields[1] + LENGTH_COVERS_FROM
    return found


def summarize(buffer: Buffer, end_offset: int, kind: type[T], /) -> T | tuple[int, int, int, int]:
    """What the stored batches in `buffer` are in sum, or the first fault. They are in order, from `end_offset` on."""
    view = memoryview(buffer)
    batches = records = packed_bytes = at = 0
    first_offset, min_ms, max_ms = end_offset, -1, -1
    while at < len(view):
        broken = first_fault(view, at, True, _INT64_MAX, _INT64_MAX)
        if broken is not None:
            return (int(broken[0]), at, -1, broken[1])
        header = BatchHeader._make(HEADER.unpack_from(view, at))
        if header.base_offset < end_offset or header.last_offset == _INT64_MAX:
            return (int(BatchRule.ORDER), at, -1, header.base_offset)
        first_offset = header.base_offset if not batches else first_offset
        end_offset = header.last_offset + 1
        first_ms = header.max_timestamp if header.append_time else header.base_timestamp
        min_ms = first_ms if 0 <= first_ms < min_ms or min_ms < 0 else min_ms
        max_ms = max(max_ms, header.max_timestamp)
        packed_bytes += header.size_bytes if header.attributes & CODEC_MASK else 0
        batches, records, at = batches + 1, records + header.count, at + header.size_bytes
    return tuple.__new__(kind, (batches, records, first_offset, end_offset, min_ms, max_ms, packed_bytes))


def join_blocks(
    batches: list[Buffer], at: int, block_bytes: int, bytes_max: int, end_offset: int, kind: type[T], /
) -> tuple[list[tuple[Buffer, T]], int] | tuple[int, int, int, int]:
    """Batches as blocks of a segment, with what is in each, and the first that is left; or the first fault."""
    if not 0 <= at <= len(batches):
        raise ValueError("there is no such batch")
    found: list[tuple[Buffer, T]] = []
    total = 0
    begin = at
    while at < len(batches) and (not found or (total < bytes_max and at - begin < _BUFFERS_MAX)):
        first, size = at, len(batches[at])
        at += 1
        while at < len(batches) and at - first < _BUFFERS_MAX and len(batches[at]) <= block_bytes - size:
            size += len(batches[at])
            at += 1
        block = batches[first] if at == first + 1 else b"".join(batches[first:at])
        sum_ = summarize(block, end_offset, kind)
        if len(sum_) == _FAULT_FIELDS:
            return cast(tuple[int, int, int, int], sum_)
        end_offset = cast(int, sum_[_END_OFFSET])
        found.append((block, sum_))
        total += size
    return found, at


def first_fault(
    view: memoryview, at: int, stored: bool, batch_bytes_max: int, records_max: int
) -> tuple[BatchRule, int] | None:
    """The first rule the header at `at` breaks, with the value that breaks it."""
    left = len(view) - at
    # Magic first: an older format has another layout, and "magic 1" explains more than a wrong length.
    if left > _MAGIC_AT and view[at + _MAGIC_AT] != 2:
        magic = view[at + _MAGIC_AT]
        return BatchRule.MAGIC, magic - 256 if magic > 127 else magic
    if left < HEADER_BYTES:
        return BatchRule.CUT, left
    header = BatchHeader._make(HEADER.unpack_from(view, at))
    if header.length < HEADER_BYTES - LENGTH_COVERS_FROM:
        return BatchRule.LENGTH, header.length
    if not stored and header.size_bytes > batch_bytes_max:
        return BatchRule.SIZE, header.size_bytes
    if header.size_bytes > left:
        return BatchRule.CUT, left
    return _content_fault(header, stored, records_max) or _producer_fault(header, stored)


def _content_fault(header: BatchHeader, stored: bool, records_max: int) -> tuple[BatchRule, int] | None:
    codec, count, last = header.attributes & CODEC_MASK, header.count, header.last_offset_delta
    if codec > _CODEC_MAX:
        return BatchRule.CODEC, codec
    if count < (0 if stored else 1) or (not stored and count > records_max):
        return BatchRule.COUNT, count
    if not codec and count * RECORD_BYTES_MIN > header.size_bytes - HEADER_BYTES:
        return BatchRule.COUNT, count
    if (last < 0 or count - 1 > last) if stored else last != count - 1:
        return BatchRule.OFFSETS, last
    if stored and not 0 <= header.base_offset <= _INT64_MAX - last:
        return BatchRule.BASE_OFFSET, header.base_offset
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp < -1:
            return BatchRule.TIMESTAMP, timestamp
    return None


def _producer_fault(header: BatchHeader, stored: bool) -> tuple[BatchRule, int] | None:
    if header.producer_id < -1:
        return BatchRule.PRODUCER, header.producer_id
    if stored:
        return None
    if header.attributes & CONTROL:
        return BatchRule.CONTROL, header.attributes
    if header.producer_id == -1:
        return (BatchRule.TRANSACTIONAL, header.attributes) if header.attributes & TRANSACTIONAL else None
    if header.producer_epoch < 0:
        return BatchRule.PRODUCER, header.producer_epoch
    if header.base_sequence < 0:
        return BatchRule.SEQUENCE, header.base_sequence
    return None
