"""The log as its faces use it: topics, produce, fetch, offsets, deleting records. Every face calls this, and none goes around it.

What it does itself is judging: limits, keys of compacted topics, the log's own time. Leading, publishing and upkeep are the
agent's; a partition somebody else leads is a `NotLeaderError`, and the face redirects or forwards.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from holdfast.log.batches import BatchHeader, Buffer, RecordBatch, parse_header, set_append_time, split_batches
from holdfast.log.batches.header import HEADER_BYTES
from holdfast.log.maintenance import MaintenanceContext, check_keys, delete_records
from holdfast.log.model import PartitionId
from holdfast.log.partition.leading_partition import ACKS_ALL, ACKS_LEADER, ACKS_NONE, AppendResult, LeadingPartition
from holdfast.log.partition.producer_state import MISSED_MAX, MISSED_MS
from holdfast.log.published_log import PublishedLog
from holdfast.log.reader import FetchedBatches, LogReader, end_of_epoch
from holdfast.log.segments import OffsetAndTimestamp
from holdfast.log.topic_config import TopicConfig
from holdfast.log.topics import Topic, Topics, UnknownTopicError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_PUBLISHED_MAX: Final = 1_024


class NotLeaderError(HoldfastError):
    """This agent does not lead the partition (now). Ask `leader`, or try again. `reason` says why it is offline, if it is."""

    def __init__(self, topic: str, partition: int, leader: str = "", reason: str = "") -> None:
        super().__init__(topic, partition, leader, reason)
        self.topic, self.partition, self.leader, self.reason = topic, partition, leader, reason

    def __str__(self) -> str:
        why = self.reason or (f"{self.leader} does" if self.leader else "nobody does yet")
        return f"partition {self.topic}:{self.partition} is not led here: {why}"


class LeaderLookup(Protocol):
    """What this process knows of topics, and leads."""

    def topic(self, name: str) -> Topic | None:
        """The topic, as far as it is known here: a new one may be missing for a moment."""
        ...

    def partition(self, topic: Topic, number: int) -> LeadingPartition:
        """The partition if it is led here. `NotLeaderError`."""
        ...


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """What a producer is told. `append_time_ms` is -1 unless the log gave the records their time."""

    base_offset: int
    end_offset: int
    start_offset: int
    append_time_ms: int = -1
    duplicate: bool = False


@dataclass(slots=True)
class PendingProduce:
    """Batches on their way into a partition; `appended` once they have their offsets."""

    led: LeadingPartition
    batches: Sequence[RecordBatch]
    append_time_ms: int
    appended: AppendResult | None = None

    async def finish(self, *, acks: int) -> ProduceResult:
        """Return once they are as durable as `acks` asks for. Raises what `LogService.produce` raises."""
        led, appended = self.led, self.appended
        if appended is None:
            appended = await led.append(self.batches, acks=acks)
        else:
            await led.acknowledged(appended, acks=acks)
        return self._produced(appended)

    def tell(self, on_durable: Callable[[ProduceResult | BaseException], None], *, acks: int) -> None:
        """`finish` for what is `appended`, without a task: `told` hears what it would return, or raise."""
        appended = self.appended
        assert appended is not None
        self.led.tell(
            appended, lambda error: on_durable(self._produced(appended) if error is None else error), acks=acks
        )

    def _produced(self, appended: AppendResult) -> ProduceResult:
        return ProduceResult(
            appended.base_offset, appended.end_offset, self.led.start_offset, self.append_time_ms, appended.duplicate
        )


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
    ) -> None:
        self.topics = topics
        self.directory = directory  # where what is not published yet is kept; None: this process keeps nothing
        self._leading, self._reading, self._context, self._clock = leading, reading, context, clock
        self._configs: dict[str, tuple[Topic, TopicConfig]] = {}
        self._missed: dict[
            tuple[str, int], dict[tuple[int, int], tuple[BatchHeader, int]]
        ] = {}  # sent while it was not led here
        self._published: dict[PartitionId, PublishedLog] = {}  # those read lately that others lead

    async def close(self) -> None:
        """End what goes on in the background. Nothing is asked afterwards."""
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
        found, config = await self._topic(topic)
        return await self._judge(found, config, partition, payload).finish(acks=acks)

    def begin_produce(self, topic: str, partition: int, payload: Buffer) -> "PendingProduce | None":
        """`produce` without waiting: appended at once if nothing is in the way. None: the topic is not known here (yet).

        Raises what `produce` raises. Whoever gets one `finish`es it, in the order of the calls.
        """
        found = self._leading.topic(topic)
        if found is None:
            return None
        begun = self._judge(found, self._config(found), partition, payload)
        try:
            begun.appended = begun.led.append_now(begun.batches)
        except InvalidError:
            raise
        except HoldfastError:
            self._note_missed(found, partition, payload)  # led anew, it should know
            raise
        return begun

    def _judge(self, topic: Topic, config: TopicConfig, partition: int, payload: Buffer) -> "PendingProduce":
        """What a producer sent, judged: who takes it, and as what."""
        try:
            led = self._leading.partition(topic, self._number(topic, partition))
        except NotLeaderError:
            self._note_missed(topic, partition, payload)
            raise
        if self._missed:
            for header, at_ms in self._missed.pop((topic.id, partition), {}).values():
                led.record_missed((header,), at_ms)
        limits = config.limits()
        batches = split_batches(payload, limits=limits)
        for header, _ in batches:
            if header.is_transactional:
                raise InvalidError(
                    "attributes of a batch", "transactional", "not transactional: there are no transactions"
                )
        if config.compacted:
            check_keys(batches, limits=limits)
        append_time_ms = -1
        if config.append_time:
            append_time_ms = self._clock.now_ms()
            batches = _with_append_time(batches, append_time_ms)
        return PendingProduce(led, batches, append_time_ms)

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
        """Whole batches from the one that holds `offset` on; see `Reading.fetch`."""
        led = await self.led(topic, partition)
        return await self._reading.fetch(led, offset, bytes_max=bytes_max, wait_ms=wait_ms, bytes_min=bytes_min)

    async def read(self, led: LeadingPartition, offset: int, *, bytes_max: int) -> FetchedBatches:
        """What a partition led here holds from `offset` on, without waiting."""
        return await self._reading.fetch(led, offset, bytes_max=bytes_max)

    async def fetch_published(
        self, topic: str, partition: int, offset: int, *, bytes_max: int
    ) -> FetchedBatches | None:
        """The same of a partition led elsewhere, as far as it is published; None: `offset` lies beyond that.

        The high watermark it shows is where the published part ends, as far as this process knows.
        """
        found, _ = await self._topic(topic)
        partition_id = PartitionId(topic=topic, topic_id=found.id, number=self._number(found, partition))
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

    async def offset_for_timestamp(self, topic: str, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record at or after a time; EARLIEST, LATEST and MAX_TIMESTAMP as in `reading`."""
        return await self._reading.offset_for_timestamp(await self.led(topic, partition), timestamp_ms)

    async def end_of_epoch(self, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        """Kafka's OffsetForLeaderEpoch."""
        return end_of_epoch(await self.led(topic, partition), epoch)

    async def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Delete everything below `offset` (-1: everything visible); where the partition starts now."""
        return await delete_records(await self.led(topic, partition), offset, self._context)

    async def flush(self, topic: str, partition: int) -> int:
        """Have everything appended so far published; up to where the partition is published then."""
        led = await self.led(topic, partition)
        await led.wait_published()
        return led.record.published

    async def led(self, topic: str, partition: int) -> LeadingPartition:
        """The partition, if it is led here. `NotLeaderError`, `UnknownTopicError`."""
        found, _ = await self._topic(topic)
        return self._leading.partition(found, self._number(found, partition))

    def serving(self, topic: str, partition: int) -> LeadingPartition | None:
        """The partition, if it is known and led here now. No waiting."""
        found = self._leading.topic(topic)
        if found is None or not 0 <= partition < found.partitions:
            return None
        try:
            return self._leading.partition(found, partition)
        except NotLeaderError:
            return None

    async def _topic(self, name: str) -> tuple[Topic, TopicConfig]:
        topic = self._leading.topic(name)
        if topic is None:
            topic = await self.topics.get(name)  # created a moment ago, perhaps elsewhere
        return topic, self._config(topic)

    def _note_missed(self, topic: Topic, partition: int, payload: Buffer) -> None:
        """Remember the first batch a producer sent in vain, for the case that we lead the partition in a moment."""
        if len(payload) < HEADER_BYTES:
            return
        header, now_ms = parse_header(payload), self._clock.now_ms()
        if header.producer_id >= 0:
            noted = self._missed.setdefault((topic.id, partition), {})
            who = (header.producer_id, header.producer_epoch)
            if who not in noted or now_ms - noted[who][1] >= MISSED_MS:
                noted[who] = (header, now_ms)
            if len(noted) > MISSED_MAX:
                del noted[next(iter(noted))]
            if len(self._missed) > MISSED_MAX:
                del self._missed[next(iter(self._missed))]

    def _config(self, topic: Topic) -> TopicConfig:
        known = self._configs.get(topic.name)
        if known is None or known[0] is not topic:
            known = self._configs[topic.name] = (topic, topic.config)
        return known[1]

    def _number(self, topic: Topic, partition: int) -> int:
        if not 0 <= partition < topic.partitions:
            raise UnknownTopicError(f"{topic.name}:{partition}")
        return partition


def _with_append_time(batches: Sequence[RecordBatch], append_time_ms: int) -> list[RecordBatch]:
    """The batches with the log's time, copied unless they may be written to."""
    stamped: list[RecordBatch] = []
    for _, view in batches:
        data = memoryview(bytearray(view)) if view.readonly else view
        set_append_time(data, timestamp_ms=append_time_ms)
        stamped.append(RecordBatch(parse_header(data), data))
    return stamped
