"""Ranges of offsets as Spark uses them: planned on the driver, read on executors as Arrow.

    with Planner(reach) as planner:
        ends = planner.ends("orders")
        parts = planner.split(OffsetRange("orders", 0, ends.starts[0], ends.ends[0]), rows_max=100_000, bytes_max=64 * MIB)
    for batch in read_range(reach, parts[0]): ...

Everything here is synchronous; the I/O runs on a thread of this process (`reading.loop`), and what it opened stays open for the
next task. Planning looks at metadata alone. The one rule: a range means the same records whenever and wherever it is read, as long
as the log has them; when it has not, `DataLossError` says which are missing.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Final

from holdfast.client.brokers import EARLIEST, LATEST, TopicInfo
from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import loop_thread, run
from holdfast.client.range_reader import Chunk, RangeReader, ReadRequest
from holdfast.client.splits import (
    ANY_TIME,
    EstimatedRange,
    SizeEstimate,
    TimeBounds,
    estimate_ranges,
    find_segments,
    limit_each,
    split_by_size,
    total_size,
)
from holdfast.client.types import DataLossError, OffsetRange, ReadCounters, TopicChangedError, TopicOffsets
from holdfast.log.batches import Buffer
from holdfast.spark.clusters import ClusterAccess, open_cluster
from holdfast.vocabulary.errors import ClosedError
from holdfast.vocabulary.settings import MIB, check_at_least

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ANY_TIME",
    "DataLossError",
    "OffsetRange",
    "Planner",
    "ReadCounters",
    "SizeEstimate",
    "TimeBounds",
    "TopicChangedError",
    "TopicInfo",
    "TopicOffsets",
    "read_range",
]

_log: Final = logging.getLogger(__name__)

_DECODE_BYTES: Final = 8 * MIB  # of batches that are decoded by one call
_OFFSETS_TIMEOUT_MS: Final = 5_000  # for agents, where the store can answer instead
_CONCURRENCY_MAX: Final = 16


class Planner:
    """Plans ranges of one cluster's topics. Synchronous, for drivers; many may be used at once."""

    def __init__(self, cluster_address: ClusterAddress) -> None:
        self.cluster_address = cluster_address

    def __enter__(self) -> "Planner":
        run(open_cluster(self.cluster_address))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is open stays open: the next planner of this process uses it."""

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name."""
        return run(self._topics())

    def topic(self, name: str) -> TopicInfo:
        """The topic's id and number of partitions. `UnknownTopicError`."""
        return run(self._topic(name))

    def ends(self, topic: str) -> TopicOffsets:
        """Where its partitions begin and end: the high watermarks, as the agents know them; without agents, what is published."""
        return run(self._ends(topic))

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The first offset whose record is as young as `timestamp_ms` or younger; the end if there is none."""
        return self.offsets_at(topic, [partition], timestamp_ms)[partition]

    def offsets_at(self, topic: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]:
        """The same for several partitions, looked up side by side."""
        return run(self._offsets_at(topic, list(partitions), timestamp_ms))

    def split(self, range: OffsetRange, *, rows_max: int, bytes_max: int) -> list[OffsetRange]:  # noqa: A002 (agreed)
        """The range in parts of about so many rows and stored bytes at most: exact for rows unless the topic is compacted.

        It follows from the list of segments alone; what is not published yet is estimated by what was published last.
        """
        check_at_least("rows_max", rows_max, 1)
        check_at_least("bytes_max", bytes_max, 1)
        return [part for part, _ in run(self._split_with_sizes(range, rows_max, bytes_max))]

    def split_with_sizes(
        self,
        range: OffsetRange,  # noqa: A002 (as above)
        *,
        rows_max: int,
        bytes_max: int,
    ) -> list[tuple[OffsetRange, float]]:
        """The same parts, each with its size: 1 is as much as a part may hold."""
        return run(self._split_with_sizes(range, rows_max, bytes_max))

    def estimate_size(self, range: OffsetRange) -> SizeEstimate:  # noqa: A002 (as above)
        """About how many rows and bytes a range has, and how much of that only agents have yet."""
        return total_size(run(self._estimate_ranges(range)))

    def limited(self, ranges: Sequence[OffsetRange], *, rows_max: int, bytes_max: int) -> list[OffsetRange]:
        """The beginnings of ranges that together are of about so many rows and bytes at most; each gets its share."""
        return run(self._limited(ranges, rows_max, bytes_max))

    async def _topics(self) -> list[TopicInfo]:
        return await (await open_cluster(self.cluster_address)).topics()

    async def _topic(self, name: str) -> TopicInfo:
        return await (await open_cluster(self.cluster_address)).topic(name)

    async def _ends(self, name: str) -> TopicOffsets:
        cluster = await open_cluster(self.cluster_address)
        topic = await cluster.topic(name)
        asked = dict.fromkeys(range(topic.partitions), LATEST)
        if cluster.direct is None:
            assert cluster.agents is not None
            ends = await cluster.agents.offsets(name, asked)
            starts = await cluster.agents.offsets(name, dict.fromkeys(asked, EARLIEST))
        elif cluster.agents is None:
            starts, ends = await self._published_ends(cluster, topic, asked)
        else:
            ends = await cluster.agents.available_offsets(name, asked, wait_ms=_OFFSETS_TIMEOUT_MS)
            starts = await cluster.agents.available_offsets(
                name, dict.fromkeys(ends, EARLIEST), wait_ms=_OFFSETS_TIMEOUT_MS
            )
            if missing := asked.keys() - starts.keys():
                _log.warning("only what is published of %s, partitions %s, is seen now", name, sorted(missing))
                more_starts, more_ends = await self._published_ends(cluster, topic, missing)
                starts, ends = {**starts, **more_starts}, {**ends, **more_ends}
        return TopicOffsets(topic.id, _by_partition(starts), _by_partition(ends))

    async def _published_ends(
        self, cluster: ClusterAccess, topic: TopicInfo, numbers: Iterable[int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        slots, starts, ends = asyncio.Semaphore(_CONCURRENCY_MAX), dict[int, int](), dict[int, int]()

        async def look(number: int) -> None:
            async with slots:
                log = await cluster.published(topic, number)
            assert log is not None
            starts[number], ends[number] = log.start_offset, log.high_watermark

        await asyncio.gather(*map(look, numbers))
        return starts, ends

    async def _offsets_at(self, name: str, numbers: list[int], timestamp_ms: int) -> dict[int, int]:
        cluster = await open_cluster(self.cluster_address)
        topic = await cluster.topic(name)
        slots = asyncio.Semaphore(_CONCURRENCY_MAX)

        async def look(number: int) -> int:
            async with slots:
                return await self._offset_at(cluster, topic, number, timestamp_ms)

        return dict(zip(numbers, await asyncio.gather(*map(look, numbers)), strict=True))

    async def _offset_at(self, cluster: ClusterAccess, topic: TopicInfo, number: int, timestamp_ms: int) -> int:
        log = await cluster.published(topic, number)
        if log is not None and cluster.direct is not None:
            reached = await cluster.direct.reading.offset_for_timestamp(log, max(0, timestamp_ms))
            if reached is not None:
                return reached.offset
        if cluster.agents is None:
            assert log is not None
            return log.high_watermark
        found = (await cluster.agents.offsets(topic.name, {number: max(0, timestamp_ms)}))[number]
        return found if found >= 0 else (await cluster.agents.offsets(topic.name, {number: LATEST}))[number]

    async def _split_with_sizes(
        self, whole: OffsetRange, rows_max: int, bytes_max: int
    ) -> list[tuple[OffsetRange, float]]:
        parts = split_by_size(await self._estimate_ranges(whole), rows_max=rows_max, bytes_max=bytes_max)
        return [(OffsetRange(whole.topic, whole.partition, part.start, part.end), part.size) for part in parts]

    async def _limited(self, wholes: Sequence[OffsetRange], rows_max: int, bytes_max: int) -> list[OffsetRange]:
        slots = asyncio.Semaphore(_CONCURRENCY_MAX)

        async def estimate_size(whole: OffsetRange) -> list[EstimatedRange]:
            async with slots:
                return await self._estimate_ranges(whole)

        weighed = await asyncio.gather(*map(estimate_size, wholes))
        ends = limit_each(weighed, rows_max=rows_max, bytes_max=bytes_max)
        return [
            OffsetRange(each.topic, each.partition, each.start, end) for each, end in zip(wholes, ends, strict=True)
        ]

    async def _estimate_ranges(self, whole: OffsetRange) -> list[EstimatedRange]:
        cluster = await open_cluster(self.cluster_address)
        topic = await cluster.topic(whole.topic)
        log = await cluster.published(topic, whole.partition)
        segments = []
        if log is not None and cluster.direct is not None:
            # One before the range, too: it tells what a record of the tail weighs.
            segments = await find_segments(log, cluster.direct.objects, max(0, whole.start - 1), whole.end)
        return estimate_ranges(segments, whole.start, whole.end)


def read_range(
    cluster_address: ClusterAddress,
    range: OffsetRange,  # noqa: A002 (agreed)
    *,
    include_headers: bool = True,
    counters: ReadCounters | None = None,
    topic_id: str = "",
    times: TimeBounds = ANY_TIME,
    skip_lost: bool = False,
) -> Iterator["pa.RecordBatch"]:
    """The records of a range in offset order, as tables in the columns of Spark's Kafka source. Synchronous, for executors.

    With `topic_id`, `TopicChangedError` if the name belongs to another topic now. `times` leaves out what is cheap to leave out:
    rows outside of them may still come. `DataLossError`: offsets of the range are gone; with `skip_lost`, a warning instead.
    """
    from holdfast.spark.arrow_tables import to_tables

    counted = counters if counters is not None else ReadCounters()
    asked = ReadRequest(range=range, topic_id=topic_id, times=times, skip_lost=skip_lost, counters=counted)
    for group, start in _group_batches(_read_chunks(cluster_address, asked)):
        for table in to_tables(
            group,
            topic=range.topic,
            partition=range.partition,
            start=start,
            end=range.end,
            include_headers=include_headers,
        ):
            counted.rows += table.num_rows
            yield table


def _read_chunks(cluster_address: ClusterAddress, asked: ReadRequest) -> Iterator[Chunk]:
    """Chunks from the loop's thread, which reads the next while this one is used."""
    thread = loop_thread()
    queue: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue(1)
    pumping = thread.submit(_pump(cluster_address, asked, queue))
    try:
        while (chunk := thread.submit(queue.get()).result()) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
    finally:
        pumping.cancel()


async def _pump(
    cluster_address: ClusterAddress, asked: ReadRequest, queue: "asyncio.Queue[Chunk | Exception | None]"
) -> None:
    try:
        async with aclosing(RangeReader(await open_cluster(cluster_address), asked).chunks()) as chunks:
            async for chunk in chunks:
                await queue.put(chunk)
        await queue.put(None)
    except BaseException as error:
        while queue.full():
            queue.get_nowait()
        # It is raised where the records are wanted; who waits for them must not wait for ever.
        queue.put_nowait(error if isinstance(error, Exception) else ClosedError(f"reader of {asked.range}"))
        if not isinstance(error, Exception):
            raise


def _group_batches(chunks: Iterator[Chunk]) -> Iterator[tuple[list[Buffer], int]]:
    """Batches by the many: one call that decodes a lot is much faster than many calls, and makes larger tables."""
    group: list[Buffer] = []
    size, start = 0, 0
    for chunk in chunks:
        for batch in chunk.batches:
            if group and (size + len(batch) > _DECODE_BYTES or chunk.start != start):
                yield group, start
                group, size = [], 0
            group.append(batch)
            size, start = size + len(batch), chunk.start
    if group:
        yield group, start


def _by_partition(offsets: dict[int, int]) -> tuple[int, ...]:
    return tuple(offsets[number] for number in sorted(offsets))
