"""The writer of a shard: it ends whenever it is told to."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from tests.support.group_coordinators import CoordinatorWorld

from holdfast.contracts.store import Store
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.types import TopicPartition


@pytest_asyncio.fixture
async def world(store: Store) -> AsyncIterator[CoordinatorWorld]:
    made = CoordinatorWorld(store)
    yield made
    await made.end()


async def test_a_writer_that_is_closed_before_its_first_step_ends(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    writer = ann.handler._shards[0].writer
    (unit,) = writer.put_offsets("g", {TopicPartition("orders", 0): None})
    async with asyncio.timeout(10):
        await writer.close(UnavailableError("shard", "it is closed"))
        await unit.done.wait()
    assert isinstance(unit.error, UnavailableError)
    assert not writer.writing
