"""A cluster without processes: a real store and objects in memory, and partitions that judge producers as the log does."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.client.producer import SEQUENCE_MODULUS, OutOfSequenceError, SequencedBatch, TargetPartition, TopicRef
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.objects_owner import ObjectsOwner
from holdfast.log.batches import Record, RecordBatchLimits, decode, split_batches
from holdfast.log.errors import ProducerRefusal, ProducerRefusedError
from holdfast.log.partition.producer_state import ProducerStates
from holdfast.spark.sink.encoder import SinkTopic
from holdfast.spark.sink.options import SinkOptions
from holdfast.spark.sink.pieces import StagedPieceList, merge_piece_lists
from holdfast.spark.sink.publisher import PublishResult, SinkPublisher
from holdfast.spark.sink.stager import PieceStager
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SeededRandom

FAILPOINTS = tuple(f"spark-sink.{step}" for step in ("staged", "planned", "round-sent", "sent", "done", "cleaned"))
LIMITS = RecordBatchLimits()
TOPIC = SinkTopic("orders", "0" * 31 + "1", 3, 1 << 20, False)


class DeadError(Exception):
    """The driver was killed."""


class DieAt:
    """A failpoint handler: dies when `step` is reached for the `time`-th time."""

    def __init__(self, step: str, time: int = 1) -> None:
        self._failpoint, self._left = f"spark-sink.{step}", time

    def __call__(self, failpoint: str) -> None:
        if failpoint == self._failpoint:
            self._left -= 1
            if self._left == 0:
                raise DeadError(failpoint)


@dataclass
class FakePartition:
    """A log: the batches it took, and what it remembers of producers."""

    batches: list[bytes] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)
    end: int = 0

    def append(self, data: bytes) -> None:
        (batch,) = split_batches(data, limits=LIMITS)
        if self.producers.validate(batch.header) is not None:
            return
        self.producers.append(batch.header, self.end, 0)
        self.end += batch.header.count
        self.batches.append(data)

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode(batch)]


class FakeBrokers:
    """Brokers that answer at once. `lose` makes them take what is sent and lose the answer, so many times."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.partitions: dict[TargetPartition, FakePartition] = {}
        self.topic_ids = {TOPIC.name: TOPIC.id}
        self.lose = 0
        self.sent: list[bytes] = []
        self.looked: list[TargetPartition] = []
        self._producers = 0

    def partition(self, target: TargetPartition) -> FakePartition:
        return self.partitions.setdefault(target, FakePartition())

    async def init_producer_id(self) -> tuple[int, int]:
        self._producers += 1
        return self._producers, 0

    async def end_offsets(self, topic: TopicRef, partitions: Sequence[int]) -> dict[int, int]:
        if self.topic_ids[topic.name] != topic.id:
            raise InvalidError(f"id of topic {topic.name}", self.topic_ids[topic.name], topic.id)
        return {number: self.partition(TargetPartition(topic, number)).end for number in partitions}

    async def send(self, batches: Sequence[SequencedBatch], *, deadline_ms: int) -> None:
        if self._clock.boot_ms() >= deadline_ms:
            raise UnavailableError("publishing", "the time is up")
        for each in batches:
            self.sent.append(each.data)
            try:
                self.partition(each.target).append(each.data)
            except ProducerRefusedError as refused:
                if refused.refusal is not ProducerRefusal.DUPLICATE:
                    raise OutOfSequenceError(each.target.topic.name, each.target.partition, 45) from None
            if self.lose:
                self.lose -= 1
                raise UnavailableError("broker", "the answer was lost")

    async def appended_records(
        self, target: TargetPartition, *, start: int, producer: tuple[int, int], sequence: int
    ) -> int:
        self.looked.append(target)
        most, offset = 0, 0
        for data in self.partition(target).batches:
            header = split_batches(data, limits=LIMITS)[0].header
            if offset >= start and (header.producer_id, header.producer_epoch) == producer:
                most = max(most, (header.base_sequence - sequence) % SEQUENCE_MODULUS + header.count)
            offset += header.count
        return most

    def forget_producers(self) -> None:
        """What brokers do about producers that were silent for a day."""
        for partition in self.partitions.values():
            partition.producers = ProducerStates()

    @property
    def values(self) -> list[bytes]:
        """Every value in every partition, sorted."""
        found = [record.value for each in self.partitions.values() for record in each.records]
        return sorted(value for value in found if value is not None)


class SinkWorld:
    """What drivers of one cluster share."""

    def __init__(self, store: Store, objects: Objects, owner: ObjectsOwner) -> None:
        self.store, self.objects, self.owner = store, objects, owner
        self.clock = FakeClock()
        self.random = SeededRandom(7)
        self.brokers = FakeBrokers(self.clock)

    def driver(self) -> SinkPublisher:
        return SinkPublisher(
            store=self.store,
            objects=self.objects,
            producer=self.brokers,
            clock=self.clock,
            random=self.random,
            prefix=self.owner.prefix,
            stall_ms_max=600_000,
        )

    async def publish(
        self, query: str, batch: int, pieces: StagedPieceList, *, at_failpoint: failpoints.Handler
    ) -> PublishResult:
        """Publish with a handler for the publisher's failpoints."""
        with failpoints.installed(at_failpoint):
            return await self.driver().publish(query, batch, pieces)

    async def stage(
        self, values: Sequence[str], *, options: SinkOptions | None = None, tasks: int = 2
    ) -> StagedPieceList:
        """Every value as a record whose key it is, by so many tasks."""
        options = options or SinkOptions(topic=TOPIC.name, inline_bytes=0)
        lists = []
        for task in range(tasks):
            stager = PieceStager(
                options,
                objects=self.objects,
                find_topic=_find,
                clock=self.clock,
                random=self.random,
                prefix=self.owner.prefix,
                spread=task,
            )
            share = values[task::tasks]
            await stager.add(pa.record_batch({"key": pa.array(share), "value": pa.array(share)}))
            lists.append(await stager.finish())
        return merge_piece_lists(lists)

    async def staged_objects(self) -> list[str]:
        return [info.key async for info in self.objects.list(f"{self.owner.prefix}spark/staged/")]


async def _find(name: str) -> SinkTopic:
    assert name == TOPIC.name
    return TOPIC


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:04d}" for number in range(count)]


def encoded(values: Sequence[str]) -> list[bytes]:
    return sorted(value.encode() for value in values)
