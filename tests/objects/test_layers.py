"""Layers compose: the contract holds for a cache over retries over counters over an engine that fails a quarter of all calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.contracts.objects import Objects
from holdfast.objects.cache import CacheSettings, cached
from holdfast.objects.counters import CountingObjects, ObjectCounters
from holdfast.objects.memory import MemoryObjects
from holdfast.objects.retry import RetryingObjects, RetrySettings
from holdfast.testing import objects_contract as contract
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.testing.harness import ObjectsHarness
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SeededRandom


class LayeredHarness:
    name = "layers"
    url = ""

    def __init__(self, folder: Path) -> None:
        self._folder, self._clients = folder, 0
        self.counters = ObjectCounters()
        self.faulty = FaultyObjects(MemoryObjects(clock=RealClock()), clock=RealClock(), random=SeededRandom(7))
        self.faulty.fail_share = 0.25

    @asynccontextmanager
    async def client(self, *, deadline_ms: int = 30_000) -> AsyncIterator[Objects]:
        self._clients += 1
        retrying = RetryingObjects(
            CountingObjects(self.faulty, counters=self.counters, clock=RealClock()),
            clock=RealClock(),
            random=SeededRandom(self._clients),
            settings=RetrySettings(deadline_ms=deadline_ms, pause_ms=1, pause_ms_max=5),
            on_retry=self.counters.retried,
        )
        disk = str(self._folder / f"cache-{self._clients}")
        async with cached(retrying, settings=CacheSettings(disk_folder=disk)) as objects:
            yield objects

    def lose_answer_to(self, marker: str) -> None:
        self.faulty.lose_answer_to(marker)

    async def set_reachable(self, reachable: bool) -> None:
        self.faulty.reachable = reachable

    async def restart(self) -> None:
        pass


@pytest.fixture(params=["layers"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture
async def harness(engine: str, tmp_path: Path) -> ObjectsHarness:
    return LayeredHarness(tmp_path)


class TestReads(contract.ObjectReads): ...


class TestListing(contract.ObjectListing): ...


class TestDeletion(contract.ObjectDeletion): ...


class TestWrites(contract.ObjectWrites): ...


async def test_every_failure_was_counted(harness: LayeredHarness, objects: Objects) -> None:
    for n in range(100):
        await objects.put(f"k/{n}", [b"x"])
    totals = harness.counters.of("put")
    assert totals.calls == harness.faulty.calls["put"] > 110
    assert totals.throttled == totals.retries == harness.faulty.faults == totals.calls - 100
