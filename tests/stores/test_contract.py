"""Every engine against the contract, on real servers."""

from contextlib import AbstractAsyncContextManager

import pytest
from tests.support.store_engines import STORE_ENGINES

from holdfast.contracts.store import Store
from holdfast.stores.urls import open_store
from holdfast.testing import store_contract as contract
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


class TestCommits(contract.StoreCommits): ...


class TestScans(contract.StoreScans): ...


class TestRaces(contract.StoreRaces): ...


class TestSessions(contract.StoreSessions): ...


class TestExpiry(contract.StoreExpiry): ...


class TestWatches(contract.StoreWatches): ...


class TestFaults(contract.StoreFaults): ...


@pytest.mark.parametrize("engine", [engine for engine in STORE_ENGINES if engine != "memory"])
class TestServers(contract.StoreServers): ...


@pytest.mark.parametrize("engine", ["postgres", "etcd", "redis"])
class TestLateRequests(contract.StoreLateRequests): ...


class TestClosing(contract.StoreClosing):
    def opening(self, harness: StoreHarness) -> AbstractAsyncContextManager[Store]:
        if harness.url:
            return harness.client()
        # The clients of the memory harness share one store that outlives them: close one of our own instead.
        return open_store("memory:", clock=RealClock(), random=SystemRandom())
