"""A cluster of workers under a fake clock for each test."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.support.worker_cluster import WorkerCluster

from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom


@pytest.fixture
async def world() -> AsyncIterator[WorkerCluster]:
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(MemoryStore.open(clock=clock, random=SeededRandom(1)))
        made = WorkerCluster(store, clock, SeededRandom(7))
        try:
            yield made
        finally:
            await made.dismiss()
