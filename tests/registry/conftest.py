"""A registry on the engines without a server; on the others in `make test-long`. `test_store` runs on all of them always."""

import pytest
from tests.support.registry import RegistryWorld
from tests.support.store_engines import SERVERLESS_FIRST

from holdfast.contracts.store import Store
from holdfast.registry import RegistryStore
from holdfast.testing.harness import StoreHarness


@pytest.fixture(params=SERVERLESS_FIRST)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(harness: StoreHarness, store: Store) -> RegistryWorld:
    return RegistryWorld(harness, store)


@pytest.fixture
async def registry(world: RegistryWorld) -> RegistryStore:
    return await world.initialized()
