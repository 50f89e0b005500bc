"""Dead letters that are replayed and deleted while others pop them, and while there are many."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.heaps import HeapWorld
from tests.support.waiting import async_until

from holdfast.heap.dead_letters import DeadLetterFilter
from holdfast.heap.model import NewMessage, PeekedMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.service import HeapService

pytestmark = pytest.mark.slow

Change = Callable[[HeapService], Coroutine[Any, Any, tuple[int, int, int]]]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


async def dead(world: HeapWorld, count: int) -> HeapService:
    """A heap with so many dead letters."""
    node = await world.node()
    heaps = await world.heap(node)
    messages = [NewMessage(payload=b"%d" % at) for at in range(count)]
    for each in await heaps.enqueue_batch("jobs", messages, partition=0):
        await heaps.move_to_dead_letters("jobs", each.message_id)
    await async_until(lambda: len(world.view(node, "jobs.dlq").state.ready) == count)
    return heaps


@pytest.mark.parametrize(
    "change",
    [
        lambda heaps: heaps.dead_letters.replay("jobs"),
        lambda heaps: heaps.dead_letters.delete("jobs", DeadLetterFilter()),
    ],
    ids=["replay", "delete"],
)
async def test_what_was_leased_meanwhile_stays_with_its_consumer(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    heaps, find = await dead(world, 5), HeapPartition.find_first
    leased: list[bytes] = []

    async def found(view: HeapPartition, offsets: Sequence[int], bytes_max: int) -> tuple[list[PeekedMessage], int]:
        result = await find(view, offsets, bytes_max)
        if not leased:
            leased.extend(each.lease_token for each in await heaps.pop("jobs.dlq", consumer="c", max_messages=3))
        return result

    monkeypatch.setattr(HeapPartition, "find_first", found)
    matched, changed, _ = await change(heaps)
    assert (matched, changed, len(leased)) == (5, 2, 3)
    assert await heaps.ack("jobs.dlq", leased) == [None] * 3


async def test_to_look_for_some_among_many_lets_others_get_on(world: HeapWorld) -> None:
    heaps, turns = await dead(world, 450), 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)  # noqa: TID251 (it is a turn)
            turns += 1

    running = asyncio.ensure_future(others())
    try:
        for look in (
            lambda: heaps.dead_letters.list("jobs", DeadLetterFilter(reason_contains="not there")),
            lambda: heaps.dead_letters.replay("jobs", dry_run=True),
        ):
            turns = 0
            await look()
            assert turns >= 450 // 100
    finally:
        running.cancel()


async def test_letters_are_found_by_their_ids_and_oldest_first(world: HeapWorld) -> None:
    heaps = await dead(world, 250)
    letters = await heaps.dead_letters.list("jobs", limit=250)
    assert [each.payload for each in letters] == [b"%d" % at for at in range(250)]
    chosen = DeadLetterFilter(message_ids=frozenset([letters[240].message_id, letters[7].message_id, "no id"]))
    assert [each.payload for each in await heaps.dead_letters.list("jobs", chosen)] == [b"7", b"240"]
    first = await heaps.dead_letters.replay("jobs", DeadLetterFilter(limit=3))
    rest = DeadLetterFilter(from_offset=first.end_offset, before_offset=first.end_offset + 5)
    assert [each.payload for each in await heaps.dead_letters.list("jobs", rest)] == [b"%d" % at for at in range(3, 8)]
