"""The writer of a shard: it ends whenever it is told to."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from tests.groups.world import World

from holdfast.contracts.store import Store
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.nouns import Partition


@pytest_asyncio.fixture
async def world(store: Store) -> AsyncIterator[World]:
    made = World(store)
    yield made
    await made.end()


async def test_a_writer_that_is_closed_before_its_first_step_ends(world: World) -> None:
    ann = await world.coordinator()
    writer = ann.tenant._shards[0].writer
    (unit,) = writer.put_offsets("g", {Partition("orders", 0): None})
    async with asyncio.timeout(10):
        await writer.close(UnavailableError("shard", "it is closed"))
        await unit.done.wait()
    assert isinstance(unit.error, UnavailableError)
    assert not writer.writing
