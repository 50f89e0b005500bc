"""The metadata of a segment. Data only."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdfast.log.batches import Buffer

BATCHES_REMEMBERED_MAX: Final = 5  # what an idempotent producer may have in flight


class EpochStart(NamedTuple):
    """The offset from which a leader epoch wrote. It may lie before the segment: epochs outlive segments."""

    epoch: int
    start_offset: int


class SequenceRange(NamedTuple):
    """One batch an idempotent producer sent, as dedup remembers it. Sequences wrap, so the last may be the smaller."""

    first_seq: int
    last_seq: int
    base_offset: int


class ProducerSnapshot(NamedTuple):
    """What the log knew of one producer at the end of the segment. -1 is none."""

    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    batches: tuple[SequenceRange, ...] = ()  # at most the last five, oldest first
    transaction_offset: int = -1  # where its open transaction begins
    coordinator_epoch: int = -1  # who wrote its last transaction marker


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSection:
    """The producers as a segment's footer has them: all of them, or what changed since an earlier footer had all.

    `since` -1: `producers` are all there were at the end of the segment, a snapshot. Otherwise they are those that were added or
    changed since offset `since`, and `gone` those that were forgotten since: a delta. It makes the state at the end of its segment
    out of the state at any offset from `since` to there.
    """

    producers: tuple[ProducerSnapshot, ...] = ()
    since: int = -1
    gone: tuple[int, ...] = ()

    @property
    def is_snapshot(self) -> bool:
        return self.since < 0

    def onto(self, earlier: Iterable[ProducerSnapshot]) -> tuple[ProducerSnapshot, ...]:
        """The producers at the end of the segment, by id; `earlier`: those a delta is put onto."""
        if self.is_snapshot:
            return self.producers
        state = {each.producer_id: each for each in earlier}
        for producer_id in self.gone:
            state.pop(producer_id, None)
        state.update((each.producer_id, each) for each in self.producers)
        return tuple(state[producer_id] for producer_id in sorted(state))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentMeta:
    """One segment. `end_offset` is exclusive; offsets may have gaps, also before the first and after the last batch.

    `max_timestamp_ms` bounds every record from above. `min_timestamp_ms` is the smallest *first* timestamp of a batch: a
    later record of a batch may lie before it, so it informs and must not exclude. Both are -1 without timestamps.
    """

    topic_id: str
    partition: int
    base_offset: int
    end_offset: int
    record_count: int
    batch_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    epochs: tuple[EpochStart, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegment:
    """A segment ready to be put: its bytes in parts, and what they say. `producers_since`: see `ProducerSection.since`."""

    parts: list[Buffer]
    meta: SegmentMeta
    producers_since: int = -1
