"""The same agent over a store and an object storage on disk, as a newcomer runs it."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.cluster import fast_settings
from tests.support.partitions import batch, records
from tests.support.waiting import async_until

from holdfast.agent import Agent, running_agent
from holdfast.objects.urls import open_objects
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


async def started(stack: AsyncExitStack, folder: Path) -> Agent:
    clock, random = RealClock(), SystemRandom()
    store = await stack.enter_async_context(open_store(f"sqlite:///{folder}/store.db", clock=clock, random=random))
    objects = await stack.enter_async_context(open_objects(f"file://{folder}/objects", clock=clock, random=random))
    return await stack.enter_async_context(
        running_agent(fast_settings("ann"), folder / "wal", store=store, objects=objects, clock=clock, random=random)
    )


@pytest.mark.slow
async def test_sqlite_and_a_folder_keep_everything_across_a_restart(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        agent = await started(stack, tmp_path)
        await agent.service.create_topic("orders", 2)
        await async_until(lambda: len(agent.leading) == 2)
        payloads = [batch(*(f"{number}/{at}" for at in range(10))) for number in range(50)]
        await asyncio.gather(
            *(agent.service.produce("orders", number % 2, each) for number, each in enumerate(payloads))
        )
        assert await agent.service.flush("orders", 0) == 250
    async with AsyncExitStack() as stack:
        again = await started(stack, tmp_path)
        await async_until(lambda: len(again.leading) == 2)
        for partition in (0, 1):
            fetched = await again.service.fetch("orders", partition, 0, bytes_max=1 << 24)
            found = records(fetched.batches)
            assert [offset for offset, _ in found] == list(range(250))
            assert {value for _, value in found} == {
                f"{number}/{at}" for number in range(partition, 50, 2) for at in range(10)
            }
