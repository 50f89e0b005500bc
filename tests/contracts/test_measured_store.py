"""A measured store answers as the one below it, and counts calls, errors and lost races."""

from collections.abc import AsyncIterator

import pytest

from holdfast.contracts.measured_store import MeasuredStore, StoreCounters
from holdfast.contracts.store import Absent, Conflict, Put, Store
from holdfast.testing import store_contract as contract
from holdfast.testing.faulty_store import FaultyStore
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SeededRandom


@pytest.fixture(params=["memory"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(harness: StoreHarness) -> AsyncIterator[Store]:
    async with harness.client() as below:
        yield MeasuredStore(below, StoreCounters())


class TestCommits(contract.StoreCommits): ...


class TestSessions(contract.StoreSessions): ...


class TestWatches(contract.StoreWatches): ...


async def test_calls_errors_and_lost_races_are_counted(harness: StoreHarness) -> None:
    async with harness.client() as below:
        away = FaultyStore(below, random=SeededRandom(1))
        counters = StoreCounters()
        store = MeasuredStore(away, counters)
        create = {"require": [Absent("a")], "apply": [Put("a", b"1")]}
        await store.commit(**create)  # type: ignore[arg-type]
        assert isinstance(await store.commit(**create), Conflict)  # type: ignore[arg-type]
        await store.get("a")
        away.reachable = False
        with pytest.raises(UnavailableError):
            await store.get("a")
    assert {operation: each.count for operation, each in counters.latencies.items()} == {"commit": 2, "get": 2}
    assert (counters.conflicts, counters.errors) == (1, {"get": 1})
