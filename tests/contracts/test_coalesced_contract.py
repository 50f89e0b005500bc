"""A store that coalesces commits keeps the contract of stores, but for one thing: commits that were merged share a version."""

from collections.abc import AsyncIterator

import pytest

from holdfast.contracts.coalesced_commits import coalescing
from holdfast.contracts.store import Store
from holdfast.testing import store_contract as contract
from holdfast.testing.harness import StoreHarness

pytestmark = pytest.mark.slow


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(harness: StoreHarness) -> AsyncIterator[Store]:
    async with harness.client() as below, coalescing(below) as made:
        yield made


class TestCommits(contract.StoreCommits): ...


class TestScans(contract.StoreScans): ...


class TestRaces(contract.StoreRaces):
    test_versions_follow_commit_order_and_a_watcher_sees_each_once = None  # type: ignore[assignment]  # it counts versions


class TestSessions(contract.StoreSessions): ...


class TestExpiry(contract.StoreExpiry): ...


class TestWatches(contract.StoreWatches):
    test_a_watcher_that_starts_far_behind_catches_up = None  # type: ignore[assignment]  # it counts versions


class TestFaults(contract.StoreFaults): ...
