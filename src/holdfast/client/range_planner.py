"""Plans the reading of ranges: topics, start and end offsets, offsets by time, parts of about equal size.

The one rule: planning reads metadata alone, never a record. With direct access the store answers; the brokers answer for what is
not published yet.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.client.brokers import TopicInfo
from holdfast.client.cluster_access import ClusterAccess
from holdfast.client.splits import (
    EstimatedRange,
    SizeEstimate,
    estimate_ranges,
    find_segments,
    limit_each,
    split_by_size,
    total_size,
)
from holdfast.client.types import PartitionRange, TopicOffsets
from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.vocabulary.settings import check_at_least
from holdfast.vocabulary.types import OffsetRange

_log: Final = logging.getLogger(__name__)

_OFFSETS_TIMEOUT_MS: Final = 5_000  # for brokers, where the store can answer instead
_CONCURRENCY_MAX: Final = 16


class RangePlanner:
    """Plans ranges of one open cluster's topics."""

    def __init__(self, cluster: ClusterAccess) -> None:
        self._cluster = cluster

    async def topic_offsets(self, topic: str) -> TopicOffsets:
        """Start and end of every partition: high watermarks from the brokers; without brokers, what is published."""
        info = await self._cluster.topic(topic)
        partitions, brokers = range(info.partitions), self._cluster.brokers
        if brokers is None:
            found = await self._published_offsets(info, partitions)
        elif self._cluster.direct is None:
            ends = await brokers.offsets(topic, dict.fromkeys(partitions, LATEST))
            starts = await brokers.offsets(topic, dict.fromkeys(partitions, EARLIEST))
            found = {number: OffsetRange(starts[number], ends[number]) for number in partitions}
        else:
            latest, earliest = dict.fromkeys(partitions, LATEST), dict.fromkeys(partitions, EARLIEST)
            ends = await brokers.available_offsets(topic, latest, wait_ms=_OFFSETS_TIMEOUT_MS)
            earliest = {number: earliest[number] for number in ends}
            starts = await brokers.available_offsets(topic, earliest, wait_ms=_OFFSETS_TIMEOUT_MS)
            found = {number: OffsetRange(start, ends[number]) for number, start in starts.items()}
            if missing := set(partitions) - starts.keys():
                _log.warning(
                    "topic %s: no leader answers for partitions %s, using what is published", topic, sorted(missing)
                )
                found |= await self._published_offsets(info, missing)
        ranges = [found[number] for number in partitions]
        return TopicOffsets(info.id, tuple(each.start for each in ranges), tuple(each.end for each in ranges))

    async def offsets_at(self, topic: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]:
        """Partition → the first offset whose record is at or after `timestamp_ms`; the end if there is none."""
        numbers, info = list(partitions), await self._cluster.topic(topic)
        slots = asyncio.Semaphore(_CONCURRENCY_MAX)

        async def find(number: int) -> int:
            async with slots:
                return await self._offset_at(info, number, max(0, timestamp_ms))

        return dict(zip(numbers, await asyncio.gather(*map(find, numbers)), strict=True))

    async def split(
        self, whole: PartitionRange, *, rows_max: int, bytes_max: int
    ) -> list[tuple[PartitionRange, float]]:
        """The range in parts of about so many rows and stored bytes at most, each with its size: 1 is a full part.

        Exact for rows unless the topic is compacted. It follows from the list of segments alone; what is not published yet is
        estimated by the last segment.
        """
        check_at_least("rows_max", rows_max, 1)
        check_at_least("bytes_max", bytes_max, 1)
        parts = split_by_size(await self._estimate(whole), rows_max=rows_max, bytes_max=bytes_max)
        return [(PartitionRange(whole.topic, whole.partition, part.start, part.end), part.size) for part in parts]

    async def estimate_size(self, whole: PartitionRange) -> SizeEstimate:
        """About how many rows and bytes a range has, and how much of that is not published yet."""
        return total_size(await self._estimate(whole))

    async def limit(self, wholes: Sequence[PartitionRange], *, rows_max: int, bytes_max: int) -> list[PartitionRange]:
        """The beginnings of the ranges that together have about so many rows and bytes at most; each gets its share."""
        slots = asyncio.Semaphore(_CONCURRENCY_MAX)

        async def estimate(whole: PartitionRange) -> list[EstimatedRange]:
            async with slots:
                return await self._estimate(whole)

        estimates = await asyncio.gather(*map(estimate, wholes))
        ends = limit_each(estimates, rows_max=rows_max, bytes_max=bytes_max)
        return [
            PartitionRange(each.topic, each.partition, each.start, end) for each, end in zip(wholes, ends, strict=True)
        ]

    async def _published_offsets(self, topic: TopicInfo, partitions: Iterable[int]) -> dict[int, OffsetRange]:
        slots, found = asyncio.Semaphore(_CONCURRENCY_MAX), dict[int, OffsetRange]()

        async def find(number: int) -> None:
            async with slots:
                log = await self._cluster.published(topic, number)
            assert log is not None
            found[number] = OffsetRange(log.start_offset, log.high_watermark)

        await asyncio.gather(*map(find, partitions))
        return found

    async def _offset_at(self, topic: TopicInfo, number: int, timestamp_ms: int) -> int:
        cluster = self._cluster
        log = await cluster.published(topic, number)
        if log is not None and cluster.direct is not None:
            record = await cluster.direct.log_reader.offset_for_timestamp(log, timestamp_ms)
            if record is not None:
                return record.offset
        if cluster.brokers is None:
            assert log is not None
            return log.high_watermark
        found = (await cluster.brokers.offsets(topic.name, {number: timestamp_ms}))[number]
        return found if found >= 0 else (await cluster.brokers.offsets(topic.name, {number: LATEST}))[number]

    async def _estimate(self, whole: PartitionRange) -> list[EstimatedRange]:
        topic = await self._cluster.topic(whole.topic)
        log = await self._cluster.published(topic, whole.partition)
        segments, published = [], 0
        if log is not None and self._cluster.direct is not None:
            published = log.high_watermark
            # One before the range, too: it shows how large a record of the tail is.
            segments = await find_segments(log, self._cluster.direct.objects, max(0, whole.start - 1), whole.end)
        return estimate_ranges(segments, whole.start, whole.end, published=published)
