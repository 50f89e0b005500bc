"""A cluster of kernel agents on the memory store under a fake clock."""

from collections.abc import AsyncIterator

import pytest
from tests.support.kernel_cluster import KernelCluster

from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom


@pytest.fixture
async def world() -> AsyncIterator[KernelCluster]:
    clock = FakeClock()
    async with MemoryStore.open(clock=clock, random=SeededRandom(1)) as store:
        made = KernelCluster(store, clock)
        try:
            yield made
        finally:
            for agent in made.agents.values():
                await agent.stop()
