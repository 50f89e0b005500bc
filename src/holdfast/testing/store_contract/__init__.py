"""The Store contract as tests: what `contracts.store` promises, checked on a real engine through its `StoreHarness`.

The author of an engine runs it like this (pytest with pytest-asyncio):

    # conftest.py
    import pytest, pytest_asyncio

    pytest.register_assert_rewrite("holdfast.testing.store_contract")  # before anything imports it

    @pytest_asyncio.fixture
    async def harness():  # a `holdfast.testing.StoreHarness` with a fresh namespace
        async with my_engine_harness() as harness:
            yield harness

    @pytest_asyncio.fixture
    async def store(harness):
        async with harness.client() as store:
            yield store

    # test_my_engine.py
    from holdfast.testing import store_contract as contract

    class TestCommits(contract.StoreCommits): ...
    class TestScans(contract.StoreScans): ...
    class TestRaces(contract.StoreRaces): ...
    class TestSessions(contract.StoreSessions): ...
    class TestExpiry(contract.StoreExpiry): ...
    class TestWatches(contract.StoreWatches): ...
    class TestFaults(contract.StoreFaults): ...
    class TestServers(contract.StoreServers): ...  # only for an engine whose server can be restarted and restored
    class TestLateRequests(contract.StoreLateRequests): ...  # only for an engine reached over TCP
    class TestClosing(contract.StoreClosing): ...

The suite depends on the contract, never on an engine. It waits for conditions, so a slow machine makes it slow, not red;
`timeout_s` on a class limits each wait.
"""

from holdfast.testing.store_contract.close import StoreClosing
from holdfast.testing.store_contract.commits import StoreCommits
from holdfast.testing.store_contract.expiry import StoreExpiry
from holdfast.testing.store_contract.faults import StoreFaults
from holdfast.testing.store_contract.late_requests import StoreLateRequests
from holdfast.testing.store_contract.races import StoreRaces
from holdfast.testing.store_contract.scans import StoreScans
from holdfast.testing.store_contract.servers import StoreServers
from holdfast.testing.store_contract.sessions import StoreSessions
from holdfast.testing.store_contract.watches import StoreWatches

__all__ = [
    "StoreClosing",
    "StoreCommits",
    "StoreExpiry",
    "StoreFaults",
    "StoreLateRequests",
    "StoreRaces",
    "StoreScans",
    "StoreServers",
    "StoreSessions",
    "StoreWatches",
]
