"""A cluster without processes: a real store and objects in memory, and partitions that judge producers as the log does."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.client.producer import OutOfSequenceError
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.log.batches import Record, RecordBatchLimits, decode, split_batches
from holdfast.log.partition.producer_state import ProducerRefusal, ProducerRefusedError, ProducerStates
from holdfast.spark.sink.encoder import SinkTopic
from holdfast.spark.sink.options import SinkOptions
from holdfast.spark.sink.pieces import StagedPieceList, TopicRef, merge_piece_lists
from holdfast.spark.sink.publisher import SinkPublisher, ignore_step
from holdfast.spark.sink.query_state import SEQUENCE_MODULUS
from holdfast.spark.sink.sequences import SequencedBatch, TargetPartition
from holdfast.spark.sink.stager import PieceStager
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SeededRandom

LIMITS = RecordBatchLimits()
TOPIC = SinkTopic("orders", "0" * 31 + "1", 3, 1 << 20, False)


@dataclass
class FakePartition:
    """A log: the batches it took, and what it remembers of producers."""

    batches: list[bytes] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)
    end: int = 0

    def append(self, data: bytes) -> None:
        (batch,) = split_batches(data, limits=LIMITS)
        if self.producers.judge(batch.header) is not None:
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

    def partition(self, lane: TargetPartition) -> FakePartition:
        return self.partitions.setdefault(lane, FakePartition())

    async def init_producer_id(self) -> tuple[int, int]:
        self._producers += 1
        return self._producers, 0

    async def ends(self, target: TopicRef, partitions: Sequence[int]) -> dict[int, int]:
        if self.topic_ids[target.name] != target.id:
            raise InvalidError(f"topic {target.name}", self.topic_ids[target.name], target.id)
        return {number: self.partition(TargetPartition(target, number)).end for number in partitions}

    async def send(self, batches: Sequence[SequencedBatch], *, deadline_ms: int) -> None:
        if self._clock.boot_ms() >= deadline_ms:
            raise UnavailableError("publishing", "the time is up")
        for each in batches:
            self.sent.append(each.data)
            try:
                self.partition(each.lane).append(each.data)
            except ProducerRefusedError as refused:
                if refused.refusal is not ProducerRefusal.DUPLICATE:
                    raise OutOfSequenceError(each.lane.target.name, each.lane.partition, 45) from None
            if self.lose:
                self.lose -= 1
                raise UnavailableError("broker", "the answer was lost")

    async def appended_records(
        self, lane: TargetPartition, *, start: int, producer: tuple[int, int], sequence: int
    ) -> int:
        self.looked.append(lane)
        most, offset = 0, 0
        for data in self.partition(lane).batches:
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

    def __init__(self, store: Store, objects: Objects) -> None:
        self.store, self.objects = store, objects
        self.clock = FakeClock()
        self.random = SeededRandom(7)
        self.brokers = FakeBrokers(self.clock)

    def driver(self, *, on_step: Callable[[str], Awaitable[None]] = ignore_step) -> SinkPublisher:
        return SinkPublisher(
            store=self.store,
            objects=self.objects,
            brokers=self.brokers,
            clock=self.clock,
            random=self.random,
            stall_ms_max=600_000,
            on_step=on_step,
        )

    async def stage(
        self, values: Sequence[str], *, options: SinkOptions | None = None, tasks: int = 2
    ) -> StagedPieceList:
        """Every value as a record whose key it is, by so many tasks."""
        told = options or SinkOptions(topic=TOPIC.name, inline_bytes=0)
        lists = []
        for task in range(tasks):
            stager = PieceStager(
                told, objects=self.objects, find_topic=_find, clock=self.clock, random=self.random, spread=task
            )
            share = values[task::tasks]
            await stager.add(pa.record_batch({"key": pa.array(share), "value": pa.array(share)}))
            lists.append(await stager.finish())
        return merge_piece_lists(lists)

    async def staged_objects(self) -> list[str]:
        return [info.key async for info in self.objects.list("spark/staged/")]


async def _find(name: str) -> SinkTopic:
    assert name == TOPIC.name
    return TOPIC


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:04d}" for number in range(count)]


def encoded(values: Sequence[str]) -> list[bytes]:
    return sorted(value.encode() for value in values)
