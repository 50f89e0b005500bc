"""A partition and its spine: what a leader answers before the spine knows, and what it grants when it has no room."""

import asyncio
from typing import Any

import pytest

from holdfast.heap.config import HeapConfig
from holdfast.heap.decisions import HeapRules
from holdfast.heap.growth.growing_partition import GrowingPartition
from holdfast.heap.growth.look_up import LookUp
from holdfast.heap.growth.partition_sets import PartitionSets
from holdfast.heap.lease_token import LeaseToken, heap_mark
from holdfast.heap.model import NewMessage
from holdfast.heap.partition_state import HeapState
from holdfast.heap.payloads import PayloadCache
from holdfast.heap.records import ProducerSequence
from holdfast.heap.settings import HeapSettings
from holdfast.heap.spine.messages import Advert, AdvertAck, Granted, Pop, SpineHello
from holdfast.heap.spine.takers import Taker
from holdfast.log.batches import parse_header
from holdfast.log.errors import NotLeaderError
from holdfast.log.model import OnDurable, PartitionId
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError
from holdfast.vocabulary.random import SeededRandom

MESSAGE = NewMessage(payload=b"x", priority=5, producer=ProducerSequence("p", 0, 1))


class _Log:
    """A log where everything is durable at once, unless it is stuck."""

    partition_id = PartitionId(topic="jobs", topic_id="0" * 32, number=0)
    append_bytes_max = 1 << 20
    start_offset = 0

    def __init__(self, epoch: int = 1) -> None:
        self.next_offset, self.epoch, self.is_replaced = 0, epoch, False
        self.durable_to: int | None = None  # where it is stuck
        self.waiters: list[tuple[int, OnDurable]] = []

    def check_accepting(self) -> None: ...

    async def confirm(self) -> None:
        if self.is_replaced:
            raise NotLeaderError("jobs", 0, reason="a later leader took over")

    def append_now(self, batch: bytes) -> int:
        base = self.next_offset
        self.next_offset += parse_header(batch).last_offset_delta + 1
        return base

    def notify_durable(self, end_offset: int, on_durable: OnDurable) -> None:
        if self.durable_to is None or end_offset <= self.durable_to:
            on_durable(None)
        else:
            self.waiters.append((end_offset, on_durable))

    def stick(self) -> None:
        """Nothing that is appended from here on becomes durable for now."""
        self.durable_to = self.next_offset

    def advance(self, to: int) -> None:
        """Everything below is durable."""
        self.durable_to = to
        waiters, self.waiters = self.waiters, []
        for end_offset, on_durable in waiters:
            self.notify_durable(end_offset, on_durable)

    def fail(self, error: HoldfastError) -> None:
        """What is not durable never will be."""
        for _, on_durable in self.waiters:
            on_durable(error)


class World:
    """A partition with a spine that has the bound 1."""

    def __init__(self, inflight_max: int = 100, settings: HeapSettings | None = None) -> None:
        self.state, self.settings = HeapState("min"), settings or HeapSettings()
        self.rules = HeapRules(topic="jobs", config=HeapConfig(), inflight_max=inflight_max)
        self.log: Any = _Log()
        self.lead()
        self.adverts: list[Advert] = []

    def lead(self) -> None:
        """Another leader has the same log."""
        self.log.epoch += 1
        self.view = GrowingPartition(
            self.log,
            self.state,
            self.rules,
            sets=PartitionSets(2),
            earlier=None,
            payloads=PayloadCache(1 << 20),
            settings=self.settings,
            clock=FakeClock(),
            random=SeededRandom(0),
        )

    async def greet(self, round_: int = 1) -> None:
        self.round = round_
        hello = SpineHello(1, round_, budget=0, fan_out=64, settled=0, partitions=2)
        answer = await self.view.link().hello(hello, self.adverts.append)
        assert isinstance(answer, Advert)
        self.adverts.append(answer)

    def enqueue(self) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.view.enqueue([MESSAGE]))

    @property
    def waiting(self) -> tuple[int, int]:
        """Events that wait for the spine, at both ends of the link."""
        link = self.view.link()
        return len(link._held), len(link._end._budget.waiting)

    async def acknowledge(self) -> None:
        """The spine has every advert."""
        while self.adverts:
            number = max(advert.number for advert in self.adverts)
            self.adverts.clear()
            self.view.link().acknowledged(AdvertAck(1, self.round, self.log.epoch, number))
            await turns()

    async def pop(self, limit: int | None = None) -> Granted:
        pop = Pop(1, self.log.epoch, sequence=2, count=1, limit=limit, bound=1, basis=(0, 0))
        granted, _ = await self.view.link().pop(pop, [Taker(1, "c", 1_000)])
        assert isinstance(granted, Granted)
        return granted


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)  # noqa: TID251


@pytest.mark.parametrize("leader_changes", [False, True])
async def test_an_enqueue_that_is_repeated_waits_for_the_spine_as_the_first_one_does(leader_changes: bool) -> None:
    world = World()
    await world.greet()
    first = world.enqueue()
    await turns()
    if leader_changes:
        world.lead()
        world.adverts.clear()
    again = world.enqueue()
    await turns()
    assert [first.done(), again.done()] == [False, False]
    if leader_changes:
        first.cancel()
        await world.greet()
    await world.acknowledge()
    assert [each.duplicate for each in await again] == [True]


async def test_an_enqueue_that_a_new_partition_looks_up_waits_for_the_spine_as_the_first_one_does() -> None:
    world = World()
    await world.greet()
    first = world.enqueue()
    await turns()
    assert MESSAGE.producer is not None
    found = asyncio.create_task(world.view.look_up(LookUp(3, [MESSAGE.producer])))
    await turns()
    assert [first.done(), found.done()] == [False, False]
    await world.acknowledge()
    assert [each is not None and each.duplicate for each in (await found).enqueued] == [True]
    nobody = await world.view.look_up(LookUp(3, [ProducerSequence("q", 0, 1)]))
    assert nobody.enqueued == [None], "what is not here waits for no spine"


async def test_enqueues_that_were_given_up_leave_nothing_that_waits_for_the_spine() -> None:
    """Also one that is given up before it is durable, and one with new messages beside the repeated one."""
    world = World()
    await world.greet()
    await world.acknowledge()
    new = NewMessage(payload=b"y", priority=6, producer=ProducerSequence("p", 0, 2))
    for calls in ([MESSAGE], [MESSAGE], [MESSAGE, new], [MESSAGE, new]):
        for turns_before in (1, 10):
            given_up = asyncio.create_task(world.view.enqueue(calls))
            for _ in range(turns_before):
                await asyncio.sleep(0)  # noqa: TID251
            given_up.cancel()
            await asyncio.wait({given_up})
    await turns()
    assert world.waiting == (0, 0)
    assert world.adverts, "the spine is told of the messages all the same"
    again = world.enqueue()
    await turns()
    assert not again.done()
    await world.acknowledge()
    assert [each.duplicate for each in await again] == [True]
    assert world.waiting == (0, 0)


async def test_an_enqueue_waits_for_a_spine_that_is_away_for_so_long_and_may_be_repeated_then() -> None:
    """Whoever asked may be gone: a connection that is closed ends no enqueue."""
    world = World(settings=HeapSettings(spine_wait_ms=20))
    await world.greet()
    for _ in range(3):
        with pytest.raises(OutcomeUnknownError, match="20 ms"):
            await world.view.enqueue([MESSAGE])
        await turns()
        assert world.waiting == (0, 0)
    assert len(world.state) == 1
    world.adverts.clear()
    await world.greet(2)
    again = world.enqueue()
    await turns()
    await world.acknowledge()
    assert [each.duplicate for each in await again] == [True]


async def test_the_answer_to_a_pop_tells_what_an_advert_on_its_way_tells() -> None:
    world = World()
    await world.view.enqueue([NewMessage(payload=b"x", priority=each) for each in (5, 6)])
    await turns()
    await world.greet()
    await world.acknowledge()
    better = asyncio.create_task(world.view.enqueue([NewMessage(payload=b"x", priority=4)]))
    await turns()
    granted = await world.pop()
    assert granted.ranks == (world.state.rank(4),), "which the spine takes for the one of priority 5"
    assert granted.advert is not None
    assert granted.advert.ranks == (world.state.rank(5), world.state.rank(6))
    better.cancel()


async def lease_one(world: World) -> "asyncio.Task[Any]":
    """Messages 5 and 6 are told, and a consumer that named the partition leases the first; that is not durable."""
    await world.view.enqueue([NewMessage(payload=b"x", priority=each) for each in (5, 6)])
    await world.greet()
    await world.acknowledge()
    world.log.stick()
    popping = asyncio.create_task(world.view.pop(count=1, consumer="d", visibility_ms=1_000, wait_ms=0))
    await turns()
    return popping


async def test_the_spine_is_told_of_no_state_without_a_message_whose_lease_is_not_durable() -> None:
    """The leader may have been replaced unawares: for its successor the message waits, and others would be popped before it."""
    world = World()
    popping = await lease_one(world)
    leased_to = world.log.next_offset
    better = asyncio.create_task(world.view.enqueue([NewMessage(payload=b"x", priority=4)]))
    await turns()
    assert world.adverts == []
    world.log.advance(leased_to)
    await turns()
    assert [advert.ranks for advert in world.adverts] == [(world.state.rank(4), world.state.rank(6))]
    assert not better.done(), "a message that is new is told before it is durable"
    for call in (popping, better):
        call.cancel()


async def test_nor_by_the_answer_to_a_pop_that_gets_nothing() -> None:
    world = World()
    popping = await lease_one(world)
    nothing = asyncio.create_task(world.pop(limit=world.state.rank(5)))
    await turns()
    assert not nothing.done()
    world.log.advance(world.log.next_offset)
    granted = await nothing
    assert granted.advert is not None
    assert (granted.ranks, granted.advert.ranks) == ((), (world.state.rank(6),))
    await popping


async def test_what_does_not_become_durable_is_never_told() -> None:
    world = World()
    popping = await lease_one(world)
    better = asyncio.create_task(world.view.enqueue([NewMessage(payload=b"x", priority=4)]))
    await turns()
    world.log.fail(NotLeaderError("jobs", 0, reason="a later leader took over"))
    answers = await asyncio.gather(popping, better, return_exceptions=True)
    assert [type(answer) for answer in answers] == [NotLeaderError, NotLeaderError]
    await turns()
    assert world.adverts == []


async def test_a_pop_of_a_partition_without_room_writes_nothing() -> None:
    world = World(inflight_max=0)
    enqueued = world.enqueue()
    await turns()
    assert enqueued.done()
    await world.greet()
    end = world.state.next_offset
    granted = await world.pop()
    assert (granted.ranks, world.state.next_offset) == ((), end)
    assert granted.advert is not None
    assert len(granted.advert.ranks) == 1


async def test_a_leader_that_was_replaced_unawares_tells_a_new_spine_nothing() -> None:
    """Its successor's log does not know of the spine: what it enqueues would be answered without one."""
    world = World()
    world.log.is_replaced = True
    for _ in range(2):  # the epoch is in its own log, the second time
        with pytest.raises(NotLeaderError):
            await world.greet()
        await world.view.enqueue([NewMessage(payload=b"x")])
        await turns()
    assert world.adverts == []


async def test_of_a_lease_of_a_later_leader_it_knows_nothing() -> None:
    world = World()
    later = LeaseToken(0, world.log.epoch + 1, 7, 9, heap_mark(bytes.fromhex("0" * 32)))
    for settle in (world.view.ack([later]), world.view.nack([later]), world.view.extend([later], 1_000)):
        with pytest.raises(NotLeaderError):
            await settle
    (lost,) = await world.view.ack([later._replace(epoch=world.log.epoch)])
    assert lost is not None


async def test_who_says_that_a_lease_is_lost_says_by_which_clock() -> None:
    world = World()
    token = LeaseToken(0, world.log.epoch, 7, 9, heap_mark(bytes.fromhex("0" * 32)))
    for epochs in range(3):
        (lost,) = await world.view.ack([token])
        assert lost is not None
        assert (lost.epochs, lost.now_ms) == (epochs, world.view.now_ms())
        world.lead()
