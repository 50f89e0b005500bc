"""The fixtures `node` and `world` of the pipeline service: one broker per worker, a store and names of its own for each test."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.pipeline_service import PipelineServiceHarness
from tests.support.server_process import BROKER_ONLY, ServeProcess, started

from holdfast.stores.urls import open_store
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    made = ServeProcess(tmp_path_factory.mktemp("broker"), *BROKER_ONLY)
    with started(made):
        yield made


@pytest.fixture
async def world(node: ServeProcess, clickhouse: ClickHouseServer) -> AsyncIterator[PipelineServiceHarness]:
    async with open_store("memory:", clock=RealClock(), random=SystemRandom()) as store:
        yield PipelineServiceHarness(store, node, clickhouse)
