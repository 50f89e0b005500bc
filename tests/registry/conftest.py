"""A registry on the engines without a server; on the others in `make test-long`. `test_store` runs on all of them always."""

from collections.abc import AsyncIterator

import pytest
from tests.support.registry import RegistryWorld, world_in_fake_time
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
async def fake_world() -> AsyncIterator[RegistryWorld]:
    async with world_in_fake_time() as made:
        yield made


@pytest.fixture
async def registry(world: RegistryWorld) -> RegistryStore:
    return await world.initialized()
