"""The driver's process end to end: it works, stops at its claims' end, and takes everything along when it goes."""

from pathlib import Path

import pytest
from tests.support.driver_cluster import DriverCluster, event
from tests.support.driver_process import alive, children, driving
from tests.support.failpoints import FailpointFolder
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.waiting import until

from holdfast.client.loop_thread import run
from holdfast.pipeline.model.driver_protocol import (
    DriverAlive,
    HaltSlot,
    PartitionsReleased,
    QuitDriver,
    RunSlot,
    SlotClaims,
    SlotFailed,
    SlotHalted,
    SlotProgress,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_drivers_life(world: DriverCluster, clickhouse: ClickHouseDatabase, tmp_path: Path) -> None:
    """One process, because a JVM takes long to start: slots side by side, moving partitions, a pause, a halt, a quit."""
    topic = world.topic(3)
    for number in range(3):
        world.produce(topic, map(event, range(400)), partition=number)
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 3)
    failpoints = FailpointFolder(tmp_path / "failpoints")
    with driving(world, tmp_path, failpoints.environment) as driver:
        ann, bob = world.claim(registry, "ann", [0, 1]), world.claim(registry, "bob", [2])
        driver.work("ann", pipeline.id, ann)
        driver.work("bob", pipeline.id, bob)
        until(lambda: driver.reached("ann") == {0: 400, 1: 400}, within_s=60, what="ann is done")
        until(lambda: driver.reached("bob") == {2: 400}, within_s=60, what="bob is done")
        assert totals(clickhouse) == (1_200, 1_200, 3 * sum(range(400)))

        # A partition leaves a slot and joins another, and nobody restarts.
        driver.work("ann", pipeline.id, {0: ann[0]}, run=False)
        until(lambda: driver.heard(PartitionsReleased), what="ann lets go")
        assert driver.heard(PartitionsReleased)[-1] == PartitionsReleased(slot="ann", epochs={"1": ann[1]})
        bob |= world.claim(registry, "bob", [1])
        driver.work("bob", pipeline.id, bob, run=False)
        world.produce(topic, map(event, range(400, 450)), partition=1)
        until(lambda: driver.reached("bob").get(1) == 450, within_s=60, what="bob goes on")

        # A task is killed between its insert and its answer: the range is written again, and is there once.
        failpoints.arm("pipeline.inserted", "kill")
        world.produce(topic, map(event, range(400, 500)), partition=0)
        failpoints.wait_taken("pipeline.inserted", "kill")
        driver.work("ann", pipeline.id, {0: ann[0]}, run=False)
        until(lambda: driver.reached("ann").get(0) == 500, within_s=60, what="ann is done again")

        # Claims that end are not worked for: what comes then waits for the next ones.
        driver.lapse("ann")
        driver.tell(RunSlot(slot="eve", pipeline_id="nowhere", generation=1))
        driver.tell(SlotClaims(slot="eve", epochs={"0": 1}, until_ms=world.clock.boot_ms() + 60_000))
        blocked = "eve is blocked, and the driver has read what it was told before"
        until(
            lambda: [each for each in driver.heard(SlotProgress) if each.slot == "eve" and each.blocked], what=blocked
        )
        world.produce(topic, map(event, range(500, 520)), partition=0)
        before = len(driver.heard(SlotProgress))
        until(lambda: len(driver.heard(SlotProgress)) > before + 1, what="two more reports")
        assert totals(clickhouse)[0] == 1_200 + 50 + 100
        driver.work("ann", pipeline.id, {0: ann[0]}, run=False)
        until(lambda: driver.reached("ann").get(0) == 520, within_s=60, what="ann goes on")

        driver.tell(HaltSlot(slot="bob"))
        until(lambda: SlotHalted(slot="bob") in driver.hear(), what="bob halts")
        assert len(driver.heard(DriverAlive)) > 3
        assert not driver.heard(SlotFailed)
        family = children(driver.process.pid)
        assert family
        driver.tell(QuitDriver())
        until(lambda: driver.process.poll() is not None, within_s=60, what="it exits")
        assert driver.process.returncode == 0
        until(lambda: not any(map(alive, family)), what="nobody of it is left")
    assert totals(clickhouse) == (1_370, 1_370, sum(range(520)) + sum(range(450)) + sum(range(400)))
    assert run(registry.checkpoint(0)) == 520


@pytest.mark.long
def test_a_driver_whose_worker_is_gone_stops_at_once(world: DriverCluster, tmp_path: Path) -> None:
    with driving(world, tmp_path) as driver:
        family = children(driver.process.pid)
        assert driver.process.stdin is not None
        driver.process.stdin.close()
        until(lambda: driver.process.poll() is not None, within_s=10, what="it exits")
        until(lambda: not any(map(alive, family)), within_s=15, what="nobody of it is left")
