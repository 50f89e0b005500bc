"""A server with everything behind it: a real broker, a real ClickHouse, a store of its own for each test."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.gateways.http.serving import Served, serving
from tests.pipeline.service.conftest import clickhouse as clickhouse
from tests.pipeline.service.conftest import node as node
from tests.pipeline.service.conftest import world as world
from tests.pipeline.service.world import World


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """All routes, over an empty store."""
    async with serving() as made:
        yield made


@pytest.fixture
async def client(served: Served) -> httpx.AsyncClient:
    return served.client


@pytest.fixture
async def whole(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that reaches the world's broker and ClickHouse."""
    async with serving(store=world.store, bootstrap=world.node.kafka, clickhouse=world.clickhouse.url) as made:
        yield made.client
