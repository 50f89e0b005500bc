"""A server with everything behind it: a real broker, a real ClickHouse, a store of its own for each test."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.pipeline.service.conftest import clickhouse as clickhouse
from tests.pipeline.service.conftest import node as node
from tests.pipeline.service.conftest import world as world
from tests.support.http_gateway import RunningHttpGateway, running_http_gateway
from tests.support.pipeline_service import PipelineServiceHarness


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
