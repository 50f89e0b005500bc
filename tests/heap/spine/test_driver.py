"""The spine of a heap, driven: pops whose time is over or whose caller is gone, and the end of a spine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import pytest
from tests.support.waiting import async_until

from holdfast.heap.model import PoppedMessage
from holdfast.heap.spine.driver import NO_ROOM_MS, SpineDriver
from holdfast.heap.spine.messages import Advert, AdvertAck, Granted, Pop, Refill, Refused, SpineHello
from holdfast.heap.spine.rank_bound import RankBound
from holdfast.heap.spine.takers import Taken, Taker
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import UnavailableError


class _Leaders:
    """Two partitions, the first with a message; pops are answered by the test."""

    def __init__(self) -> None:
        self.pops: list[tuple[Pop, asyncio.Future[int]]] = []
        self.released: list[bytes] = []
        self.acked: list[int] = []
        self.number = 0
        self.has_room = True

    async def hello(self, partition: int, hello: SpineHello, send_advert: Callable[[Advert], None]) -> Advert | Refused:
        self.number += 1
        ranks = (5,) if partition == 0 else ()
        return Advert(partition, 1, hello.spine_epoch, hello.round, self.number, 0, ranks, complete=True)

    async def pop(self, partition: int, pop: Pop, takers: Sequence[Taker]) -> tuple[Granted | Refused, list[Taken]]:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.pops.append((pop, answer))
        await answer
        if not self.has_room:
            self.number += 1
            advert = Advert(partition, 1, pop.spine_epoch, 1, self.number, 1, (5,), complete=True)
            return Granted(partition, 1, pop.spine_epoch, pop.sequence, 1, (), advert), [Taken()]
        message = PoppedMessage("id", "jobs", 0, b"x", 5, 0, b"token", 0, 0, 0, None, None, ())
        return Granted(partition, 1, pop.spine_epoch, pop.sequence, 1, (5,)), [Taken((message,))]

    def send(self, partition: int, message: AdvertAck | Refill) -> None:
        if isinstance(message, AdvertAck):
            self.acked.append(message.number)

    def release(self, partition: int, tokens: Sequence[bytes]) -> None:
        self.released += tokens


class World:
    def __init__(self) -> None:
        self.leaders, self.clock = _Leaders(), FakeClock()
        self.driver = SpineDriver("jobs", 1, RankBound.split(1, 2), self.leaders, clock=self.clock)
        self.running = asyncio.ensure_future(self.driver.run())

    async def popping(self) -> "asyncio.Task[list[PoppedMessage]]":
        """A pop that waits for its leader."""
        before = len(self.leaders.pops)
        made = asyncio.create_task(self.driver.pop(count=1, consumer="c", visibility_ms=1_000, wait_ms=1_000))
        await async_until(lambda: len(self.leaders.pops) > before)
        return made


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.running.cancel()
    with suppress(asyncio.CancelledError):
        await made.running


async def test_a_pop_whose_time_is_over_ends_when_its_leader_fails(world: World) -> None:
    made = await world.popping()
    world.clock.advance_ms(1_000)
    for _ in range(5):
        await asyncio.sleep(0)  # noqa: TID251
    world.leaders.pops[0][1].set_exception(UnavailableError("leader", "it is gone"))
    assert await asyncio.wait_for(made, 10) == []


@pytest.mark.parametrize("fails", [False, True])
async def test_what_is_leased_to_a_pop_that_was_cancelled_is_given_back(world: World, fails: bool) -> None:
    made = await world.popping()
    made.cancel()
    await asyncio.wait({made})
    if fails:
        world.leaders.pops[0][1].set_exception(UnavailableError("leader", "it is gone"))
        other = await world.popping()
        world.leaders.pops[1][1].set_result(1)
        assert [each.lease_token for each in await other] == [b"token"]
        assert world.leaders.released == []
    else:
        world.leaders.pops[0][1].set_result(1)
        await async_until(lambda: world.leaders.released == [b"token"])


async def test_a_spine_that_ends_tells_those_who_wait_to_ask_the_next_one(world: World) -> None:
    made = await world.popping()
    world.running.cancel()
    with pytest.raises(UnavailableError):
        await made


async def test_a_partition_without_room_is_not_asked_again_at_once(world: World) -> None:
    world.leaders.has_room = False
    made = await world.popping()
    world.leaders.pops[0][1].set_result(1)
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251
    assert len(world.leaders.pops) == 1
    assert world.leaders.acked[-1] == world.leaders.number, "others' answers may wait for it"
    world.leaders.has_room = True
    world.clock.advance_ms(NO_ROOM_MS)
    await async_until(lambda: len(world.leaders.pops) == 2)
    world.leaders.pops[1][1].set_result(1)
    assert [each.lease_token for each in await made] == [b"token"]


async def test_a_spine_that_ends_begins_nothing_any_more(world: World) -> None:
    """A pop that ends with it leaves its demand to others, which are not asked any more."""
    world.leaders.has_room = False
    made = await world.popping()
    world.leaders.pops[0][1].set_result(1)
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251
    world.running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await world.running
    with pytest.raises(UnavailableError):
        await made
    assert len(world.leaders.pops) == 1
