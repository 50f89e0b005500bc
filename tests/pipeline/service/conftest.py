"""One broker and one ClickHouse for all tests of the service; a store and names of its own for each."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.app.node import Node, started
from tests.pipeline.service.world import World

from holdfast.stores.urls import open_store
from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server
from holdfast.vocabulary.clock import RealChance, RealClock


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("broker"), "--roles", "api,agent", "--clickhouse", "off")
    with started(made):
        yield made


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    with clickhouse_server(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server


@pytest.fixture
async def world(node: Node, clickhouse: ClickHouseServer) -> AsyncIterator[World]:
    async with open_store("memory:", clock=RealClock(), chance=RealChance()) as store:
        yield World(store, node, clickhouse)
