"""The partitions of one life, put together from the parts of the log so that each part can be told where to die."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tests.log.crash.clients import AGAIN
from tests.log.crash.dying import Steps
from tests.log.crash.work import TERMS, resource_of

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.lease import Held, acquire, release
from holdfast.kernel.session import HeldSession
from holdfast.log.batches import BatchLimits, split
from holdfast.log.partition.attention import Attention
from holdfast.log.partition.leading import LeadingPartition
from holdfast.log.partition.opening import TailElsewhereError, open_partition
from holdfast.log.partition.publishing import Publisher, give_back
from holdfast.log.partition.terms import Place
from holdfast.log.reading import Fetched, Reading
from holdfast.log.settings import LogSettings
from holdfast.log.wal import Wal
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import ClosedError, FencedError

T = TypeVar("T")

PUBLISH_TICK_MS: Final = 15


@dataclass(slots=True, kw_only=True)
class Parts:
    """What a life has."""

    agent: str
    say: Callable[[str], None]
    steps: Steps
    store: Store
    objects: Objects
    wal: Wal
    wal_id: str
    session: HeldSession
    publisher: Publisher
    reading: Reading
    clock: Clock
    chance: Chance
    settings: LogSettings
    attention: Attention[LeadingPartition]


class Leading:
    """What one life leads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._partitions: dict[int, LeadingPartition] = {}

    @property
    def numbers(self) -> Sequence[int]:
        return list(self._partitions)

    def partitions(self) -> Sequence[LeadingPartition]:
        """All of them."""
        return list(self._partitions.values())

    async def append(self, number: int, payload: bytes) -> tuple[int, int]:
        appended = await self._partitions[number].append(split(payload, limits=BatchLimits()))
        return appended.base_offset, appended.end_offset

    async def fetch(self, number: int, offset: int, *, wait_ms: float) -> Fetched:
        return await self._parts.reading.fetch(self._partitions[number], offset, bytes_max=8_192, wait_ms=wait_ms)

    async def take(self, places: Sequence[Place]) -> None:
        """Lead every partition that can be had; those whose tail is elsewhere stay offline."""
        for place in places:
            try:
                led = await self._until_done(lambda place=place: self._open(place))  # type: ignore[misc]
            except TailElsewhereError:
                self._say("offline", place.number)
                continue
            self._partitions[place.number] = led
            self._say("opened", place.number, led.lease.epoch, led.next_offset, led.high_watermark)

    async def _open(self, place: Place) -> LeadingPartition:
        parts, resource = self._parts, resource_of(place)
        while True:
            lease = await acquire(
                parts.store,
                resource,
                holder=parts.agent,
                session=parts.session.id,
                clock=parts.clock,
                chance=parts.chance,
            )
            if not isinstance(lease, Held):
                break
            await parts.clock.sleep_ms(20)
        parts.steps("lease acquired")
        return await open_partition(
            place,
            lease=lease,
            session=parts.session,
            store=parts.store,
            objects=parts.objects,
            wal=parts.wal,
            wal_id=parts.wal_id,
            clock=parts.clock,
            chance=parts.chance,
            settings=parts.settings,
            terms=TERMS[place.number],
            attention=parts.attention,
            steps=parts.steps,
        )

    async def publish_when_due(self) -> None:
        """Roll and publish, until cancelled."""
        parts = self._parts
        while True:
            await parts.attention.wait_ms(parts.clock, PUBLISH_TICK_MS)
            due = [each for each in self.partitions() if each.accepting and self._due(each)]
            if not due:
                continue
            try:
                lost = await parts.publisher.publish(due)
            except AGAIN:
                await parts.clock.sleep_ms(20)
                continue
            for each in lost:
                self._say("lost", each.place.number)
                each.close(FencedError(each.lease.resource, each.lease.epoch, each.lease.epoch + 1))

    def _due(self, partition: LeadingPartition) -> bool:
        since_ms, terms = partition.oldest_unpublished_ms, partition.terms
        old = since_ms is not None and self._parts.clock.boot_ms() - since_ms >= terms.roll_ms
        return partition.demanded or old or partition.unpublished_bytes >= terms.roll_bytes

    async def give_back(self) -> None:
        """Publish everything and give reserved offsets back: each partition could move at once."""
        for partition in self.partitions():
            while not partition.record.clean:
                await self._until_done(lambda: self._parts.publisher.publish(self.partitions()))
                await self._until_done(lambda partition=partition: give_back(partition))  # type: ignore[misc]

    async def until_published(self) -> None:
        """Return when object storage has everything."""
        while any(each.unpublished_bytes for each in self.partitions()):
            await self._parts.clock.sleep_ms(20)

    async def hand_back(self) -> None:
        """The polite end."""
        parts = self._parts
        parts.steps("closing")
        for each in self.partitions():
            each.stop_accepting()
            await each.until_durable()
        parts.steps("drained")
        lost = await self._until_done(lambda: parts.publisher.publish(self.partitions(), closing=True))
        parts.steps("published to the end")
        for each in self.partitions():
            if each not in lost:
                await release(parts.store, each.lease, clock=parts.clock, chance=parts.chance)
                parts.steps("lease released")
                self._say("closed", each.place.number)
            each.close(ClosedError("partition"))

    async def _until_done(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await work()
            except AGAIN:
                await self._parts.clock.sleep_ms(20)

    def _say(self, kind: str, number: int, *words: object) -> None:
        self._parts.say(" ".join(map(str, (kind, self._parts.agent, number, *words))))
