"""Driver processes killed (SIGKILL) at each step of a streaming query, each succeeded by the next: exact against a batch."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.driver.streaming.test_exactly_once import (
    AT_START,
    CLOSING,
    IN_BATCH,
    batch_windows,
    windowed,
)
from tests.support.driver_cluster import DriverCluster
from tests.support.driver_process import driving
from tests.support.failpoints import FailpointFolder
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.stream_pipelines import events, stream_pipeline, stream_sink, windows
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1_200)]


@pytest.mark.parametrize("steps", [IN_BATCH[:4], IN_BATCH[4:], AT_START], ids=["before-inserts", "inserts", "takeover"])
def test_drivers_that_are_killed_at_every_step_lose_and_repeat_nothing(
    steps: tuple[str, ...], world: DriverCluster, spark: "SparkSession", clickhouse: ClickHouseDatabase, tmp_path: Path
) -> None:
    topic = world.topic(1)
    pipeline = stream_pipeline(world, stream_sink(clickhouse), windowed(topic))
    registry = world.registry(pipeline, 1)
    failpoints = FailpointFolder(tmp_path / "failpoints")
    for number, step in enumerate(steps):
        world.produce(topic, events(range(number * 150, number * 150 + 150)))
        folder = tmp_path / step
        folder.mkdir()
        with driving(world, folder, failpoints.environment) as driver:
            failpoints.arm(f"stream.{step}", "kill")
            driver.work(f"w{number}", pipeline.id, world.claim(registry, f"w{number}", [0]))
            failpoints.wait_taken(f"stream.{step}", "kill", within_s=120)
        failpoints.disarm()
    world.produce(topic, CLOSING)
    expected = batch_windows(spark, world, topic)
    last = tmp_path / "last"
    last.mkdir()
    with driving(world, last) as driver:
        driver.work("last", pipeline.id, world.claim(registry, "last", [0]))
        until(lambda: len(windows(clickhouse)) >= len(expected), within_s=120, what="all windows")
    assert windows(clickhouse) == expected
