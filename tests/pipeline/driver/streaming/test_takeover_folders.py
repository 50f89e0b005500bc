"""The folder of an epoch after a takeover, in object storage: what the record knows, and nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.client.loop_thread import run
from holdfast.contracts.objects import Objects
from holdfast.objects.urls import open_objects
from holdfast.pipeline.driver.streaming.protocol import take_over
from holdfast.pipeline.driver.streaming.stream_record import DoneBatch, StreamRecord
from holdfast.pipeline.driver.streaming.uploaded_checkpoints import UploadedCheckpoints
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a cold JVM on a busy machine


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Objects]:
    opening = open_objects(f"file://{tmp_path}/objects", clock=RealClock(), random=SystemRandom())
    yield run(opening.__aenter__())
    run(opening.__aexit__(None, None, None))


def put(objects: Objects, *keys: str) -> None:
    for key in keys:
        run(objects.put(key, [key.encode()]))


def keys(objects: Objects, prefix: str) -> set[str]:
    async def listed() -> set[str]:
        return {info.key.removeprefix(prefix) async for info in objects.list(prefix)}

    return run(listed())


@pytest.mark.parametrize("folder", [5, 6])  # the disk of an owner may be lost alone
def test_a_takeover_leaves_nothing_in_its_folder_of_a_history_that_the_record_does_not_know(
    folder: int, spark: "SparkSession", objects: Objects, tmp_path: Path
) -> None:
    """A store and a table that were restored: epoch 6 has existed before. Its commits name other state."""

    async def opened() -> Objects:
        return objects

    state = "state/0/0/9_aa.zip"
    put(objects, f"p/e{folder}/commits/8", f"p/e{folder}/{state}", "p/e6/commits/9", "p/e6/state/0/0/10_bb.zip")
    put(objects, "p/e60/commits/9")
    folders = UploadedCheckpoints(spark, tmp_path / "local", opened, "p/")
    record = StreamRecord(epoch=6, folder=folder, done=DoneBatch(batch=8, offsets="v1\n{}"))
    folders.fill(take_over(record, has_folder=False))
    assert keys(objects, "p/e6/") == {"commits/8", "metadata", "offsets/8", state}
    assert keys(objects, "p/e60/") == {"commits/9"}
