"""The Objects contract as tests: what `contracts.objects` promises, held against a real engine through its `ObjectsHarness`.

The author of an engine runs it like this (pytest with pytest-asyncio):

    # conftest.py
    import pytest, pytest_asyncio

    pytest.register_assert_rewrite("holdfast.testing.objects_contract")  # before anything imports it

    @pytest_asyncio.fixture
    async def harness():  # a `holdfast.testing.ObjectsHarness` with a fresh namespace
        async with my_engine_harness() as harness:
            yield harness

    @pytest_asyncio.fixture
    async def objects(harness):
        async with harness.client() as objects:
            yield objects

    # test_my_engine.py
    from holdfast.testing import objects_contract as contract

    class TestWrites(contract.ObjectWrites): ...
    class TestReads(contract.ObjectReads): ...
    class TestListing(contract.ObjectListing): ...
    class TestDeletion(contract.ObjectDeletion): ...
    class TestFaults(contract.ObjectFaults): ...
    class TestServers(contract.ObjectServers): ...  # only for an engine whose server can be restarted

The suite depends on the contract, never on an engine.
"""

from holdfast.testing.objects_contract.deletion import ObjectDeletion
from holdfast.testing.objects_contract.faults import ObjectFaults
from holdfast.testing.objects_contract.listing import ObjectListing
from holdfast.testing.objects_contract.reads import ObjectReads
from holdfast.testing.objects_contract.servers import ObjectServers
from holdfast.testing.objects_contract.writes import ObjectWrites

__all__ = [
    "ObjectDeletion",
    "ObjectFaults",
    "ObjectListing",
    "ObjectReads",
    "ObjectServers",
    "ObjectWrites",
]
