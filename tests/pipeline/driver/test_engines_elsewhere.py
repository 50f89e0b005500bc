"""The driver with its engine elsewhere: a standalone master with two workers, and a Spark Connect server."""

from pathlib import Path

import pytest
from tests.support.driver_cluster import DriverCluster, event
from tests.support.driver_process import driving
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.spark_servers import connect_server, standalone
from tests.support.waiting import until

from holdfast.pipeline.driver.settings import SparkOptions
from holdfast.pipeline.model.driver_protocol import QuitDriver, SlotFailed, SlotHalted, SlotProgress

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.long]


@pytest.mark.parametrize("engine", ["connect", "standalone"])
def test_a_driver_works_on_another_engine(
    engine: str, world: DriverCluster, clickhouse: ClickHouseDatabase, tmp_path: Path
) -> None:
    topic = world.topic(2)
    for number in (0, 1):
        world.produce(topic, [*map(event, range(300)), b"bad"], partition=number)
    plain = world.pipeline(topic, sink_of(clickhouse, batchSize=200))
    through_sql = world.pipeline(
        topic,
        sink_of(clickhouse, table="thirds", batchSize=200),
        sql={"sql": "select id, name from rows where id % 3 = 0"},
    )
    grouped = world.pipeline(topic, sink_of(clickhouse), sql={"sql": "select max(id) as m from rows group by _offset"})
    with connect_server(tmp_path) if engine == "connect" else standalone(tmp_path) as address:
        spark = SparkOptions(remote=address) if engine == "connect" else SparkOptions(master=address, quick_start=True)
        with driving(world, tmp_path, spark=spark) as driver:
            for slot, pipeline in (("ann", plain), ("bob", through_sql), ("eve", grouped)):
                claims = world.claim(world.registry(pipeline, 2), slot, [0, 1])
                driver.work(slot, pipeline.id, claims)
            until(lambda: driver.reached("ann") == {0: 301, 1: 301}, within_s=150, what="ann is done")
            until(lambda: driver.reached("bob") == {0: 301, 1: 301}, within_s=150, what="bob is done")
            until(lambda: driver.heard(SlotFailed), within_s=100, what="eve's SQL is refused")
            assert [(each.slot, each.lasting) for each in driver.heard(SlotFailed)] == [("eve", True)]
            assert not [each.blocked for each in driver.heard(SlotProgress) if each.slot != "eve" and each.blocked]
            driver.tell(QuitDriver())
            until(lambda: driver.process.poll() is not None, within_s=60, what="it exits")
            assert driver.process.returncode == 0
            assert {each.slot for each in driver.heard(SlotHalted)} == {"ann", "bob"}
    assert totals(clickhouse) == (600, 600, 2 * sum(range(300)))
    assert totals(clickhouse, "thirds") == (200, 200, 2 * sum(range(0, 300, 3)))
    assert totals(clickhouse, "thirds_dlq", "recipe")[:2] == (2, 2)
