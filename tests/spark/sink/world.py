"""A cluster without processes: a real store and objects in memory, and partitions that judge producers as the log does."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.log.batches import BatchLimits, Record, decode, split
from holdfast.log.partition.producers import ProducerRefusedError, Producers, Refusal
from holdfast.spark.sink.brokers import SupersededError
from holdfast.spark.sink.encoding import Topic
from holdfast.spark.sink.lanes import Lane, Numbered
from holdfast.spark.sink.ledger import SEQUENCES
from holdfast.spark.sink.options import SinkOptions
from holdfast.spark.sink.pieces import PieceList, Target, joined
from holdfast.spark.sink.publishing import Publisher, nothing
from holdfast.spark.sink.staging import Stager
from holdfast.vocabulary.clock import FakeClock, SeededChance
from holdfast.vocabulary.errors import InvalidError, UnavailableError

LIMITS = BatchLimits()
TOPIC = Topic("orders", "0" * 31 + "1", 3, 1 << 20, False)


@dataclass
class Partition:
    """A log: the batches it took, and what it remembers of producers."""

    batches: list[bytes] = field(default_factory=list)
    producers: Producers = field(default_factory=Producers)
    end: int = 0

    def append(self, data: bytes) -> None:
        (batch,) = split(data, limits=LIMITS)
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
        self.partitions: dict[Lane, Partition] = {}
        self.topic_ids = {TOPIC.name: TOPIC.id}
        self.lose = 0
        self.sent: list[bytes] = []
        self.looked: list[Lane] = []
        self._producers = 0

    def partition(self, lane: Lane) -> Partition:
        return self.partitions.setdefault(lane, Partition())

    async def new_producer(self) -> tuple[int, int]:
        self._producers += 1
        return self._producers, 0

    async def ends(self, target: Target, partitions: Sequence[int]) -> dict[int, int]:
        if self.topic_ids[target.name] != target.id:
            raise InvalidError(f"topic {target.name}", self.topic_ids[target.name], target.id)
        return {number: self.partition(Lane(target, number)).end for number in partitions}

    async def send(self, batches: Sequence[Numbered], *, deadline_ms: int) -> None:
        if self._clock.boot_ms() >= deadline_ms:
            raise UnavailableError("publishing", "the time is up")
        for each in batches:
            self.sent.append(each.data)
            try:
                self.partition(each.lane).append(each.data)
            except ProducerRefusedError as refused:
                if refused.refusal is not Refusal.DUPLICATE:
                    raise SupersededError(each.lane.target.name, each.lane.partition, 45) from None
            if self.lose:
                self.lose -= 1
                raise UnavailableError("broker", "the answer was lost")

    async def standing(self, lane: Lane, *, start: int, producer: tuple[int, int], sequence: int) -> int:
        self.looked.append(lane)
        most, offset = 0, 0
        for data in self.partition(lane).batches:
            header = split(data, limits=LIMITS)[0].header
            if offset >= start and (header.producer_id, header.producer_epoch) == producer:
                most = max(most, (header.base_sequence - sequence) % SEQUENCES + header.count)
            offset += header.count
        return most

    def forget_producers(self) -> None:
        """What brokers do about producers that were silent for a day."""
        for partition in self.partitions.values():
            partition.producers = Producers()

    @property
    def values(self) -> list[bytes]:
        """Every value in every partition, sorted."""
        found = [record.value for each in self.partitions.values() for record in each.records]
        return sorted(value for value in found if value is not None)


class World:
    """What drivers of one cluster share."""

    def __init__(self, store: Store, objects: Objects) -> None:
        self.store, self.objects = store, objects
        self.clock = FakeClock()
        self.chance = SeededChance(7)
        self.brokers = FakeBrokers(self.clock)

    def driver(self, *, on_step: Callable[[str], Awaitable[None]] = nothing) -> Publisher:
        return Publisher(
            store=self.store,
            objects=self.objects,
            brokers=self.brokers,
            clock=self.clock,
            chance=self.chance,
            stall_ms_max=600_000,
            on_step=on_step,
        )

    async def stage(self, values: Sequence[str], *, options: SinkOptions | None = None, tasks: int = 2) -> PieceList:
        """Every value as a record whose key it is, by so many tasks."""
        told = options or SinkOptions(topic=TOPIC.name, inline_bytes=0)
        lists = []
        for task in range(tasks):
            stager = Stager(
                told, objects=self.objects, find_topic=_find, clock=self.clock, chance=self.chance, spread=task
            )
            share = values[task::tasks]
            await stager.add(pa.record_batch({"key": pa.array(share), "value": pa.array(share)}))
            lists.append(await stager.finish())
        return joined(lists)

    async def staged_objects(self) -> list[str]:
        return [info.key async for info in self.objects.list("spark/staged/")]


async def _find(name: str) -> Topic:
    assert name == TOPIC.name
    return TOPIC


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:04d}" for number in range(count)]


def encoded(values: Sequence[str]) -> list[bytes]:
    return sorted(value.encode() for value in values)
