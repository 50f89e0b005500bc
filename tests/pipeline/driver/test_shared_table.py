"""Two pipelines that read one topic into one table: each writes every record once, whatever stops them."""

import pytest
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.failpoints import FailpointError, fail_at
from tests.support.sink_destinations import ClickHouseDatabase, sink_of

from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.vocabulary import failpoints

pytestmark = pytest.mark.spark


@pytest.mark.long  # without Spark, the same is in sinks/test_contract.py
def test_a_successor_writes_its_range_although_another_pipeline_has_written_the_same_offsets(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, [*map(event, range(300)), b"{"])
    one, other = world.pipeline(topic, sink_of(clickhouse)), world.pipeline(topic, sink_of(clickhouse))
    drain(world.work(jobs, one, "ann"), world.claim(world.registry(one, 1), "ann", [0]), {0: 301})
    registry = world.registry(other, 1)
    with failpoints.installed(fail_at("pipeline.begun")), pytest.raises(FailpointError):
        drain(world.work(jobs, other, "bob"), world.claim(registry, "bob", [0]), {0: 301})
    drain(world.work(jobs, other, "cid"), world.claim(registry, "cid", [0]), {0: 301})
    for table, rows in (("orders", 300), ("orders_dlq", 1)):
        found = clickhouse.ask(
            f"SELECT _pipeline AS p, count() AS n, uniqExact(_offset) AS d FROM {clickhouse.database}.{table} GROUP BY p"
        )
        assert {row["p"]: (int(row["n"]), int(row["d"])) for row in found} == {
            one.id: (rows, rows),
            other.id: (rows, rows),
        }
