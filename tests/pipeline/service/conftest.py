"""One broker and one ClickHouse for all tests of the service; a store and names of its own for each."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.pipeline_service import PipelineServiceHarness
from tests.support.server_process import ServeProcess, started

from holdfast.stores.urls import open_store
from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    made = ServeProcess(tmp_path_factory.mktemp("broker"), "--roles", "api,agent", "--clickhouse", "off")
    with started(made):
        yield made


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    with clickhouse_server(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server


@pytest.fixture
async def world(node: ServeProcess, clickhouse: ClickHouseServer) -> AsyncIterator[PipelineServiceHarness]:
    async with open_store("memory:", clock=RealClock(), random=SystemRandom()) as store:
        yield PipelineServiceHarness(store, node, clickhouse)
