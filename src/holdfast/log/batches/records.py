"""Records: encoding them into a batch, decoding a batch into them, and judging the records of a batch.

Per-record Python is for those who handle records one by one (REST, text, compaction, tests). The log itself moves
batches as they are, and analytics read columns (`arrow.to_arrow`).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from holdfast.log.batches.batch_split import RecordBatch
from holdfast.log.batches.compression import DecompressError, codec_number, compress, decompress
from holdfast.log.batches.header import (
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LENGTH_COVERS_FROM,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    checksum,
)
from holdfast.log.batches.kernels import BEST, BatchKernel, FaultTuple, Written
from holdfast.log.batches.limits import RecordBatchLimits
from holdfast.log.batches.rules import BatchRule, fault_error
from holdfast.vocabulary.errors import InvalidError

DEFAULT_LIMITS: Final = RecordBatchLimits()

_CHUNK_RECORDS: Final = 1_000  # decoded ahead of the reader; a batch may hold a million


PlainRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""A `Record` without its names, which is quicker to make."""


class Record(NamedTuple):
    """One record. `None` is null, which is not the same as empty; a timestamp of -1 is none."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode(
    records: Sequence[PlainRecord],
    *,
    compression: str = "none",
    base_offset: int = 0,
    last_offset: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    control: bool = False,
    transactional: bool = False,
    kernel: BatchKernel = BEST,
) -> bytes:
    """One batch with the records, whose offsets grow from `base_offset` on.

    `last_offset` is for compaction: a batch from which records were removed still covers the offsets it covered, even
    when no record is left. Without it the batch ends with its last record, and there must be one.
    """
    if not 0 <= base_offset < 1 << 63:
        raise InvalidError("base offset", base_offset, "0 to 2^63 - 1")
    try:
        written = kernel.write(records, base_offset, HEADER_BYTES)
    except (OverflowError, UnicodeEncodeError) as error:
        raise InvalidError(
            "field of a record", str(error), "a 64-bit number, or a header key that is valid text"
        ) from None
    return _assembled(
        written,
        codec=codec_number(compression),
        base_offset=base_offset,
        last_offset=last_offset,
        producer=(producer_id, producer_epoch, base_sequence),
        leader_epoch=leader_epoch,
        attributes=(TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0),
    )


def encode_values(
    values: Sequence[Buffer | None], *, timestamp_ms: int, key: bytes | None = None, kernel: BatchKernel = BEST
) -> bytes:
    """One batch with these values, which have one key and one time: what many records from one request are."""
    try:
        written = kernel.write_values(values, key, timestamp_ms, HEADER_BYTES)
    except OverflowError as error:
        raise InvalidError("timestamp", str(error), "a 64-bit number") from None
    return _assembled(written)


def _assembled(
    written: Written | FaultTuple,
    *,
    codec: int = 0,
    base_offset: int = 0,
    last_offset: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = -1,
    attributes: int = 0,
) -> bytes:
    """A batch of what a kernel has written behind the room for its header."""
    if len(written) == 4:
        raise fault_error(written, stored=False)
    batch, count, last_offset_delta, base_timestamp, max_timestamp = written
    if last_offset is not None:
        if not max(last_offset_delta, 0) <= last_offset - base_offset < 1 << 31:
            raise InvalidError("last offset", last_offset, "that of the last record or more, within 31 bits")
        last_offset_delta = last_offset - base_offset
    elif not count:
        raise InvalidError("number of records", 0, "at least 1, unless last_offset is given")
    if codec and count:  # an empty batch has no payload, so nothing to compress
        batch[HEADER_BYTES:] = compress(codec, memoryview(batch)[HEADER_BYTES:].toreadonly())
    header = BatchHeader(
        base_offset=base_offset,
        length=len(batch) - LENGTH_COVERS_FROM,
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=(codec if count else 0) | attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        count=count,
    )
    HEADER.pack_into(batch, 0, *header)
    batch[CRC_AT : CRC_AT + 4] = checksum(batch).to_bytes(4, "big")
    return bytes(batch)


def decode(
    batch: RecordBatch | Buffer, *, limits: RecordBatchLimits = DEFAULT_LIMITS, kernel: BatchKernel = BEST
) -> Iterator[Record]:
    """The records of one stored batch, in order. Damage raises a `CorruptBatchError` when the reader gets there.

    The checksum is not computed again: `split(..., stored=True)` does that. Header keys that are no UTF-8 get U+FFFD.
    """
    header, data = _whole(batch, stored=True, kernel=kernel)
    if not header.count:
        return
    payload = inflate(header, data[HEADER_BYTES:], limits=limits, stored=True)
    cursor = (0, 0, -1)
    while cursor[1] < header.count:
        found = kernel.read(payload, header, cursor, _CHUNK_RECORDS, Record)
        if len(found) == 4:
            raise fault_error(found, stored=True)
        records, cursor = found
        yield from records


def decode_chosen(
    batch: RecordBatch | Buffer,
    offsets: Sequence[int],
    *,
    limits: RecordBatchLimits = DEFAULT_LIMITS,
    kernel: BatchKernel = BEST,
) -> list[Record]:
    """The records of one stored batch that have these offsets, which grow; the others are skipped. `CorruptBatchError`."""
    header, data = _whole(batch, stored=True, kernel=kernel)
    if not header.count:
        return []
    payload = inflate(header, data[HEADER_BYTES:], limits=limits, stored=True)
    found = kernel.read_chosen(payload, header, [offset - header.base_offset for offset in offsets], Record)
    if isinstance(found, tuple):
        raise fault_error(found, stored=True)
    return found


def pick_records(
    batch: RecordBatch | Buffer,
    words: Buffer,
    at: int,
    buffers: list[bytearray],
    *,
    limits: RecordBatchLimits = DEFAULT_LIMITS,
    kernel: BatchKernel = BEST,
) -> int:
    """Copy records of one stored batch into buffers, see `BatchKernel.pick`; the first word behind it. `CorruptBatchError`."""
    header, data = _whole(batch, stored=True, kernel=kernel)
    payload = inflate(header, data[HEADER_BYTES:], limits=limits, stored=True) if header.count else b""
    found = kernel.pick(payload, header, words, at, buffers)
    if isinstance(found, tuple):
        raise fault_error(found, stored=True)
    return found


class PickedExtents(NamedTuple):
    """Picked records, those of a bucket together: the bytes, each extent of them as (bucket, bytes, CRC-32C), the next word.

    `batches`: how many they are of.
    """

    data: bytes
    extents: list[tuple[int, int, int]]
    at: int
    batches: int


def pick_extents(
    batches: Sequence[RecordBatch | Buffer],
    words: Buffer,
    at: int,
    bytes_max: int,
    *,
    payload_bytes_max: int,
    limits: RecordBatchLimits = DEFAULT_LIMITS,
    kernel: BatchKernel = BEST,
) -> PickedExtents:
    """`pick_records` of several stored batches at once, for a thread; see `BatchKernel.pick_extents`. `CorruptBatchError`.

    At least of one batch, and of no more than have so many bytes without their compression.
    """
    payloads: list[tuple[Buffer, tuple[object, ...]]] = []
    room = payload_bytes_max
    for batch in batches:
        header, data = _whole(batch, stored=True, kernel=kernel)
        payload = inflate(header, data[HEADER_BYTES:], limits=limits, stored=True) if header.count else b""
        payloads.append((payload, header))
        room -= len(payload)
        if room <= 0:
            break
    found = kernel.pick_extents(payloads, words, at, bytes_max)
    if len(found) == 4:
        raise fault_error(found, stored=True)
    return PickedExtents(*found, len(payloads))


def validate_records(
    batch: RecordBatch | Buffer,
    *,
    limits: RecordBatchLimits = DEFAULT_LIMITS,
    stored: bool = False,
    kernel: BatchKernel = BEST,
) -> None:
    """Validate every record of one batch: lengths, varints, offsets, and timestamps against the header's maximum.

    Stricter than what a producer is held to (`record_checks`). From a producer the offsets must have no gap (`InvalidBatchError`);
    in a stored batch they may (`CorruptBatchError`).
    """
    header, data = _whole(batch, stored=stored, kernel=kernel, limits=limits)
    if not header.count:
        return
    payload = inflate(header, data[HEADER_BYTES:], limits=limits, stored=stored)
    fault = kernel.check(payload, header, not stored)
    if fault is not None:
        raise fault_error(fault, stored=stored)


def inflate(
    header: BatchHeader, payload: memoryview, *, limits: RecordBatchLimits, stored: bool, at: int = 0
) -> Buffer:
    """The payload of a batch without its compression, within the limit."""
    return inflate_payload(header.attributes & CODEC_MASK, payload, at=at, limits=limits, stored=stored)


def inflate_payload(codec: int, payload: memoryview, *, at: int, limits: RecordBatchLimits, stored: bool) -> Buffer:
    """The same for those who know the codec's number alone; `at` is where the batch begins, for the error."""
    if not codec:
        return payload
    try:
        return decompress(codec, payload, bytes_max=limits.inflated_bytes_max)
    except DecompressError as error:
        rule = BatchRule.INFLATED_SIZE if error.too_large else BatchRule.COMPRESSED
        raise fault_error((rule, at, -1, error.given), stored=stored) from error


def _whole(
    batch: RecordBatch | Buffer, *, stored: bool, kernel: BatchKernel, limits: RecordBatchLimits = DEFAULT_LIMITS
) -> tuple[BatchHeader, memoryview]:
    """The header and bytes of exactly one batch. One that `split_batches` returned was validated there."""
    if isinstance(batch, RecordBatch):
        return batch
    headers = kernel.scan(batch, stored, limits.batch_bytes_max, limits.records_max, BatchHeader)
    if isinstance(headers, tuple):
        raise fault_error(headers, stored=stored)
    if len(headers) != 1:
        raise InvalidError("number of batches", len(headers), "exactly 1")
    return headers[0], memoryview(batch)
