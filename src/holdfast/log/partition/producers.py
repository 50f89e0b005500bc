"""Idempotent producers of one partition: what each sent last. Pure; time is an argument.

A producer may have five batches in flight. A batch that was seen before is answered with its first offset and not appended again;
one that skips ahead, or comes from a former life of the producer, is refused. A producer nobody remembers may start anywhere: its
state may have expired, and refusing would lose data for nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.log.batches import BatchHeader
from holdfast.log.segments.nouns import BATCHES_REMEMBERED_MAX, ProducerSnapshot, SequenceRange
from holdfast.vocabulary.errors import InvalidError

_SEQUENCES = 1 << 31  # after 2³¹-1 comes 0


class Refusal(StrEnum):
    """Why a batch of an idempotent producer was refused; each has a Kafka error code."""

    OUT_OF_ORDER = "out of order sequence"
    DUPLICATE = "duplicate sequence older than those remembered"
    OLD_EPOCH = "producer epoch older than the newest"


class ProducerRefusedError(InvalidError):
    """The batch does not follow what this producer sent before."""

    def __init__(self, refusal: Refusal, producer_id: int, given: str, allowed: str) -> None:
        super().__init__(f"batch of producer {producer_id} ({refusal})", given, allowed)
        self.args = (refusal, producer_id, given, allowed)
        self.refusal, self.producer_id = refusal, producer_id


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: list[SequenceRange] = field(default_factory=list)
    last_timestamp_ms: int = -1


class Producers:
    """The producers of one partition, as of everything appended so far (durable or on its way)."""

    def __init__(self, snapshots: Iterable[ProducerSnapshot] = ()) -> None:
        self._producers = {
            each.producer_id: _Producer(each.producer_epoch, list(each.batches), each.last_timestamp_ms)
            for each in snapshots
        }

    def judge(self, header: BatchHeader) -> int | None:
        """None: append it. An offset: it was appended there before. Raises `ProducerRefusedError`."""
        if header.producer_id < 0:
            return None
        known = self._producers.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise self._refused(
                Refusal.OLD_EPOCH, header, f"epoch {header.producer_epoch}", f"epoch {known.epoch} or newer"
            )
        first, last = _range(header)
        if header.producer_epoch > known.epoch:
            if first != 0:
                raise self._refused(Refusal.OUT_OF_ORDER, header, f"sequence {first}", "0: a new epoch starts over")
            return None
        for seen in known.batches:
            if (seen.first_seq, seen.last_seq) == (first, last):
                return seen.base_offset
        if not known.batches:
            return None
        expected = (known.batches[-1].last_seq + 1) % _SEQUENCES
        if first == expected:
            return None
        behind = (expected - first) % _SEQUENCES < _SEQUENCES // 2
        refusal = Refusal.DUPLICATE if behind else Refusal.OUT_OF_ORDER
        raise self._refused(refusal, header, f"sequence {first}", f"{expected}")

    def append(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember a batch that `judge` let through."""
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        if known is None or header.producer_epoch > known.epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        first, last = _range(header)
        known.batches.append(SequenceRange(first, last, base_offset))
        del known.batches[:-BATCHES_REMEMBERED_MAX]
        known.last_timestamp_ms = now_ms

    def forget_from(self, offset: int) -> None:
        """Batches from `offset` on were never made durable."""
        for producer in self._producers.values():
            producer.batches = [batch for batch in producer.batches if batch.base_offset < offset]

    def expire(self, now_ms: int, *, expiry_ms: int, count_max: int) -> None:
        """Forget producers that have been silent for too long, and the most silent ones beyond `count_max`."""
        kept = {
            producer_id: each
            for producer_id, each in self._producers.items()
            if now_ms - each.last_timestamp_ms < expiry_ms
        }
        if len(kept) > count_max:
            newest = sorted(kept, key=lambda producer_id: kept[producer_id].last_timestamp_ms)[-count_max:]
            kept = {producer_id: kept[producer_id] for producer_id in newest}
        self._producers = kept

    def snapshot(self, below_offset: int) -> tuple[ProducerSnapshot, ...]:
        """What to write into the footer of a segment that ends at `below_offset`."""
        return tuple(
            ProducerSnapshot(
                producer_id=producer_id,
                producer_epoch=each.epoch,
                last_timestamp_ms=each.last_timestamp_ms,
                batches=tuple(batch for batch in each.batches if batch.base_offset < below_offset),
            )
            for producer_id, each in sorted(self._producers.items())
        )

    def _refused(self, refusal: Refusal, header: BatchHeader, given: str, allowed: str) -> ProducerRefusedError:
        return ProducerRefusedError(refusal, header.producer_id, given, allowed)


def _range(header: BatchHeader) -> tuple[int, int]:
    return header.base_sequence, (header.base_sequence + header.last_offset_delta) % _SEQUENCES
