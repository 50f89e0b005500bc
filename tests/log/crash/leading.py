"""What a life does with the partitions it leads: producers that send and send again, readers that look, publication, the end."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tests.log.crash.dying import Steps
from tests.log.crash.history import History
from tests.log.crash.work import TERMS, Sequences, name_in, producers_of, resource_of

from holdfast.contracts.objects import Missing, Objects
from holdfast.contracts.store import Store
from holdfast.kernel.lease import Held, acquire, release
from holdfast.kernel.session import HeldSession
from holdfast.log.batches import BatchLimits, Buffer, Record, decode, split
from holdfast.log.partition.leading import Appended, LeadingPartition
from holdfast.log.partition.opening import TailElsewhereError, open_partition
from holdfast.log.partition.producers import ProducerRefusedError
from holdfast.log.partition.publishing import Publisher, give_back
from holdfast.log.partition.terms import Place
from holdfast.log.segments import SegmentReader
from holdfast.log.settings import LogSettings
from holdfast.log.wal import Wal
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import ClosedError, ExpiredError, FencedError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.tasks import Bell

T = TypeVar("T")

IN_FLIGHT_MAX: Final = 5
PUBLISH_TICK_MS: Final = 15
SLEPT_MS: Final = 500  # a resting loop that comes so late was stopped
AGAIN = (UnavailableError, OutcomeUnknownError)
OVER = (FencedError, ExpiredError, ClosedError)


@dataclass(slots=True, kw_only=True)
class Life:
    """What a life has."""

    agent: str
    quota: int
    say: Callable[[str], None]
    steps: Steps
    store: Store
    objects: Objects
    wal: Wal
    wal_id: str
    session: HeldSession
    publisher: Publisher
    clock: Clock
    chance: Chance
    settings: LogSettings
    history: History
    bell: Bell


class Leading:
    """The partitions of one life."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._partitions: list[LeadingPartition] = []
        self._next: dict[int, int] = {}  # producer → the batch it sends next
        self._looked_ms = life.clock.boot_ms()

    async def take(self, places: Sequence[Place]) -> None:
        """Lead every partition that can be had; those whose tail is elsewhere stay offline."""
        for place in places:
            try:
                partition = await self._until_done(lambda place=place: self._open(place))  # type: ignore[misc]
            except TailElsewhereError:
                self._say("offline", place.number)
                continue
            self._partitions.append(partition)
            for producer in producers_of(place.number):
                self._next[producer] = self._life.history.next_batch(place.number, producer)
            self._say("opened", place.number, partition.lease.epoch, partition.next_offset, partition.high_watermark)

    async def _open(self, place: Place) -> LeadingPartition:
        life = self._life
        while True:
            lease = await acquire(
                life.store,
                resource_of(place),
                holder=life.agent,
                session=life.session.id,
                clock=life.clock,
                chance=life.chance,
            )
            if not isinstance(lease, Held):
                break
            await life.clock.sleep_ms(20)
        life.steps("lease acquired")
        return await open_partition(
            place, lease=lease, session=life.session, store=life.store, objects=life.objects, wal=life.wal,
            wal_id=life.wal_id, clock=life.clock, chance=life.chance, settings=life.settings,
            terms=TERMS[place.number], bell=life.bell, steps=life.steps,
        )  # fmt: skip

    async def publish_when_due(self) -> None:
        """Roll and publish, until cancelled."""
        life = self._life
        while True:
            await life.bell.wait_ms(life.clock, PUBLISH_TICK_MS)
            due = [each for each in self._partitions if each.accepting and self._due(each)]
            if not due:
                continue
            try:
                lost = await life.publisher.publish(due)
            except AGAIN:
                await life.clock.sleep_ms(20)
                continue
            for each in lost:
                self._say("lost", each.place.number)
                each.close(FencedError(each.lease.resource, each.lease.epoch, each.lease.epoch + 1))

    def _due(self, partition: LeadingPartition) -> bool:
        since_ms, terms = partition.oldest_unpublished_ms, partition.terms
        old = since_ms is not None and self._life.clock.boot_ms() - since_ms >= terms.roll_ms
        return partition.demanded or old or partition.unpublished_bytes >= terms.roll_bytes

    def readers(self) -> list[Coroutine[Any, Any, None]]:
        """A reader for each partition, from the first offset on."""
        return [self._follow(each) for each in self._partitions]

    async def _follow(self, partition: LeadingPartition) -> None:
        offset, said = partition.start_offset, -1
        while True:
            watermark = partition.high_watermark
            if watermark != said:
                self._say("watermark", partition.place.number, watermark)
                said = watermark
            try:
                offset = await self._read(partition, offset, watermark, "seen")
                await partition.wait_beyond(offset, 60_000)
            except AGAIN:
                await self._life.clock.sleep_ms(20)
            except OVER:
                return

    async def read_all(self) -> None:
        """Say everything that can be read, and where it ends."""
        self._life.say(f"reading {self._life.agent}")
        for partition in self._partitions:
            end = partition.high_watermark
            await self._read(partition, partition.start_offset, end, "found")
            self._say("ended", partition.place.number, end)

    async def _read(self, partition: LeadingPartition, offset: int, below: int, kind: str) -> int:
        """Say each record in [offset, below); the answer is where to go on."""
        while offset < below:
            batches = await self._batches(partition, offset)
            if not batches:
                break
            for each in batches:
                for header, data in split(each, limits=BatchLimits(), stored=True):
                    for record in decode(data):
                        if offset <= record.offset < below:
                            self._say_record(partition.place.number, record, kind)
                    offset = max(offset, min(below, header.last_offset + 1))
        return below if kind == "found" else offset

    async def _batches(self, partition: LeadingPartition, offset: int) -> Sequence[Buffer]:
        tail = partition.read_tail(offset, bytes_max=8_192)
        if tail is not None:
            return tail
        segment = await partition.segments.find(offset, self._life.objects)
        if segment is None:
            return []
        reader = SegmentReader(self._life.objects, segment.object, segment.start, segment.end)
        found = await reader.read(max(offset, segment.base_offset), 1 << 20)
        if isinstance(found, Missing):
            self._say("missing", partition.place.number, segment.object)
            return []
        return found

    def _say_record(self, number: int, record: Record, kind: str) -> None:
        name = name_in(record.value)
        self._say(kind if name is not None else "wrong", number, record.offset, name or "")

    async def produce_all(self) -> None:
        """Every producer sends its quota."""
        await asyncio.gather(
            *(
                self._produce(each, producer)
                for each in self._partitions
                for producer in producers_of(each.place.number)
            )
        )

    async def _produce(self, partition: LeadingPartition, producer: int) -> None:
        """Send batches in order, a few at a time; after a failure, everything from the first that failed on."""
        sequences = Sequences(producer)
        first = self._next[producer]
        end = first + self._life.quota if self._life.quota else 1 << 60
        while self._next[producer] < end:
            numbers = range(self._next[producer], min(end, self._next[producer] + IN_FLIGHT_MAX))
            answers = await asyncio.gather(
                *(self._send(partition, producer, each, sequences) for each in numbers), return_exceptions=True
            )
            for number, answer in zip(numbers, answers, strict=True):
                if isinstance(answer, OVER):
                    self._say("late", partition.place.number, producer, number, type(answer).__name__)
                    return
                if isinstance(answer, AGAIN):
                    self._say("again", partition.place.number, producer, number)
                    await self._life.clock.sleep_ms(20)
                    break
                if isinstance(answer, ProducerRefusedError):
                    self._say("refused", partition.place.number, producer, number, answer.refusal.replace(" ", "-"))
                    return
                if isinstance(answer, BaseException):
                    raise answer
                self._next[producer] = number + 1
            await self._life.clock.sleep_ms(self._life.chance.jitter(4, share=0.9))

    async def _send(self, partition: LeadingPartition, producer: int, number: int, sequences: Sequences) -> Appended:
        appended = await partition.append(sequences.batch(number))
        self._life.steps("before acknowledging")
        self._say("acked", partition.place.number, producer, number, appended.base_offset, appended.end_offset)
        self._life.steps("acknowledged")
        return appended

    async def give_back(self) -> None:
        """Publish everything and give reserved offsets back: each partition could move at once."""
        for partition in self._partitions:
            while not partition.record.clean:
                await self._until_done(lambda: self._life.publisher.publish(self._partitions))
                await self._until_done(lambda partition=partition: give_back(partition))  # type: ignore[misc]
        self._looked_ms = self._life.clock.boot_ms()

    def slept(self) -> bool:
        """Whether time has passed without us."""
        before, self._looked_ms = self._looked_ms, self._life.clock.boot_ms()
        return self._looked_ms - before >= SLEPT_MS

    async def until_published(self) -> None:
        """Return when object storage has everything."""
        while any(each.unpublished_bytes for each in self._partitions):
            await self._life.clock.sleep_ms(20)

    async def hand_back(self) -> None:
        """The polite end."""
        life = self._life
        life.steps("closing")
        for each in self._partitions:
            each.stop_accepting()
            await each.until_durable()
        life.steps("drained")
        lost = await self._until_done(lambda: life.publisher.publish(self._partitions, closing=True))
        life.steps("published to the end")
        for each in self._partitions:
            if each not in lost:
                await release(life.store, each.lease, clock=life.clock, chance=life.chance)
                life.steps("lease released")
                self._say("closed", each.place.number)
            each.close(ClosedError("partition"))

    async def _until_done(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await work()
            except AGAIN:
                await self._life.clock.sleep_ms(20)

    def _say(self, kind: str, number: int, *words: object) -> None:
        self._life.say(" ".join(map(str, (kind, self._life.agent, number, *words))))
