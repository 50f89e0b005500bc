"""The maintenance of pipelines while the store is away."""

import pytest
from tests.support.waiting import async_until

from holdfast.contracts.validation import StoreLimits
from holdfast.pipeline.service.service import PipelineService
from holdfast.pipeline.service.settings import ServiceSettings
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SeededRandom


async def test_an_outage_of_the_store_is_logged_once_and_so_is_the_next(caplog: pytest.LogCaptureFixture) -> None:
    clock, random = RealClock(), SeededRandom(3)
    store = FaultyStore(MemoryStore(clock=clock, random=random, limits=StoreLimits()), random=random)
    settings = ServiceSettings(upkeep_interval_ms=100)
    rounds = 0

    class Counting(PipelineService):
        async def maintain(self) -> None:
            nonlocal rounds
            rounds += 1
            await super().maintain()

    async def more_rounds() -> None:
        until = rounds + 2
        await async_until(lambda: rounds >= until)

    async with Counting(store, clock=clock, random=random, settings=settings).running():
        for outage in (1, 2):
            store.reachable = False
            await more_rounds()
            store.reachable = True
            await more_rounds()
            assert len([each for each in caplog.messages if "maintenance failed, retrying" in each]) == outage
