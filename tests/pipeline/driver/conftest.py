"""One broker, one Spark session and one embedded ClickHouse for all tests of the driver."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.support.broker import serving
from tests.support.driver_cluster import DriverCluster, open_driver_cluster
from tests.support.sink_destinations import clickhouse, clickhouse_server_process  # noqa: F401 (fixtures)
from tests.support.spark_kafka import spark_kafka_jars

from holdfast.client.loop_thread import close as close_loop
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.vocabulary.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")  # it lives on the process's loop, which tests of other modules close
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverCluster]:
    # Without workers: the claims of these pipelines are the tests' own.
    with serving(tmp_path_factory.mktemp("broker"), "--roles", "api,agent") as broker:
        made, close = open_driver_cluster(broker)
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
def jobs(spark: "SparkSession") -> SparkJobs:
    return SparkJobs(spark, remote=False)


@pytest.fixture(scope="session")
def connector(spark: "SparkSession") -> None:
    try:
        jars = spark_kafka_jars()
    except UnavailableError as missing:
        pytest.skip(str(missing))
    for jar in jars:
        spark.sql(f"ADD JAR {jar.as_posix()}")
