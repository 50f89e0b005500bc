"""The log as its faces use it: topics, produce, fetch, offsets, deleting records. Every face calls this, and none goes around it.

What it does itself is judging: limits, keys of compacted topics, the log's own time. Leading, publishing and upkeep are the
agent's; a partition somebody else leads is a `NotLeaderError`, and the face redirects or forwards.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from holdfast.log.batches import Batch, BatchHeader, Buffer, parse_header, set_append_time, split
from holdfast.log.batches.header import HEADER_BYTES
from holdfast.log.partition.leading import ALL, LEADER, NONE, Appended, LeadingPartition
from holdfast.log.partition.producers import MISSED_MAX, MISSED_MS
from holdfast.log.partition.terms import Place
from holdfast.log.published import PublishedLog
from holdfast.log.reading import Fetched, Reading, end_of_epoch
from holdfast.log.segments import Reached
from holdfast.log.topic_config import TopicConfig
from holdfast.log.topics import Topic, Topics, UnknownTopicError
from holdfast.log.upkeep import Kit, check_keys, delete_records
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


class Leading(Protocol):
    """What this process knows of topics, and leads."""

    def topic(self, name: str) -> Topic | None:
        """The topic, as far as it is known here: a new one may be missing for a moment."""
        ...

    def partition(self, topic: Topic, number: int) -> LeadingPartition:
        """The partition if it is led here. `NotLeaderError`."""
        ...


@dataclass(frozen=True, slots=True)
class Produced:
    """What a producer is told. `append_time_ms` is -1 unless the log gave the records their time."""

    base_offset: int
    end_offset: int
    start_offset: int
    append_time_ms: int = -1
    duplicate: bool = False


@dataclass(slots=True)
class Producing:
    """Batches on their way into a partition; `appended` once they have their offsets."""

    led: LeadingPartition
    batches: Sequence[Batch]
    append_time_ms: int
    appended: Appended | None = None

    async def finish(self, *, acks: int) -> Produced:
        """Return once they are as durable as `acks` asks for. Raises what `LogService.produce` raises."""
        led, appended = self.led, self.appended
        if appended is None:
            appended = await led.append(self.batches, acks=acks)
        else:
            await led.acknowledged(appended, acks=acks)
        return self._produced(appended)

    def tell(self, told: Callable[[Produced | BaseException], None], *, acks: int) -> None:
        """`finish` for what is `appended`, without a task: `told` hears what it would return, or raise."""
        appended = self.appended
        assert appended is not None
        self.led.tell(appended, lambda error: told(self._produced(appended) if error is None else error), acks=acks)

    def _produced(self, appended: Appended) -> Produced:
        return Produced(
            appended.base_offset, appended.end_offset, self.led.start_offset, self.append_time_ms, appended.duplicate
        )


class LogService:
    """The log of one process."""

    def __init__(
        self,
        leading: Leading,
        *,
        topics: Topics,
        reading: Reading,
        kit: Kit,
        clock: Clock,
        directory: Path | None = None,
    ) -> None:
        self.topics = topics
        self.directory = directory  # where what is not published yet is kept; None: this process keeps nothing
        self._leading, self._reading, self._kit, self._clock = leading, reading, kit, clock
        self._configs: dict[str, tuple[Topic, TopicConfig]] = {}
        self._missed: dict[
            tuple[str, int], dict[tuple[int, int], tuple[BatchHeader, int]]
        ] = {}  # sent while it was not led here
        self._published: dict[Place, PublishedLog] = {}  # those read lately that others lead

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

    async def produce(self, topic: str, partition: int, payload: Buffer, *, acks: int = ALL) -> Produced:
        """Append the batches of `payload`, all or none, and return once they are as durable as `acks` asks for.

        `InvalidError` (also `InvalidBatchError`, `ProducerRefusedError`): nothing was appended, and never will be.
        `UnavailableError`, `NotLeaderError`: nothing was appended, try again. Otherwise what became of it is not known.
        """
        if acks not in (ALL, LEADER, NONE):
            raise InvalidError("acks", acks, f"{NONE}, {LEADER} or {ALL}")
        found, config = await self._topic(topic)
        return await self._judge(found, config, partition, payload).finish(acks=acks)

    def begin_produce(self, topic: str, partition: int, payload: Buffer) -> "Producing | None":
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

    def _judge(self, topic: Topic, config: TopicConfig, partition: int, payload: Buffer) -> "Producing":
        """What a producer sent, judged: who takes it, and as what."""
        try:
            led = self._leading.partition(topic, self._number(topic, partition))
        except NotLeaderError:
            self._note_missed(topic, partition, payload)
            raise
        if self._missed:
            for header, at_ms in self._missed.pop((topic.id, partition), {}).values():
                led.missed((header,), at_ms)
        limits = config.limits()
        batches = split(payload, limits=limits)
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
            batches = _stamped(batches, append_time_ms)
        return Producing(led, batches, append_time_ms)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int = 1 << 20,
        wait_ms: float = 0,
        bytes_min: int = 1,
    ) -> Fetched:
        """Whole batches from the one that holds `offset` on; see `Reading.fetch`."""
        led = await self.led(topic, partition)
        return await self._reading.fetch(led, offset, bytes_max=bytes_max, wait_ms=wait_ms, bytes_min=bytes_min)

    async def read(self, led: LeadingPartition, offset: int, *, bytes_max: int) -> Fetched:
        """What a partition led here holds from `offset` on, without waiting."""
        return await self._reading.fetch(led, offset, bytes_max=bytes_max)

    async def fetch_published(self, topic: str, partition: int, offset: int, *, bytes_max: int) -> Fetched | None:
        """The same of a partition led elsewhere, as far as it is published; None: `offset` lies beyond that.

        The high watermark it shows is where the published part ends, as far as this process knows.
        """
        found, _ = await self._topic(topic)
        place = Place(topic=topic, topic_id=found.id, number=self._number(found, partition))
        log = self._published.pop(place, None) or await PublishedLog.open(
            place, store=self._kit.store, clock=self._clock
        )
        self._published[place] = log  # the youngest again
        while len(self._published) > _PUBLISHED_MAX:
            del self._published[next(iter(self._published))]
        if offset >= log.high_watermark:
            await log.refresh()
            if offset >= log.high_watermark:
                return None
        return await self._reading.fetch(log, offset, bytes_max=bytes_max)

    async def offset_for_timestamp(self, topic: str, partition: int, timestamp_ms: int) -> Reached | None:
        """The first record at or after a time; EARLIEST, LATEST and MAX_TIMESTAMP as in `reading`."""
        return await self._reading.offset_for_timestamp(await self.led(topic, partition), timestamp_ms)

    async def end_of_epoch(self, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        """Kafka's OffsetForLeaderEpoch."""
        return end_of_epoch(await self.led(topic, partition), epoch)

    async def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Delete everything below `offset` (-1: everything visible); where the partition starts now."""
        return await delete_records(await self.led(topic, partition), offset, self._kit)

    async def flush(self, topic: str, partition: int) -> int:
        """Have everything appended so far published; up to where the partition is published then."""
        led = await self.led(topic, partition)
        await led.until_published()
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


def _stamped(batches: Sequence[Batch], append_time_ms: int) -> list[Batch]:
    """The batches with the log's time, copied unless they may be written to."""
    stamped: list[Batch] = []
    for _, view in batches:
        data = memoryview(bytearray(view)) if view.readonly else view
        set_append_time(data, timestamp_ms=append_time_ms)
        stamped.append(Batch(parse_header(data), data))
    return stamped
