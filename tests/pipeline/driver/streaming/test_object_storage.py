"""State and checkpoints in object storage: an S3 server has all of them, and the disks of owners are lost with their machines."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.driver.streaming.test_exactly_once import AT_START, CLOSING, IN_BATCH, batch_windows, windowed
from tests.support.broker import serving
from tests.support.driver_cluster import DriverCluster, open_driver_cluster
from tests.support.driver_process import DriverProcess, driving
from tests.support.failpoints import FailpointFolder
from tests.support.object_engines.s3 import s3_url
from tests.support.object_engines.seaweedfs import SeaweedServer
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.stream_pipelines import StreamSlot, events, stream_pipeline, stream_sink, windows
from tests.support.waiting import until

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import close as close_loop
from holdfast.client.loop_thread import run
from holdfast.objects.urls import open_objects
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.streaming.local_folder import PREFIX, LocalFolder
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a cold JVM on a busy machine


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverCluster]:
    """A cluster whose objects are on an S3 server."""
    with SeaweedServer(tmp_path_factory.mktemp("seaweedfs")).running() as server:
        objects, folder = s3_url(server.port, "cluster"), tmp_path_factory.mktemp("broker")
        with serving(folder, "--roles", "api,agent", "--objects", objects) as broker:
            address = ClusterAddress(
                bootstrap=broker.bootstrap, store=f"sqlite:///{folder}/data/store.db", objects=objects
            )
            made, close = open_driver_cluster(broker, address)
            yield made
            close()
            close_loop()


def object_keys(world: DriverCluster, part: str) -> list[str]:
    async def listed() -> list[str]:
        url = world.cluster_address.objects
        async with open_objects(url, clock=RealClock(), random=SystemRandom()) as objects:
            return [info.key async for info in objects.list("") if part in info.key]

    return run(listed())


def lose_disk(slot: StreamSlot) -> None:
    local = slot.processor._local
    assert local is not None
    shutil.rmtree(local.path)


@pytest.mark.long
@pytest.mark.parametrize(
    "steps",
    [("begun",), pytest.param((*IN_BATCH, "uploaded", *AT_START), id="all")],
    ids=str,
)
def test_a_query_whose_owners_are_lost_with_their_disks_goes_on_from_object_storage(
    steps: tuple[str, ...], world: DriverCluster, jobs: SparkJobs, spark: "SparkSession", clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    pipeline = stream_pipeline(world, stream_sink(clickhouse), windowed(topic))
    world.produce(topic, events(range(150)))
    first = StreamSlot(world, jobs, pipeline, "first")
    first.run_until(first.has_read(**{topic: 150}))
    first.processor.stop()
    assert not first.is_active
    dead = [first]
    for number, step in enumerate(steps, start=1):
        world.produce(topic, events(range(number * 150, number * 150 + 150)))
        owner = StreamSlot(world, jobs, pipeline, f"owner{number}")
        owner.fail_at(f"stream.{step}")
        if owner.processor._local is not None:
            lose_disk(owner)
        dead.append(owner)
    world.produce(topic, CLOSING)
    expected = batch_windows(spark, world, topic)
    successor = StreamSlot(world, jobs, pipeline, "successor")
    successor.run_until(lambda: len(windows(clickhouse)) == len(expected))
    assert windows(clickhouse) == expected
    successor.run_until(lambda: not successor.record.retain)  # Spark has committed the last batch
    done = successor.record.done_batch
    assert object_keys(world, f"{pipeline.id}/1/e{successor.claims[0]}/commits/{done}"), "before retention goes on"
    folders = {key.split(f"{pipeline.id}/1/")[1].split("/")[0] for key in object_keys(world, f"{pipeline.id}/1/")}
    assert folders == {f"e{successor.claims[0]}"}, "those of the dead are removed"


@pytest.mark.long
def test_an_owner_that_lost_its_disk_alone_goes_on_under_its_epoch(
    world: DriverCluster, jobs: SparkJobs, spark: "SparkSession", clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    pipeline = stream_pipeline(world, stream_sink(clickhouse), windowed(topic))
    world.produce(topic, events(range(150)))
    owner = StreamSlot(world, jobs, pipeline, "owner")
    owner.run_until(owner.has_read(**{topic: 150}))
    world.produce(topic, events(range(150, 300)))
    owner.fail_at("stream.inserted")
    lose_disk(owner)
    world.produce(topic, CLOSING)
    expected = batch_windows(spark, world, topic)
    owner.run_until(lambda: len(windows(clickhouse)) == len(expected))
    assert windows(clickhouse) == expected


@contextmanager
def machine(world: DriverCluster, folder: Path, failpoints: FailpointFolder) -> Iterator[DriverProcess]:
    """A driver whose disk is lost at its end."""
    disk = folder / "tmp"
    disk.mkdir(parents=True)
    with driving(world, folder, {**failpoints.environment, "TMPDIR": str(disk)}) as driver:
        yield driver
    assert list(disk.glob(f"{PREFIX}*")), "checkpoints were not on this machine"
    shutil.rmtree(disk)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("steps", [("uploaded", "begun", "inserted", "done", "copied")], ids=["kills"])
def test_drivers_that_are_killed_and_lose_their_disks_lose_and_repeat_no_row(
    steps: tuple[str, ...], world: DriverCluster, spark: "SparkSession", clickhouse: ClickHouseDatabase, tmp_path: Path
) -> None:
    topic = world.topic(1)
    pipeline = stream_pipeline(world, stream_sink(clickhouse), windowed(topic))
    registry = world.registry(pipeline, 1)
    failpoints = FailpointFolder(tmp_path / "failpoints")
    for number, step in enumerate(steps):
        world.produce(topic, events(range(number * 150, number * 150 + 150)))
        with machine(world, tmp_path / step, failpoints) as driver:
            failpoints.arm(f"stream.{step}", "kill")
            driver.work(f"w{number}", pipeline.id, world.claim(registry, f"w{number}", [0]))
            failpoints.wait_taken(f"stream.{step}", "kill", within_s=120)
        failpoints.disarm()
    world.produce(topic, CLOSING)
    expected = batch_windows(spark, world, topic)
    with machine(world, tmp_path / "last", failpoints) as driver:
        driver.work("last", pipeline.id, world.claim(registry, "last", [0]))
        until(lambda: len(windows(clickhouse)) >= len(expected), within_s=120, what="all windows")
    assert windows(clickhouse) == expected


def test_folders_of_processes_that_were_killed_are_removed_by_the_next(tmp_path: Path) -> None:
    alive = LocalFolder(str(tmp_path))
    abandoned = tmp_path / f"{PREFIX}dead"
    abandoned.mkdir()
    (abandoned / "lock").touch()
    another = LocalFolder(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == sorted([alive.path, another.path])
    for folder in (alive, another):
        folder.remove()
        folder.remove()
    assert not list(tmp_path.iterdir())
