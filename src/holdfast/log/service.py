"""The log as gateways use it: topics, produce, read, offsets, deleting records. Every gateway calls this, and nothing below it.

It validates requests itself: limits, keys of compacted topics, append time, leader epochs. Leading, publishing and maintenance are
the agent's. A partition that another agent leads is a `NotLeaderError`, and the gateway redirects or forwards.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from holdfast.kafka.special_offsets import LATEST, MAX_TIMESTAMP, NO_EPOCH
from holdfast.log.append_traces import AppendTraces
from holdfast.log.batch_checker import BatchChecker
from holdfast.log.batches import (
    Buffer,
    RecordBatch,
    RecordBatchLimits,
    parse_header,
    set_append_time,
    split_batches,
)
from holdfast.log.batches.header import TRANSACTIONAL
from holdfast.log.errors import HeapTopicError, NotLeaderError, OffsetOutOfRangeError, UnknownLeaderEpochError
from holdfast.log.figures import TopicTraffic
from holdfast.log.follower_reads import FollowerReads
from holdfast.log.leader_epochs import check_leader_epoch, epoch_at
from holdfast.log.maintenance import MaintenanceContext, delete_records
from holdfast.log.missed_batches import MissedBatches
from holdfast.log.model import ACKS_ALL, ACKS_LEADER, ACKS_NONE, PartitionId
from holdfast.log.partition.appendable_log import AppendResult
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.retained_partition import RetainedPartition
from holdfast.log.partition_read import PartitionRead
from holdfast.log.pending_produce import AppendedTogether, PendingProduce, ProduceResult
from holdfast.log.promises_ahead import is_newest
from holdfast.log.published_log import PublishedLog
from holdfast.log.reader import FetchedBatches, LogReader, end_of_epoch
from holdfast.log.segments import ProducerSnapshot
from holdfast.log.topic_config import TopicConfig
from holdfast.log.topics import Topic, Topics, UnknownTopicError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.tracing import Span, current_span

_PUBLISHED_MAX: Final = 1_024


class LeaderLookup(Protocol):
    """The topics visible to this process, and the partitions it leads."""

    def topic(self, name: str) -> Topic | None:
        """The topic, if it is known here: a new one may be missing for a moment."""
        ...

    def partition(self, topic: Topic, number: int) -> LeadingPartition:
        """The partition if it is led here. `NotLeaderError`."""
        ...

    def readable(self, topic: Topic, number: int) -> LeadingPartition | RetainedPartition:
        """The partition if it is led here, or what is left of a leadership whose session was lost. `NotLeaderError`."""
        ...


class PartitionDescription(NamedTuple):
    """A partition that is led here, now. `in_sync`: the WALs of replicas that keep up, none without replication."""

    epoch: int
    start_offset: int
    high_watermark: int
    published_until: int
    in_sync: tuple[str, ...] = ()


class TimestampOffset(NamedTuple):
    """The offset of a timestamp, with the timestamp of its record (-1: none) and the epoch that wrote it."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class LogService:
    """The log of one process."""

    def __init__(
        self,
        leading: LeaderLookup,
        *,
        topics: Topics,
        reading: LogReader,
        context: MaintenanceContext,
        clock: Clock,
        directory: Path | None = None,
        followers: FollowerReads | None = None,
        traffic: TopicTraffic | None = None,
        traces: AppendTraces | None = None,
    ) -> None:
        self.topics = topics
        self.directory = directory  # of the WAL; None: this process leads nothing
        self._followers = followers  # None: this process has no replicas
        self._leading, self._reading, self._context, self._clock = leading, reading, context, clock
        self._configs: dict[str, tuple[Topic, TopicConfig, RecordBatchLimits]] = {}
        self._checker = BatchChecker(context.log)
        self._missed = MissedBatches()
        self._published: dict[PartitionId, PublishedLog] = {}  # read lately, led elsewhere
        self._traces = traces  # None: they are off
        self.traffic = traffic if traffic is not None else TopicTraffic()

    async def close(self) -> None:
        """Stop reading ahead and checking. Call nothing afterwards."""
        self._checker.close()
        await self._reading.close()

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, object] | None = None) -> Topic:
        """Create a topic. It can be used as soon as the planner has placed its partitions."""
        return await self.topics.create(name, partitions, config)

    async def delete_topic(self, name: str) -> Topic:
        """Delete a topic and everything in it."""
        return await self.topics.delete(name)

    async def list_topics(self) -> Sequence[Topic]:
        """Every topic, by name."""
        return await self.topics.list()

    async def produce(self, topic: str, partition: int, payload: Buffer, *, acks: int = ACKS_ALL) -> ProduceResult:
        """Append the batches of `payload`, all or none, and return once they are as durable as `acks` asks for.

        `InvalidError` (also `InvalidBatchError`, `ProducerRefusedError`): nothing was appended, and never will be.
        `UnavailableError`, `NotLeaderError`: nothing was appended, try again. Otherwise what became of it is not known.
        """
        if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            raise InvalidError("acks", acks, f"{ACKS_NONE}, {ACKS_LEADER} or {ACKS_ALL}")
        found = await self._topic(topic)
        pending = self._validate(found, partition, payload)
        if self._traces is not None and (span := current_span.get()) is not None:
            pending.traces, pending.parents = self._traces, (span,)
        return await pending.finish(acks=acks)

    def begin_produce(
        self, topic: str, partition: int, payload: Buffer, span: Span | None = None
    ) -> PendingProduce | None:
        """`produce` without waiting: appended at once unless an append has to wait. None: the topic is not known here (yet).

        `span`: that of the request, if there is one.
        Raises what `produce` raises. What is not `appended` has its place in the order of the calls; the caller starts each one.
        """
        found = self._leading.topic(topic)
        if found is None:
            return None
        pending = self._validate(found, partition, payload)
        if span is not None:
            pending.traces, pending.parents = self._traces, (span,)
        try:
            pending.append_now()
        except InvalidError:
            raise
        except HoldfastError:
            self._note_missed(found, partition, payload)  # the next leadership of ours must know
            raise
        return pending

    def _validate(self, topic: Topic, partition: int, payload: Buffer) -> PendingProduce:
        """The batches of a payload, checked against the topic's configuration, and the partition that takes them."""
        if topic.is_heap:
            raise HeapTopicError(topic.name, "records")
        config, limits = self._config(topic)
        try:
            led = self._leading.partition(topic, self._number(topic, partition))
        except NotLeaderError:
            self._note_missed(topic, partition, payload)
            raise
        if self._missed:
            for header, at_ms in self._missed.take(topic.id, partition):
                led.record_missed((header,), at_ms)
        batches, append_time_ms = self._batches((payload,), config, limits)
        checked = self._checker.begin(batches, limits=limits, keyed=config.compacted)
        return PendingProduce(led, batches, append_time_ms, checked)

    def produce_together(
        self, topic: str, partition: int, payloads: Sequence[bytearray], spans: Sequence[Span] = ()
    ) -> AppendedTogether | None:
        """Append the batches of several requests at once. None: nothing was appended; each has to be produced by itself.

        `spans`: of those of the requests that are traced.
        The payloads become the log's: it writes to them, and keeps them as long as any of their batches.
        """
        found = self._leading.topic(topic)
        if found is None or found.is_heap or (found.id, partition) in self._missed:
            return None
        try:
            config, limits = self._config(found)
            led = self._leading.partition(found, self._number(found, partition))
            if not config.append_time and (run := self._checker.verify_run(payloads, limits, keyed=config.compacted)):
                appended = led.append_run_now(run)
                return None if appended is None else self._appended_together(led, appended, -1, spans)
            batches, append_time_ms = self._batches(payloads, config, limits)
            if not self._checker.check_now(batches, limits=limits, keyed=config.compacted):
                return None
            appended = led.append_now(batches, copy_below_bytes=0)
        except HoldfastError:
            return None  # whose fault it is shows when each is produced by itself
        return None if appended is None else self._appended_together(led, appended, append_time_ms, spans)

    def _appended_together(
        self, led: LeadingPartition, appended: AppendResult, append_time_ms: int, spans: Sequence[Span]
    ) -> AppendedTogether:
        if self._traces is None or not spans:
            return AppendedTogether(led, appended, append_time_ms)
        span = self._traces.append(led.partition_id, appended.base_offset, appended.end_offset, spans)
        return AppendedTogether(led, appended, append_time_ms, span)

    def _batches(
        self, payloads: Sequence[Buffer], config: TopicConfig, limits: RecordBatchLimits
    ) -> tuple[list[RecordBatch], int]:
        """The batches of payloads, and their append time, or -1."""
        batches = [batch for payload in payloads for batch in split_batches(payload, limits=limits)]
        for header, _ in batches:
            if header.attributes & TRANSACTIONAL:
                raise InvalidError("batch attributes", "transactional", "not transactional: unsupported")
        if not config.append_time:
            return batches, -1
        append_time_ms = self._clock.now_ms()
        return _with_append_time(batches, append_time_ms), append_time_ms

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int = 1 << 20,
        wait_ms: float = 0,
        bytes_min: int = 1,
    ) -> FetchedBatches:
        """Whole batches from the one that holds `offset` on, waiting for `bytes_min`; see `LogReader.fetch`."""
        log = await self._readable(topic, partition, NO_EPOCH)
        if isinstance(log, RetainedPartition):
            log.check_known(offset)
        async with self._confirmed_end(log, offset):
            found = await self._reading.fetch(log, offset, bytes_max=bytes_max, wait_ms=wait_ms, bytes_min=bytes_min)
        self.traffic[topic].read_bytes += found.size_bytes
        return found

    async def read(
        self, topic: str, partition: int, offset: int, *, bytes_max: int, leader_epoch: int = NO_EPOCH
    ) -> PartitionRead:
        """Whole batches from the one that holds `offset` on, without waiting. `OffsetOutOfRangeError`, `NotLeaderError`.

        With `leader_epoch`, any method raises `FencedLeaderEpochError` or `UnknownLeaderEpochError` if ours is another one.
        Without a session, what was acknowledged before is still read; at its end there is a `NotLeaderError`.
        """
        found = self._leading.topic(topic) or await self.topics.get(topic)
        log = self._readable_at(found, partition, offset, leader_epoch)
        epoch = log.epoch
        async with self._confirmed_end(log, offset):
            batches, start, end, size_bytes = await self._reading.fetch(log, offset, bytes_max=bytes_max)
        self.traffic[topic].read_bytes += size_bytes
        return PartitionRead(batches, size_bytes, start, end, epoch, log)

    def read_now(
        self, topic: str, partition: int, offset: int, *, bytes_max: int, leader_epoch: int = NO_EPOCH
    ) -> PartitionRead | None:
        """`read` of what is in memory. None: the topic is not known here (yet)."""
        found = self._leading.topic(topic)
        if found is None:
            return None
        log = self._readable_at(found, partition, offset, leader_epoch)
        try:
            read = self._reading.fetch_now(log, offset, bytes_max=bytes_max)
        except OffsetOutOfRangeError as error:
            if offset <= error.end:
                raise
            read = None  # whether that is beyond the end, `read` asks the store
        if read is None:
            return PartitionRead((), 0, log.start_offset, log.high_watermark, log.epoch, log, in_memory=False)
        batches, start, end, size_bytes = read
        self.traffic[topic].read_bytes += size_bytes
        return PartitionRead(batches, size_bytes, start, end, log.epoch, log)

    def _readable_at(
        self, topic: Topic, partition: int, offset: int, leader_epoch: int
    ) -> LeadingPartition | RetainedPartition:
        log = self._leading.readable(topic, self._number(topic, partition))
        if 0 <= leader_epoch != log.epoch:
            check_leader_epoch(log.partition_id, leader_epoch, log.epoch)
        if isinstance(log, RetainedPartition):
            log.check_known(offset)
        return log

    @asynccontextmanager
    async def _confirmed_end(self, log: LeadingPartition | RetainedPartition, offset: int) -> AsyncIterator[None]:
        """For a read in the body: that `offset` lies beyond the end is said by the newest leader alone.

        A reader that is ahead of this agent has read from a later leader, if there is one, or from its replicas.
        """
        try:
            yield
        except OffsetOutOfRangeError as error:
            if offset <= error.end or isinstance(log, RetainedPartition):
                raise
            if not await is_newest(self._context.store, log.lease):
                which = log.partition_id
                raise NotLeaderError(which.topic, which.number, reason="a later leader took over") from error
            raise

    async def read_replica(
        self, topic: str, partition: int, offset: int, *, bytes_max: int, leader_epoch: int = NO_EPOCH
    ) -> PartitionRead:
        """`read` of a partition led elsewhere, from this agent's replica of it: what that shows, and nothing above it.

        `NotLeaderError`: there is none, or it has not heard of its leader lately. `LeaderEpochError`: it knows another epoch.
        """
        partition_id = self._partition_id(await self._topic(topic), partition)
        if self._followers is None:
            raise NotLeaderError(topic, partition, reason="there is no replica here")
        return await self._followers.read(partition_id, offset, bytes_max=bytes_max, leader_epoch=leader_epoch)

    def read_replica_now(
        self, topic: str, partition: int, offset: int, *, bytes_max: int, leader_epoch: int = NO_EPOCH
    ) -> PartitionRead | None:
        """`read_replica` of what is in memory. None: that is not known without the store."""
        found = self._leading.topic(topic)
        if found is None or self._followers is None:
            return None
        partition_id = self._partition_id(found, partition)
        return self._followers.read_now(partition_id, offset, bytes_max=bytes_max, leader_epoch=leader_epoch)

    async def fetch_published(
        self, topic: str, partition: int, offset: int, *, bytes_max: int
    ) -> FetchedBatches | None:
        """`read` of a partition led elsewhere, from object storage; None: `offset` is not published.

        Its high watermark is where the published part ends, as of its last refresh.
        """
        partition_id = self._partition_id(await self._topic(topic), partition)
        log = self._published.pop(partition_id, None) or await PublishedLog.open(
            partition_id, store=self._context.store, clock=self._clock
        )
        self._published[partition_id] = log  # the youngest again
        while len(self._published) > _PUBLISHED_MAX:
            del self._published[next(iter(self._published))]
        if offset >= log.high_watermark:
            await log.refresh()
            if offset >= log.high_watermark:
                return None
        return await self._reading.fetch(log, offset, bytes_max=bytes_max)

    async def describe(self, topic: str, partition: int, *, leader_epoch: int = NO_EPOCH) -> PartitionDescription:
        """Bounds and epoch of a partition that is led here."""
        led = await self._current(topic, partition, leader_epoch)
        record = led.record
        return PartitionDescription(led.epoch, led.start_offset, led.high_watermark, record.published, record.in_sync)

    async def offset_for_timestamp(
        self, topic: str, partition: int, timestamp_ms: int, *, leader_epoch: int = NO_EPOCH
    ) -> TimestampOffset | None:
        """The first record at or after a time; EARLIEST, LATEST and MAX_TIMESTAMP as in `LogReader`."""
        log = await self._readable(topic, partition, leader_epoch)
        if isinstance(log, RetainedPartition) and timestamp_ms in (LATEST, MAX_TIMESTAMP):
            raise log.not_leader()
        reached = await self._reading.offset_for_timestamp(log, timestamp_ms)
        if reached is None:
            if isinstance(log, RetainedPartition):
                raise log.not_leader()  # there may be one by now
            return None
        epoch = log.epoch if timestamp_ms == LATEST else epoch_at(log.epochs, reached.offset)
        return TimestampOffset(reached.offset, reached.timestamp_ms, epoch)

    async def end_of_epoch(
        self, topic: str, partition: int, epoch: int, *, leader_epoch: int = NO_EPOCH
    ) -> tuple[int, int]:
        """Kafka's OffsetForLeaderEpoch: the largest known epoch ≤ `epoch`, and where it ended.

        An end below what the caller has read means to it that the log was truncated. So a former leader names no end of its own
        epoch: replicas and later leaders may have shown more of it. Nor does a leader that was replaced unawares: asked for
        a later epoch than its own, or for its own by who does not say whom it takes for the leader, it asks the store.
        (-1, -1): no such epoch was ever known.
        """
        log = await self._readable(topic, partition, leader_epoch)
        if isinstance(log, RetainedPartition):
            if epoch >= log.epoch:
                raise log.not_leader()
        elif epoch + (leader_epoch == NO_EPOCH) > log.epoch and not await is_newest(self._context.store, log.lease):
            raise UnknownLeaderEpochError(str(log.partition_id), max(epoch, log.epoch + 1), log.epoch)
        return end_of_epoch(log, epoch)

    async def producers(self, topic: str, partition: int) -> Sequence[ProducerSnapshot]:
        """The idempotent producers a partition remembers."""
        led = await self._current(topic, partition, NO_EPOCH)
        await led.recover_producers()
        silent_ms = self._clock.now_ms() - self._context.log.producer_expiry_ms  # these go with the next publication
        return [each for each in led.producers_at(led.next_offset) if each.last_timestamp_ms > silent_ms]

    async def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Delete everything below `offset` (-1: everything visible); where the partition starts now."""
        if (await self._topic(topic)).is_heap:
            raise HeapTopicError(topic, "DeleteRecords")
        return await delete_records(await self._led(topic, partition), offset, self._context)

    async def flush(self, topic: str, partition: int) -> int:
        """Publish everything appended so far; the offset up to which the partition is published then."""
        led = await self._led(topic, partition)
        await led.wait_published()
        return led.record.published

    def is_serving(self, topic: str, partition: int) -> bool:
        """Whether the partition is known and led here now."""
        return self._serving(topic, partition) is not None

    def size_bytes(self, topic: str, partition: int) -> int | None:
        """What the partition holds, published or not; None: it is not led here."""
        led = self._serving(topic, partition)
        return None if led is None else led.segments.size_bytes + led.unpublished_bytes

    def replica_size_and_lag(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Unpublished bytes in this agent's replica of a partition, and how many offsets it is behind; None: it has none."""
        found = self._leading.topic(topic)
        if self._followers is None or found is None or not 0 <= partition < found.partitions:
            return None
        return self._followers.size_and_lag(PartitionId(topic=topic, topic_id=found.id, number=partition))

    def _serving(self, topic: str, partition: int) -> LeadingPartition | None:
        found = self._leading.topic(topic)
        if found is None or not 0 <= partition < found.partitions:
            return None
        try:
            return self._leading.partition(found, partition)
        except NotLeaderError:
            return None

    async def _led(self, topic: str, partition: int) -> LeadingPartition:
        found = await self._topic(topic)
        return self._leading.partition(found, self._number(found, partition))

    async def _current(self, topic: str, partition: int, leader_epoch: int) -> LeadingPartition:
        led = await self._led(topic, partition)
        led.check_readable()
        if leader_epoch != NO_EPOCH:
            check_leader_epoch(led.partition_id, leader_epoch, led.epoch)
        return led

    async def _readable(self, topic: str, partition: int, leader_epoch: int) -> LeadingPartition | RetainedPartition:
        found = await self._topic(topic)
        log = self._leading.readable(found, self._number(found, partition))
        if leader_epoch != NO_EPOCH:
            check_leader_epoch(log.partition_id, leader_epoch, log.epoch)
        return log

    async def _topic(self, name: str) -> Topic:
        return self._leading.topic(name) or await self.topics.get(name)  # created a moment ago, perhaps elsewhere

    def _note_missed(self, topic: Topic, partition: int, payload: Buffer) -> None:
        self._missed.note(topic.id, partition, payload, self._clock.now_ms())

    def _config(self, topic: Topic) -> tuple[TopicConfig, RecordBatchLimits]:
        known = self._configs.get(topic.name)
        if known is None or known[0] is not topic:
            known = topic, topic.config, self._checker.limits(topic.config.limits())
            self._configs[topic.name] = known
        return known[1:]

    def _partition_id(self, topic: Topic, number: int) -> PartitionId:
        return PartitionId(topic=topic.name, topic_id=topic.id, number=self._number(topic, number))

    def _number(self, topic: Topic, partition: int) -> int:
        if not 0 <= partition < topic.partitions:
            raise UnknownTopicError(f"{topic.name}:{partition}")
        return partition


def _with_append_time(batches: Sequence[RecordBatch], append_time_ms: int) -> list[RecordBatch]:
    """The batches with the append time as their timestamp, copied unless they are writable."""
    stamped: list[RecordBatch] = []
    for _, view in batches:
        data = memoryview(bytearray(view)) if view.readonly else view
        set_append_time(data, timestamp_ms=append_time_ms)
        stamped.append(RecordBatch(parse_header(data), data))
    return stamped
