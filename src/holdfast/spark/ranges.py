"""Ranges of offsets as Spark uses them: planned on the driver, read on executors as Arrow.

    planner = Planner(cluster_address)
    offsets = planner.topic_offsets("orders")
    parts = planner.split(PartitionRange("orders", 0, offsets.starts[0], offsets.ends[0]), rows_max=100_000, bytes_max=64 * MIB)
    for batch in read_range(cluster_address, parts[0]): ...

Everything here is synchronous; the I/O runs on a thread of this process (`client.loop_thread`), and connections stay open for the
next task. The one rule: a range means the same records whenever and wherever it is read, as long as the log has them; if it has
not, `DataLossError` says which are missing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.client.brokers import TopicInfo
from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import loop_thread, run
from holdfast.client.range_planner import RangePlanner
from holdfast.client.range_reader import Chunk, RangeReader, ReadableCluster, ReadRequest
from holdfast.client.read_grants import ReadGrant
from holdfast.client.splits import ANY_TIME, SizeEstimate, TimeBounds
from holdfast.client.types import DataLossError, PartitionRange, ReadCounters, TopicChangedError, TopicOffsets
from holdfast.log.batches import Buffer
from holdfast.spark.clusters import open_cluster
from holdfast.spark.read_grants import open_granted
from holdfast.vocabulary.errors import ClosedError
from holdfast.vocabulary.settings import MIB

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ANY_TIME",
    "DataLossError",
    "PartitionRange",
    "Planner",
    "ReadCounters",
    "SizeEstimate",
    "TimeBounds",
    "TopicChangedError",
    "TopicInfo",
    "TopicOffsets",
    "read_range",
]

T = TypeVar("T")

_DECODE_BYTES: Final = 8 * MIB  # of batches that are decoded by one call


class Planner:
    """A synchronous `RangePlanner`, for drivers. Several share one open cluster."""

    def __init__(self, cluster_address: ClusterAddress) -> None:
        self.cluster_address = cluster_address

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name."""

        async def topics() -> list[TopicInfo]:
            return await (await open_cluster(self.cluster_address)).topics()

        return run(topics())

    def topic(self, name: str) -> TopicInfo:
        """The topic's id and number of partitions. `UnknownTopicError`."""

        async def topic() -> TopicInfo:
            return await (await open_cluster(self.cluster_address)).topic(name)

        return run(topic())

    def topic_offsets(self, topic: str) -> TopicOffsets:
        """Start and end offset of every partition."""
        return self._plan(lambda planner: planner.topic_offsets(topic))

    def offsets_at(self, topic: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]:
        """Partition → the first offset at or after a time; the end if there is none."""
        return self._plan(lambda planner: planner.offsets_at(topic, partitions, timestamp_ms))

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The same for one partition."""
        return self.offsets_at(topic, [partition], timestamp_ms)[partition]

    def split(self, whole: PartitionRange, *, rows_max: int, bytes_max: int) -> list[PartitionRange]:
        """The range in parts of about so many rows and stored bytes at most."""
        return [part for part, _ in self.split_with_sizes(whole, rows_max=rows_max, bytes_max=bytes_max)]

    def split_with_sizes(
        self, whole: PartitionRange, *, rows_max: int, bytes_max: int
    ) -> list[tuple[PartitionRange, float]]:
        """The same parts, each with its size: 1 is a full part."""
        return self._plan(lambda planner: planner.split(whole, rows_max=rows_max, bytes_max=bytes_max))

    def estimate_size(self, whole: PartitionRange) -> SizeEstimate:
        """About how many rows and bytes a range has, and how much of that is not published yet."""
        return self._plan(lambda planner: planner.estimate_size(whole))

    def limit(self, wholes: Sequence[PartitionRange], *, rows_max: int, bytes_max: int) -> list[PartitionRange]:
        """The beginnings of the ranges that together have about so many rows and bytes at most; each gets its share."""
        return self._plan(lambda planner: planner.limit(wholes, rows_max=rows_max, bytes_max=bytes_max))

    def _plan(self, call: Callable[[RangePlanner], Awaitable[T]]) -> T:
        async def plan() -> T:
            return await call(RangePlanner(await open_cluster(self.cluster_address)))

        return run(plan())


def read_range(
    cluster_address: ClusterAddress,
    wanted: PartitionRange,
    *,
    include_headers: bool = True,
    counters: ReadCounters | None = None,
    topic_id: str = "",
    times: TimeBounds = ANY_TIME,
    skip_lost: bool = False,
    grant: ReadGrant | None = None,
) -> Iterator["pa.RecordBatch"]:
    """The records of a range in offset order, as tables in the columns of Spark's Kafka source. Synchronous, for executors.

    With `topic_id`, `TopicChangedError` if the name belongs to another topic now. `times` skips what is cheap to skip: rows
    outside of it may still come. `DataLossError`: offsets of the range are missing; with `skip_lost`, a warning instead.
    With a `grant`, what that covers is read without credentials, and the rest from the brokers of the address.
    """
    from holdfast.spark.arrow_tables import to_tables

    counted = counters if counters is not None else ReadCounters()
    request = ReadRequest(range=wanted, topic_id=topic_id, times=times, skip_lost=skip_lost, counters=counted)
    for group, start in _group_batches(_read_chunks(cluster_address, request, grant)):
        for table in to_tables(
            group,
            topic=wanted.topic,
            partition=wanted.partition,
            start=start,
            end=wanted.end,
            include_headers=include_headers,
        ):
            counted.rows += table.num_rows
            yield table


def _read_chunks(cluster_address: ClusterAddress, request: ReadRequest, grant: ReadGrant | None) -> Iterator[Chunk]:
    """Chunks from the loop's thread, which reads the next one while this one is used."""
    thread = loop_thread()
    queue: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue(1)
    pumping = thread.submit(_pump(cluster_address, request, grant, queue))
    try:
        while (chunk := thread.submit(queue.get()).result()) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
    finally:
        pumping.cancel()


async def _pump(
    cluster_address: ClusterAddress,
    request: ReadRequest,
    grant: ReadGrant | None,
    queue: "asyncio.Queue[Chunk | Exception | None]",
) -> None:
    try:
        cluster: ReadableCluster
        if grant is None:
            cluster = await open_cluster(cluster_address)
        else:
            cluster = await open_granted(cluster_address, grant)
        async with aclosing(RangeReader(cluster, request).chunks()) as chunks:
            async for chunk in chunks:
                await queue.put(chunk)
        await queue.put(None)
    except BaseException as error:
        while queue.full():
            queue.get_nowait()
        # It is raised where the records are consumed; a consumer must not wait for ever.
        queue.put_nowait(error if isinstance(error, Exception) else ClosedError(f"reader of {request.range}"))
        if not isinstance(error, Exception):
            raise


def _group_batches(chunks: Iterator[Chunk]) -> Iterator[tuple[list[Buffer], int]]:
    """Several batches at a time: one call that decodes many is much faster than many calls, and makes larger tables."""
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
