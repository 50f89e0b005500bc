"""A topic as the sink: tasks send what the driver planned, each record once and in order, whoever dies or sleeps."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.driver_cluster import DriverCluster, drain
from tests.support.driver_process import driving
from tests.support.failpoints import FailpointError, FailpointFolder, fail_at
from tests.support.faulty_tasks import FaultyJobs
from tests.support.librdkafka_client import read_all
from tests.support.waiting import until

from holdfast.pipeline.model.definition import Pipeline
from holdfast.registry import RegistryStore
from holdfast.vocabulary import failpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

OUT = 3
ROWS = 2_000
TEXT = "x" * 2_000
"""So that a range is several batches of each partition."""


@pytest.fixture
def faulty(spark: "SparkSession", tmp_path: Path) -> FaultyJobs:
    return FaultyJobs(spark, tmp_path / "failpoints")


def bulky(number: int) -> bytes:
    return b'{"id": %d, "name": "%d-%s", "amount": 0.5}' % (number, number, TEXT.encode())


class Copying:
    """A pipeline from a topic of two partitions into another one."""

    def __init__(self, world: DriverCluster) -> None:
        self.world = world
        self.topic, self.out = world.topic(2), world.broker.create_topic("copy", OUT)
        self.produced = 0
        self.produce()
        self.pipeline: Pipeline = world.pipeline(self.topic, {"kind": "topic", "topic": self.out, "keyColumn": "name"})
        self.registry: RegistryStore = world.registry(self.pipeline, 2)

    def produce(self) -> None:
        for partition in (0, 1):
            self.world.produce(self.topic, map(bulky, range(self.produced, self.produced + ROWS)), partition=partition)
        self.produced += ROWS

    @property
    def ends(self) -> dict[int, int]:
        return dict.fromkeys((0, 1), self.produced)

    def claim(self, consumer: str) -> dict[int, int]:
        return self.world.claim(self.registry, consumer, [0, 1])

    def check(self) -> None:
        """Every record of the source is in the copy once; those that went to one partition from another in their order."""
        by_source: dict[tuple[int, int], list[int]] = {}
        for message in read_all(self.world.broker, self.out, range(OUT)):
            row: dict[str, Any] = json.loads(message.value or b"")
            by_source.setdefault((message.partition, row["_partition"]), []).append(row["_offset"])
        for source in (0, 1):
            offsets = [offset for (_, of), found in by_source.items() if of == source for offset in found]
            assert sorted(offsets) == list(range(self.produced))
        assert all(found == sorted(found) for found in by_source.values())


def test_the_bytes_go_from_tasks_to_brokers_and_the_driver_sends_none(world: DriverCluster, faulty: FaultyJobs) -> None:
    copying, sent_here = Copying(world), []
    with failpoints.installed(lambda name: sent_here.append(name) if name == "spark-sink.round-sent" else None):
        drain(world.work(faulty, copying.pipeline, "ann"), copying.claim("ann"), copying.ends)
    copying.check()
    assert sent_here == []
    assert set(faulty.published) == {2}


def test_a_driver_that_dies_between_plan_and_publishing_is_followed_by_one_that_publishes_the_plan(
    world: DriverCluster, faulty: FaultyJobs
) -> None:
    copying = Copying(world)
    with failpoints.installed(fail_at("spark-sink.planned")), pytest.raises(FailpointError):
        drain(world.work(faulty, copying.pipeline, "ann"), copying.claim("ann"), copying.ends)
    assert faulty.published == []
    drain(world.work(faulty, copying.pipeline, "bob"), copying.claim("bob"), copying.ends)
    copying.check()


def test_a_task_that_is_killed_after_it_sent_is_repeated_without_effect(
    world: DriverCluster, faulty: FaultyJobs
) -> None:
    copying = Copying(world)
    faulty.failpoints.arm("spark-sink.round-sent", "kill")
    drain(world.work(faulty, copying.pipeline, "ann"), copying.claim("ann"), copying.ends)
    assert faulty.failpoints.taken("spark-sink.round-sent", "kill")
    assert len(faulty.published) > 1
    copying.check()


def test_a_task_that_sleeps_while_a_successor_publishes_appends_nothing_when_it_wakes(
    world: DriverCluster, faulty: FaultyJobs
) -> None:
    copying = Copying(world)
    faulty.failpoints.arm("spark-sink.round-sent", "pause")
    ann, bob = world.work(faulty, copying.pipeline, "ann"), world.work(faulty, copying.pipeline, "bob")
    old = copying.claim("ann")
    with ThreadPoolExecutor(1) as pool:
        turn = pool.submit(lambda: until(lambda: ann.turn(old) and not ann.owned, what="ann has noticed"))
        faulty.failpoints.wait_taken("spark-sink.round-sent", "pause")
        new = copying.claim("bob")
        drain(bob, new, copying.ends)
        faulty.failpoints.resume("spark-sink.round-sent", "pause")
        turn.result(120)
    copying.produce()
    drain(bob, new, copying.ends)
    copying.check()


@pytest.mark.long
@pytest.mark.parametrize("step", ["spark-sink.planned", "spark-sink.sent"])
def test_a_driver_that_sleeps_while_a_successor_publishes_appends_nothing_when_it_wakes(
    world: DriverCluster, faulty: FaultyJobs, tmp_path: Path, step: str
) -> None:
    copying = Copying(world)
    folder = FailpointFolder(tmp_path / "zombie")
    folder.arm(step, "pause")
    with driving(world, tmp_path, folder.environment) as zombie:
        zombie.work("ann", copying.pipeline.id, copying.claim("ann"))
        assert folder.wait_taken(step, "pause", within_s=120) == zombie.process.pid
        bob, new = world.work(faulty, copying.pipeline, "bob"), copying.claim("bob")
        drain(bob, new, copying.ends)
        copying.produce()
        zombie.process.send_signal(signal.SIGCONT)
        drain(bob, new, copying.ends)
        until(lambda: zombie.reached("ann") == {}, what="ann has noticed")
        copying.check()
