"""What the next footer has of the producers: a snapshot, or a delta since the last one (`log.producer_snapshots`)."""

import logging
from collections.abc import Callable, Sequence

from holdfast.log.metadata import SegmentRecord
from holdfast.log.model import PartitionId
from holdfast.log.partition.producer_state import ProducerStates
from holdfast.log.producer_snapshots import snapshot_at
from holdfast.log.segments import ProducerSection
from holdfast.log.settings import LeadershipCounters, LogSettings

_log = logging.getLogger(__name__)


def next_section(
    producers: ProducerStates, recent: Sequence[SegmentRecord], end_offset: int, settings: LogSettings
) -> tuple[Callable[[], ProducerSection], int]:
    """What makes the section of a segment that ends at `end_offset`, on any thread; and since when it counts (-1: a snapshot).

    A snapshot where the last one is far back, or a delta would be no smaller.
    """
    at = snapshot_at(recent, producers.since)
    deltas_max = min(settings.producer_deltas_max, settings.segment_keys_max // 4)
    near = at is not None and len(recent) - at <= deltas_max
    delta = near and producers.delta_pays(settings.producer_delta_min)
    return producers.section(end_offset, delta=delta), producers.since if delta else -1


def forget_silent(
    producers: ProducerStates,
    partition_id: PartitionId,
    end_offset: int,
    *,
    now_ms: int,
    settings: LogSettings,
    counters: LeadershipCounters,
) -> None:
    """Forget who was silent for too long before the footer is made; count and log who was forgotten since the last one."""
    forgotten = producers.expire(now_ms, expiry_ms=settings.producer_expiry_ms, below_offset=end_offset)
    counters.producers_expired += forgotten.expired
    counters.producers_evicted += forgotten.evicted
    if forgotten.evicted:
        _log.warning(
            "partition %s forgot its %d most silent idempotent producers: more than %d, log.producers_max",
            partition_id,
            forgotten.evicted,
            settings.producers_max,
        )
