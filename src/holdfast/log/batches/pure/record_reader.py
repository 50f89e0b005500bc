"""Reading records: varints, one record after another, each read bounded by its record's own end.

Payloads are read as `bytes`: indexing them costs half of indexing a memoryview, which outweighs one copy.
"""

from collections.abc import Sequence
from operator import itemgetter
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

from holdfast.log.batches.header import APPEND_TIME, BatchHeader, Buffer
from holdfast.log.batches.pure.headers import RECORD_BYTES_MIN
from holdfast.log.batches.rules import BatchRule
from holdfast.vocabulary.varint import VarintError, read_uvarint, unzigzag

T = TypeVar("T", bound=tuple[object, ...])

ByteRange = tuple[int, int]  # where bytes begin and end; (0, -1) is null
NULL: Final[ByteRange] = (0, -1)

_BODY_BYTES_MIN: Final = 6

BUCKET_BITS: Final = 8  # of a word: an offset, and behind it the number of a bucket
PICKED: Final = Struct("=qq")  # offset and time, in front of a record that was picked
_ANY_BATCH: Final = BatchHeader._make((0,) * len(BatchHeader._fields))._replace(last_offset_delta=(1 << 31) - 1)


class RecordFault(Exception):  # noqa: N818 - it never leaves the kernel: it is how a rule stops a walk
    """A record breaks `rule` with value `given`."""

    def __init__(self, rule: BatchRule, given: int = 0) -> None:
        super().__init__(rule, given)
        self.rule, self.given = rule, given


class RecordPositions(NamedTuple):
    """A record as positions in its payload."""

    offset_delta: int
    timestamp: int
    key: ByteRange
    value: ByteRange
    headers: list[tuple[ByteRange, ByteRange]]
    end: int


def read_varint(data: bytes, at: int, end: int, bits: int = 32) -> tuple[int, int]:
    """A zigzag number of at most `bits` bits and the position behind it."""
    if at < end and (byte := data[at]) < 0x80:  # most of them
        return (byte >> 1) ^ -(byte & 1), at + 1
    try:
        value, at = read_uvarint(data, at, end, bits)
    except VarintError as error:
        raise RecordFault(BatchRule.VARINT if error.overflow else BatchRule.RECORD_CUT) from None
    return unzigzag(value), at


def read_span(data: bytes, at: int, end: int, least: int, rule: BatchRule) -> tuple[ByteRange, int]:
    """A length and that many bytes, as their positions; -1 is null where `least` allows it."""
    length, at = read_varint(data, at, end)
    if length < least or length > end - at:
        raise RecordFault(rule, length)
    return (NULL, at) if length < 0 else ((at, at + length), at + length)


def read_record(data: bytes, at: int, header: BatchHeader, previous: int, *, contiguous: bool) -> RecordPositions:
    """The record at `at`, validated by itself and against the header and the offset before it."""
    fields, headers_at, count = _read_fields(data, at, header)
    delta = fields.offset_delta
    if (delta != previous + 1) if contiguous else not previous < delta <= header.last_offset_delta:
        raise RecordFault(BatchRule.OFFSET_DELTA, delta)
    return fields._replace(headers=_read_headers(data, headers_at, fields.end, count))


def _read_fields(data: bytes, at: int, header: BatchHeader) -> tuple[RecordPositions, int, int]:
    """The record at `at` without its headers, where those begin, and how many they are."""
    length, at = read_varint(data, at, len(data))
    if length < _BODY_BYTES_MIN:
        raise RecordFault(BatchRule.RECORD_LENGTH, length)
    end = at + length
    if end > len(data):
        raise RecordFault(BatchRule.RECORD_CUT, length)
    timestamp_delta, at = read_varint(data, at + 1, end, 64)  # one byte of attributes means nothing yet
    timestamp = header.base_timestamp + timestamp_delta
    if not -(1 << 63) <= timestamp < 1 << 63:
        raise RecordFault(BatchRule.RECORD_TIMESTAMP, timestamp_delta)
    if header.attributes & APPEND_TIME:
        timestamp = header.max_timestamp
    delta, at = read_varint(data, at, end)
    key, at = read_span(data, at, end, -1, BatchRule.KEY)
    value, at = read_span(data, at, end, -1, BatchRule.VALUE)
    count, at = read_varint(data, at, end)
    if count < 0 or count > (end - at) // 2:  # a header is two bytes at least
        raise RecordFault(BatchRule.HEADERS, count)
    return RecordPositions(delta, timestamp, key, value, [], end), at, count


def _read_headers(data: bytes, at: int, end: int, count: int) -> list[tuple[ByteRange, ByteRange]]:
    headers = []
    for _ in range(count):
        key, at = read_span(data, at, end, 0, BatchRule.HEADER_KEY)
        value, at = read_span(data, at, end, -1, BatchRule.HEADER_VALUE)
        headers.append((key, value))
    if at != end:
        raise RecordFault(BatchRule.RECORD_LENGTH, end - at)
    return headers


def is_count_invalid(header: BatchHeader, payload_bytes: int) -> bool:
    """Whether the payload cannot hold as many records as the header announces."""
    return header.count < 0 or header.count * RECORD_BYTES_MIN > payload_bytes


def check(payload: Buffer, fields: tuple[object, ...], contiguous: bool, /) -> tuple[int, int, int, int] | None:
    """Validate every record of a decompressed payload against its header."""
    header = BatchHeader._make(fields)
    data = bytes(payload)
    if is_count_invalid(header, len(data)):
        return (int(BatchRule.COUNT), 0, -1, header.count)
    at, index, previous = 0, -1, -1
    try:
        for index in range(header.count):  # noqa: B007 - the fault has the record's index
            raw = read_record(data, at, header, previous, contiguous=contiguous)
            # A record later than the header's maximum would be missed by every look-up by time.
            if not -1 <= raw.timestamp <= header.max_timestamp:
                raise RecordFault(BatchRule.RECORD_TIMESTAMP, raw.timestamp)
            at, previous = raw.end, raw.offset_delta
    except RecordFault as broken:
        return (int(broken.rule), 0, index, broken.given)
    if at != len(data):
        return (int(BatchRule.TRAILING), 0, header.count, len(data) - at)
    return None


def keyless(payload: Buffer, fields: tuple[object, ...], most: int, /) -> list[int] | tuple[int, int, int, int]:
    """The numbers of the first `most` records without a key; or the first fault before the last of them."""
    header = BatchHeader._make(fields)
    data = bytes(payload)
    if is_count_invalid(header, len(data)):
        return (int(BatchRule.COUNT), 0, -1, header.count)
    found: list[int] = []
    at = index = 0
    try:
        while index < header.count and len(found) < most:
            raw, _, _ = _read_fields(data, at, header)
            if raw.key is NULL:
                found.append(index)
            at, index = raw.end, index + 1
    except RecordFault as broken:
        return (int(broken.rule), 0, index, broken.given)
    return found


def read(
    payload: Buffer, fields: tuple[object, ...], cursor: tuple[int, int, int], most: int, kind: type[T], /
) -> tuple[list[T], tuple[int, int, int]] | tuple[int, int, int, int]:
    """Up to `most` records from the cursor on, and the cursor behind them; or the first fault."""
    header = BatchHeader._make(fields)
    data = bytes(payload)
    at, index, previous = cursor
    if not 0 <= at <= len(data) or index < 0:
        raise ValueError("the position is outside the payload")
    if is_count_invalid(header, len(data)):
        return (int(BatchRule.COUNT), 0, -1, header.count)
    found: list[T] = []
    try:
        while index < header.count and len(found) < most:
            raw = read_record(data, at, header, previous, contiguous=False)
            found.append(tuple.__new__(kind, _values(data, header, raw)))
            at, index, previous = raw.end, index + 1, raw.offset_delta
    except RecordFault as broken:
        return (int(broken.rule), 0, index, broken.given)
    if index == header.count and at != len(data):
        return (int(BatchRule.TRAILING), 0, index, len(data) - at)
    return found, (at, index, previous)


def read_chosen(
    payload: Buffer, fields: tuple[object, ...], deltas: Sequence[int], kind: type[T], /
) -> list[T] | tuple[int, int, int, int]:
    """The records with these offset deltas, which grow; or the first fault before the last of them."""
    header = BatchHeader._make(fields)
    data = bytes(payload)
    if is_count_invalid(header, len(data)):
        return (int(BatchRule.COUNT), 0, -1, header.count)
    found: list[T] = []
    wanted = iter(deltas)
    at = index = 0
    previous = chosen = -1
    try:
        while index < header.count:
            while chosen <= previous:  # the next one that may still come
                following = next(wanted, None)
                if following is None:
                    return found
                chosen = following
            delta, end = _skip_record(data, at)
            if not previous < delta <= header.last_offset_delta:
                raise RecordFault(BatchRule.OFFSET_DELTA, delta)
            if delta == chosen:
                raw = read_record(data, at, header, previous, contiguous=False)
                found.append(tuple.__new__(kind, _values(data, header, raw)))
            at, index, previous = end, index + 1, delta
    except RecordFault as broken:
        return (int(broken.rule), 0, index, broken.given)
    return found


def _skip_record(data: bytes, at: int) -> tuple[int, int]:
    """The offset delta of the record at `at`, and where it ends, without a look at the rest of it."""
    length, at = read_varint(data, at, len(data))
    if length < _BODY_BYTES_MIN:
        raise RecordFault(BatchRule.RECORD_LENGTH, length)
    end = at + length
    if end > len(data):
        raise RecordFault(BatchRule.RECORD_CUT, length)
    _, at = read_varint(data, at + 1, end, 64)
    delta, _ = read_varint(data, at, end)
    return delta, end


def _values(data: bytes, header: BatchHeader, raw: RecordPositions) -> tuple[object, ...]:
    def bytes_of(span: ByteRange) -> bytes | None:
        return None if span is NULL else data[span[0] : span[1]]

    headers = tuple((str(data[key[0] : key[1]], "utf-8", "replace"), bytes_of(value)) for key, value in raw.headers)
    return header.base_offset + raw.offset_delta, raw.timestamp, bytes_of(raw.key), bytes_of(raw.value), headers


def pick(
    payload: Buffer, fields: tuple[object, ...], words: Buffer, at: int, buffers: list[bytearray], /
) -> int | tuple[int, int, int, int]:
    """Append records to the buffers of their buckets; the first word behind this batch, or the first fault."""
    found: list[tuple[int, bytes]] = []
    end = _pick(payload, fields, words, at, found)
    if not isinstance(end, tuple):
        for bucket, record in found:
            buffers[bucket] += record
    return end


def pick_extents(
    batches: list[tuple[Buffer, tuple[object, ...]]], words: Buffer, at: int, bytes_max: int, /
) -> tuple[bytes, list[tuple[int, int, int]], int] | tuple[int, int, int, int]:
    """Records of several batches, those of a bucket together, as extents of at most so many bytes; or the first fault."""
    found: list[tuple[int, bytes]] = []
    for payload, fields in batches:
        end = _pick(payload, fields, words, at, found)
        if isinstance(end, tuple):
            return end
        at = end
    extents: list[tuple[int, bytearray]] = []
    for bucket, record in sorted(found, key=itemgetter(0)):
        if not extents or extents[-1][0] != bucket or len(extents[-1][1]) + len(record) > bytes_max:
            extents.append((bucket, bytearray()))
        extents[-1][1].extend(record)
    data = b"".join([extent for _, extent in extents])
    return data, [(bucket, len(extent), crc32c(bytes(extent))) for bucket, extent in extents], at


def _pick(
    payload: Buffer, fields: tuple[object, ...], words: Buffer, at: int, found: list[tuple[int, bytes]]
) -> int | tuple[int, int, int, int]:
    """Buckets and records of one batch."""
    header = BatchHeader._make(fields)
    data, wanted = bytes(payload), memoryview(words).cast("B").cast("Q")
    if is_count_invalid(header, len(data)):
        return (int(BatchRule.COUNT), 0, -1, header.count)
    last = header.base_offset + header.last_offset_delta
    start = index = 0
    previous = -1
    try:
        while index < header.count:
            delta, end = _skip_record(data, start)
            if not previous < delta <= header.last_offset_delta:
                raise RecordFault(BatchRule.OFFSET_DELTA, delta)
            offset = header.base_offset + delta
            while at < len(wanted) and wanted[at] >> BUCKET_BITS < offset:
                at += 1
            if at == len(wanted) or wanted[at] >> BUCKET_BITS > last:
                break
            if wanted[at] >> BUCKET_BITS == offset:
                raw = read_record(data, start, header, previous, contiguous=False)
                record = PICKED.pack(offset, raw.timestamp) + data[start:end]
                found.append((wanted[at] & (1 << BUCKET_BITS) - 1, record))
            start, index, previous = end, index + 1, delta
    except RecordFault as broken:
        return (int(broken.rule), 0, index, broken.given)
    while at < len(wanted) and wanted[at] >> BUCKET_BITS <= last:
        at += 1
    return at


def picked_records(data: Buffer, kind: type[T], /) -> list[T]:
    """The records that `pick` put into a buffer. `ValueError`: it is none."""
    whole, at, found = bytes(data), 0, list[T]()
    while at < len(whole):
        try:
            offset, timestamp = PICKED.unpack_from(whole, at)
            raw = read_record(whole, at + PICKED.size, _ANY_BATCH, -1, contiguous=False)
        except (RecordFault, StructError):
            raise ValueError("records that were picked") from None
        found.append(tuple.__new__(kind, (offset, timestamp, *_values(whole, _ANY_BATCH, raw)[2:])))
        at = raw.end
    return found
