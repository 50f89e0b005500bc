"""Messages on their way to another heap: wherever that is led, and held up by nobody else's destination."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.heaps import HeapWorld, enqueue
from tests.support.waiting import async_until

from holdfast.heap.records import Move


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    made.cluster.streams = True
    yield made
    await made.end()


async def test_a_destination_that_fails_holds_up_no_other_one(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    await enqueue(heaps, 1, 2)
    view = world.view(node)
    first, second = (offset for _, offset in view.state.ready.peek(2))
    await view.move([Move(first, 1, "gone", 0, 0, ""), Move(second, 2, "jobs.dlq", 0, 0, "")])
    await async_until(lambda: [move.topic for move in view.state.outbox.values()] == ["gone"])
    assert [each.payload for each in await heaps.dead_letters.list("jobs")] == [b"2"]
