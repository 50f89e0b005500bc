"""One broker, one Spark session and one embedded ClickHouse for all tests of the driver."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.clients.broker import serving
from tests.pipeline.driver.world import World, opened_world
from tests.pipeline.sinks.places import clickhouse, clickhouse_server_process  # noqa: F401 (fixtures)

from holdfast.pipeline.driver.jobs import Jobs
from holdfast.spark.reading.loop import close as close_loop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")  # it lives on the process's loop, which tests of other modules close
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    # Without workers: the claims of these pipelines are the tests' own.
    with serving(tmp_path_factory.mktemp("broker"), "--roles", "api,agent") as broker:
        made, close = opened_world(broker)
        yield made
        close()
        close_loop()


@pytest.fixture(autouse=True)
def ended(request: pytest.FixtureRequest) -> Iterator[None]:
    """Works end as a slot ends them."""
    yield
    if "world" in request.fixturenames:
        request.getfixturevalue("world").close_works()


@pytest.fixture(scope="session")
def jobs(spark: "SparkSession") -> Jobs:
    return Jobs(spark, remote=False)
