"""Executors with a Python of their own: in another folder, with Holdfast installed in it, and no source tree anywhere near."""

import tarfile
from pathlib import Path

import pytest
from tests.support.driver_cluster import DriverCluster, event
from tests.support.driver_process import driving
from tests.support.installed_python import install_python
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.spark_servers import standalone
from tests.support.waiting import until

from holdfast.pipeline.driver.settings import DriverStart, SparkOptions, spark_of

# What a worker machine has: no Holdfast, and a default Python that must not be asked.
BARE = {"PYTHONPATH": "", "PYSPARK_PYTHON": "/nowhere/python", "PYTHONDONTWRITEBYTECODE": ""}


def test_a_driver_gets_the_executors_python_and_archives() -> None:
    options = SparkOptions(master="yarn", executor_python="./env/bin/python", archives="env.tar.gz#env")
    settings = spark_of(DriverStart(store="sqlite:///x", spark=options))
    assert (settings.executor_python, settings.archives) == ("./env/bin/python", "env.tar.gz#env")


def imported(folder: Path) -> set[str]:
    """Modules of Holdfast that some process has imported from below a folder: Python left their bytecode there."""
    return {path.name.split(".")[0] for path in folder.rglob("holdfast/pipeline/driver/__pycache__/*.pyc")}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(500)
@pytest.mark.parametrize("shipped", [False, True], ids=["installed", "archive"])
def test_a_pipeline_runs_on_executors_with_a_python_of_their_own(
    shipped: bool, world: DriverCluster, clickhouse: ClickHouseDatabase, tmp_path: Path
) -> None:
    python, archive = install_python(tmp_path / "elsewhere" / "env"), tmp_path / "env.tar.gz"
    spark = SparkOptions(executor_python=str(python))
    if shipped:
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(tmp_path / "elsewhere" / "env", arcname=".")
        spark = SparkOptions(executor_python="./env/bin/python", archives=f"{archive}#env")
    topic = world.topic(2)
    for number in (0, 1):
        world.produce(topic, list(map(event, range(300))), partition=number)
    pipeline = world.pipeline(topic, sink_of(clickhouse, batchSize=200))
    with standalone(tmp_path, workers=1, extra=BARE) as master:
        options = SparkOptions(
            master=master, quick_start=True, executor_python=spark.executor_python, archives=spark.archives
        )
        with driving(world, tmp_path, spark=options) as driver:
            driver.work("ann", pipeline.id, world.claim(world.registry(pipeline, 2), "ann", [0, 1]))
            until(lambda: driver.reached("ann") == {0: 300, 1: 300}, within_s=200, what="ann is done")
        assert "tasks" in imported(tmp_path / ("worker-0" if shipped else "elsewhere")), (
            "executors used another Holdfast"
        )
    assert totals(clickhouse) == (600, 600, 2 * sum(range(300)))
