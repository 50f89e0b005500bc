"""A cluster in memory."""

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.support.fake_brokers import SinkWorld

from holdfast.kernel.objects_owner import claim_objects
from holdfast.objects.urls import open_objects
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


@pytest_asyncio.fixture
async def world() -> AsyncIterator[SinkWorld]:
    clock, random = RealClock(), SystemRandom()
    async with (
        open_store("memory:", clock=clock, random=random) as store,
        open_objects("memory:", clock=clock, random=random) as objects,
    ):
        yield SinkWorld(store, objects, await claim_objects(store, objects, clock=clock, random=random))
