"""What is popped next is read from the log together, within a budget, and is no other than what the log has."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.support.heaps import HeapWorld, noted_reads, popped
from tests.support.waiting import async_until

from holdfast.heap import read_ahead
from holdfast.heap.model import NewMessage
from holdfast.heap.packed_heap import PackedHeap
from holdfast.heap.partition import HeapPartition
from holdfast.heap.partition_state import HeapState
from holdfast.heap.read_ahead import AheadBudget, PayloadReadAhead
from holdfast.heap.service import HeapService
from holdfast.heap.settings import HeapSettings

COUNT = 300
ORDER = sorted(range(COUNT), key=lambda at: at * 37 % COUNT)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


async def filled(world: HeapWorld, **settings: int) -> tuple[HeapService, HeapPartition]:
    """A heap whose messages are in the log alone."""
    node = await world.node(heaps=HeapSettings(payload_cache_bytes_max=0, **settings))
    heaps = await world.heap(node)
    for first in range(0, COUNT, 20):
        messages = [NewMessage(payload=b"%d" % at, priority=at * 37 % COUNT) for at in range(first, first + 20)]
        await heaps.enqueue_batch("jobs", messages)
    return heaps, world.view(node)


async def test_a_pop_of_many_has_those_behind_them_read(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    reads = noted_reads(view)
    assert await popped(heaps, 40) == ORDER[:40]
    assert len(reads) <= COUNT // 20, "a batch is read once"
    reads.clear()
    for first in range(40, COUNT, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
    assert reads == []
    assert view._reader.ahead._budget.bytes == 0 == len(view._reader.ahead)


async def test_a_pop_of_few_does_not_wait_for_those_behind_them(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    held = asyncio.Event()
    ahead = view._reader.ahead
    read_next = ahead._read_next

    async def later() -> None:
        await held.wait()
        await read_next()

    ahead._read_next = later  # type: ignore[method-assign]
    assert await popped(heaps, 3) == ORDER[:3]
    held.set()
    await async_until(lambda: len(ahead) >= COUNT - 3)
    assert await popped(heaps, 3) == ORDER[3:6]


async def test_without_a_budget_nothing_is_read_ahead(world: HeapWorld) -> None:
    heaps, view = await filled(world, read_ahead_bytes_max=0)
    assert await popped(heaps, 40) == ORDER[:40]
    assert len(view._reader.ahead) == 0


async def test_a_small_budget_is_not_exceeded_by_more_than_a_batch(world: HeapWorld) -> None:
    heaps, view = await filled(world, read_ahead_bytes_max=20_000)
    for first in range(0, COUNT, 30):
        assert await popped(heaps, 30) == ORDER[first : first + 30]
        assert view._reader.ahead._budget.bytes <= 30_000


async def test_messages_that_are_withdrawn_or_changed_are_no_longer_read_ahead(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    await popped(heaps, 40)
    ids = [each.message_id for each in await heaps.peek("jobs", limit=COUNT)]
    await heaps.cancel("jobs", ids[0])
    await heaps.reprioritise("jobs", ids[-1], -5)
    assert await popped(heaps, 20) == [ORDER[-1], *ORDER[41:60]]
    await heaps.purge("jobs")
    await heaps.enqueue_batch("jobs", [NewMessage(payload=b"%d" % at) for at in range(20)])
    await popped(heaps, 20)
    reading = view._reader.ahead.begin()
    assert reading is not None
    await reading
    assert len(view._reader.ahead) == 0 == view._reader.ahead._budget.bytes


@pytest.mark.parametrize("mode", ["min", "max"])
async def test_a_new_message_that_comes_soon_stays_in_memory_when_there_is_room_for_few(
    world: HeapWorld, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_FIRST": 40, "_ROUND_MAX": 40, "_FARTHER": 1}.items():
        monkeypatch.setattr(read_ahead, name, value)
    node = await world.node(heaps=HeapSettings(payload_cache_bytes_max=0))
    heaps = await world.heap(node, mode=mode)
    sign = 1 if mode == "min" else -1

    async def enqueue(*priorities: int) -> None:
        messages = [NewMessage(payload=b"%d" % each, priority=sign * each) for each in priorities]
        await heaps.enqueue_batch("jobs", messages)

    for first in range(0, COUNT, 20):
        await enqueue(*ORDER[first : first + 20])
    ahead = world.view(node)._reader.ahead
    assert await popped(heaps, 20) == list(range(20))
    await async_until(lambda: ahead._round is None)
    here = len(ahead)
    reads = noted_reads(world.view(node))
    await enqueue(-1, COUNT - 1, -2, COUNT, -3, 20)
    assert len(ahead) == here + 4, "20 is not behind the last one of the round"
    assert await popped(heaps, 5) == [-3, -2, -1, 20, 20]
    assert reads == []
    for first in range(-1_000, -800, 10):  # many are as urgent: no more than a round has
        await enqueue(*range(first, first + 10))
    assert len(ahead) <= 40 + 40 + 10
    assert await popped(heaps, 200) == list(range(-1_000, -800))


async def test_a_leadership_that_ends_gives_its_budget_back(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    await popped(heaps, 40)
    budget = view._reader.ahead._budget
    assert budget.bytes > 0
    view._reader.close()
    assert budget.bytes == 0
    assert view._reader.ahead.begin() is None
    assert view._reader._owner not in view._reader._cache._heirs


async def test_a_round_over_many_messages_lets_others_have_their_turn(world: HeapWorld) -> None:
    _, view = await filled(world)
    looked: list[int] = []
    turns: set[int] = set()
    turn = 0

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)  # noqa: TID251 (no time passes)

    best = list(range(COUNT)) + list(range(1_000_000, 1_010_000))  # far behind the end: nothing to read there

    class Noted(HeapState):
        def place(self, offset: int) -> int:
            looked.append(offset)
            turns.add(turn)
            return offset

        def best_offsets(self, count: int) -> Iterator[list[int]]:
            yield best

    upcoming = Noted("min")
    upcoming.copies = {0: 0}
    upcoming.ready = cast(PackedHeap, set(best))
    ahead = PayloadReadAhead(view.log, AheadBudget(2**30), upcoming, kept=dict)
    neighbour = asyncio.ensure_future(others())
    begun = ahead.begin()
    assert begun is not None
    await begun
    neighbour.cancel()
    assert len(looked) == COUNT + 10_000
    assert len(turns) >= 5, "those that are looked at in one turn are bounded"


async def test_what_is_gone_without_a_word_is_not_kept_by_the_next_round(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    ahead = view._reader.ahead
    await popped(heaps, 40)
    await async_until(lambda: ahead._round is None)
    assert len(ahead) > 200
    for offset in list(ahead._messages)[:100]:
        view.state.ready.discard(offset)
    reading = ahead.begin()
    assert reading is not None
    await reading
    assert set(ahead._messages) == set(view.state.ready.from_offset(0))


async def test_what_is_read_ahead_is_given_up_when_nobody_pops_any_more(world: HeapWorld) -> None:
    heaps, view = await filled(world, spill_idle_ms=100)
    ahead = view._reader.ahead
    await popped(heaps, 40)
    assert len(ahead) > 0
    await async_until(lambda: ahead._budget.bytes == 0)
    assert len(ahead) == 0
    assert await popped(heaps, 40) == ORDER[40:80]
    assert len(ahead) > 0


async def test_what_is_read_ahead_stays_while_somebody_pops(world: HeapWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_LOW", 1)
    heaps, view = await filled(world)
    ahead = view._reader.ahead
    await popped(heaps, 40)
    await async_until(lambda: ahead._round is None)
    here = len(ahead)
    ahead._close_unused()  # the time is over
    assert len(ahead) == 0
    await popped(heaps, 20)
    await async_until(lambda: ahead._round is None)
    assert 0 < len(ahead) < here
    assert await popped(heaps, 10) == ORDER[60:70]
    ahead._close_unused()
    assert len(ahead) > 0, "it was used since the timer was set"


async def test_a_round_for_which_others_have_left_no_room_reads_nothing(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    ahead = view._reader.ahead
    reading = ahead.begin()
    ahead._budget.bytes += 2 * ahead._budget.bytes_max  # a neighbour's batch, before it has begun
    assert reading is not None
    await reading
    ahead._budget.bytes -= 2 * ahead._budget.bytes_max
    assert len(ahead) == 0
    assert await popped(heaps, 40) == ORDER[:40]
