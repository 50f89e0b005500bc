"""A server with everything behind it: a real broker, a real ClickHouse, a store of its own for each test."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.support.http_gateway import RunningHttpGateway, running_http_gateway
from tests.support.pipeline_service import PipelineServiceHarness
from tests.support.pipeline_service_fixtures import node as node
from tests.support.pipeline_service_fixtures import world as world


@pytest.fixture
async def served() -> AsyncIterator[RunningHttpGateway]:
    """All routes, over an empty store."""
    async with running_http_gateway() as made:
        yield made


@pytest.fixture
async def client(served: RunningHttpGateway) -> httpx.AsyncClient:
    return served.client


@pytest.fixture
async def whole(world: PipelineServiceHarness) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that reaches the world's broker and ClickHouse."""
    async with running_http_gateway(
        store=world.store, bootstrap=world.node.kafka, clickhouse=world.clickhouse.url
    ) as made:
        yield made.client
