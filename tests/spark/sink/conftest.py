"""A cluster in memory."""

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.spark.sink.world import World

from holdfast.objects.urls import open_objects
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealChance, RealClock


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    clock, chance = RealClock(), RealChance()
    async with (
        open_store("memory:", clock=clock, chance=chance) as store,
        open_objects("memory:", clock=clock, chance=chance) as objects,
    ):
        yield World(store, objects)
