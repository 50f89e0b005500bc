"""The producer section: what dedup must remember, so that a new owner of the partition need not read old records.

A snapshot is a count, then one entry per producer that begins with its own size: a newer minor version may append fields. A delta
begins with a count that no section can have, so that a release that knows snapshots alone refuses it as damaged and does not take
the few producers in it for all there are; the offset it counts from and the ids that are gone stand before its entries.
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import Final

from holdfast.log.batches import Buffer
from holdfast.log.segments.layout import SegmentFooter, check_crc
from holdfast.log.segments.model import BATCHES_REMEMBERED_MAX, ProducerSection, ProducerSnapshot, SequenceRange
from holdfast.vocabulary.errors import CorruptError, InvalidError

_WHAT: Final = "segment producers"
_COUNT: Final = Struct(">I")
_DELTA: Final = (1 << 32) - 1
_DELTA_HEAD: Final = Struct(">IqI")  # the mark of a delta, the offset it counts from, how many are gone
_GONE: Final = Struct(">q")
_ENTRY: Final = Struct(
    ">HqhqqiB"
)  # entry bytes, id, epoch, last timestamp, transaction offset, coordinator epoch, batches
_BATCH: Final = Struct(">iiq")


def pack_producers(section: ProducerSection) -> bytes:
    """The section as it is stored."""
    out = bytearray()
    if not section.is_snapshot:
        out += _DELTA_HEAD.pack(_DELTA, section.since, len(section.gone))
        out += b"".join(map(_GONE.pack, section.gone))
    out += _COUNT.pack(len(section.producers))
    _pack_entries(out, section.producers)
    return bytes(out)


def _pack_entries(out: bytearray, producers: Sequence[ProducerSnapshot]) -> None:
    for producer in producers:
        remembered = producer.batches
        if len(remembered) > BATCHES_REMEMBERED_MAX:
            raise InvalidError("batches of a producer", len(remembered), f"at most {BATCHES_REMEMBERED_MAX}")
        try:
            out += _ENTRY.pack(
                _ENTRY.size + _BATCH.size * len(remembered),
                producer.producer_id,
                producer.producer_epoch,
                producer.last_timestamp_ms,
                producer.transaction_offset,
                producer.coordinator_epoch,
                len(remembered),
            )
            for batch in remembered:
                out += _BATCH.pack(*batch)
        except error:
            raise InvalidError(
                "producer", producer, "ids and offsets of 64 bits, sequences of 32, epochs of 16"
            ) from None


def read_producers(section: Buffer, footer: SegmentFooter) -> ProducerSection:
    """The producers in bytes [producers_at, producers_at + producers_bytes) of a segment."""
    view = memoryview(section)
    if len(view) != footer.producers_bytes or len(view) < _COUNT.size:
        raise CorruptError(_WHAT, f"{len(view)} bytes, expected {footer.producers_bytes}")
    check_crc(_WHAT, view, footer.producers_crc)
    if _COUNT.unpack_from(view)[0] != _DELTA:
        return ProducerSection(producers=_read_entries(view, 0))
    if len(view) < _DELTA_HEAD.size + _COUNT.size:
        raise CorruptError(_WHAT, f"a delta of {len(view)} bytes")
    _, since, gone_count = _DELTA_HEAD.unpack_from(view)
    at = _DELTA_HEAD.size + _GONE.size * gone_count
    if not 0 <= since <= footer.end_offset or at + _COUNT.size > len(view):
        raise CorruptError(_WHAT, f"a delta from offset {since} with {gone_count} producers gone")
    gone = tuple(producer_id for (producer_id,) in _GONE.iter_unpack(view[_DELTA_HEAD.size : at]))
    return ProducerSection(producers=_read_entries(view, at), since=since, gone=gone)


def _read_entries(view: memoryview, at: int) -> tuple[ProducerSnapshot, ...]:
    (count,) = _COUNT.unpack_from(view, at)
    found = []
    at += _COUNT.size
    for _ in range(count):
        if len(view) - at < _ENTRY.size:
            raise CorruptError(_WHAT, f"it is cut at byte {at}")
        entry_bytes, *fields, batches = _ENTRY.unpack_from(view, at)
        if not _ENTRY.size + _BATCH.size * batches <= entry_bytes <= len(view) - at:
            raise CorruptError(_WHAT, f"an entry of {entry_bytes} bytes at byte {at}")
        ranges_at = at + _ENTRY.size
        ranges = view[ranges_at : ranges_at + _BATCH.size * batches]
        producer_id, producer_epoch, last_timestamp_ms, transaction_offset, coordinator_epoch = fields
        found.append(
            ProducerSnapshot(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                last_timestamp_ms=last_timestamp_ms,
                batches=tuple(SequenceRange(*batch) for batch in _BATCH.iter_unpack(ranges)),
                transaction_offset=transaction_offset,
                coordinator_epoch=coordinator_epoch,
            )
        )
        at += entry_bytes
    return tuple(found)
