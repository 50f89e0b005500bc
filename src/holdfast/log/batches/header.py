"""The 61-byte header of a Kafka RecordBatch v2: reading it, and patching what a leader may change.

The one rule: the CRC starts after base offset and leader epoch, so `patch` leaves it valid; whatever else changes in a
batch must be checksummed again, and only `set_append_time` does. Judging a header is `scan.split`'s work.
"""

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from holdfast.log.batches.compression import CODECS
from holdfast.vocabulary.errors import InvalidError

Buffer = bytes | bytearray | memoryview

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size  # 61
LENGTH_COVERS_FROM: Final = 12  # the length field counts what follows it
CRC_AT: Final = 17
CRC_COVERS_FROM: Final = 21
PRODUCER_AT: Final = 43  # producer id, producer epoch, base sequence

CODEC_MASK: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT16 = Struct(">h")
_LEADER_EPOCH_AT: Final = 12
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35


class BatchHeader(NamedTuple):
    """The fields in the order of the wire. Timestamps are milliseconds; -1 is "none" for ids, epochs, sequences, times."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's word; the method of tuple is of no use here

    @property
    def compression(self) -> str:
        """The codec's name; an unknown one is named by its number."""
        code = self.attributes & CODEC_MASK
        return CODECS[code] if code < len(CODECS) else f"unknown {code}"

    @property
    def is_control(self) -> bool:
        """Whether the records are markers of transactions, not the application's."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp`, given by the log when it appended."""
        return bool(self.attributes & APPEND_TIME)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.length + LENGTH_COVERS_FROM


def parse_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The fields at position `at`, not validated. Fewer than 61 bytes are an `InvalidError`."""
    if not 0 <= at <= len(buffer) - HEADER_BYTES:
        raise InvalidError("bytes of a batch header", len(buffer) - at, f"at least {HEADER_BYTES}")
    return BatchHeader._make(HEADER.unpack_from(buffer, at))


def checksum(batch: Buffer) -> int:
    """The CRC-32C of one whole batch, as its header should have it."""
    return crc32c(memoryview(batch)[CRC_COVERS_FROM:])


def patch(batch: bytearray | memoryview, *, base_offset: int, leader_epoch: int) -> None:
    """Write the leader's offset and epoch into one batch, in place. The CRC stays valid."""
    if not 0 <= base_offset < 1 << 63:
        raise InvalidError("base offset", base_offset, "0 to 2^63 - 1")
    if not -1 <= leader_epoch < 1 << 31:
        raise InvalidError("leader epoch", leader_epoch, "-1 to 2^31 - 1")
    _check_whole(batch)
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def number_batch(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """`patch` of a batch that `split_batches` has validated, with numbers of our own: the hot path."""
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def set_append_time(batch: bytearray | memoryview, *, timestamp_ms: int) -> None:
    """Set the append time of every record of one batch, in place, and its checksum."""
    if not 0 <= timestamp_ms < 1 << 63:
        raise InvalidError("append time", timestamp_ms, "milliseconds since 1970")
    _check_whole(batch)
    (attributes,) = _INT16.unpack_from(batch, _ATTRIBUTES_AT)
    _INT16.pack_into(batch, _ATTRIBUTES_AT, attributes | APPEND_TIME)
    _INT64.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    _UINT32.pack_into(batch, CRC_AT, checksum(batch))


def _check_whole(batch: bytearray | memoryview) -> None:
    """Refuse a buffer that is not exactly one batch: a patch must not land in a neighbour."""
    size_bytes = parse_header(batch).size_bytes
    if size_bytes != len(batch):
        raise InvalidError("bytes of the batch", len(batch), f"the {size_bytes} of its header")
