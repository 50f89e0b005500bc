"""Executors read object storage by signed URLs: no credentials and no URL of the store travel to them."""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.support.broker import Broker, serving
from tests.support.object_engines.moto import MotoServer
from tests.support.object_engines.s3 import s3_url
from tests.support.sink_values import COLUMNS
from tests.support.spark_topics import numbered, send
from tests.support.waiting import until

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import close as close_loop
from holdfast.contracts.objects import Missing
from holdfast.objects.signed import SignedObjects, can_sign, sign_reads
from holdfast.objects.urls import open_objects
from holdfast.pipeline.driver.dataframes import range_job, without_credentials
from holdfast.pipeline.driver.tasks import read_fenced_range
from holdfast.pipeline.model.column_mapping import Mapping
from holdfast.pipeline.model.definition import KafkaConfig, ParquetConfig, Revision
from holdfast.pipeline.sinks.contract import FencedRange, SinkTarget
from holdfast.spark.cluster_options import address_options
from holdfast.spark.ranges import Planner, ReadCounters
from holdfast.spark.source.batch import BatchReader
from holdfast.spark.source.options import parse_source_options
from holdfast.spark.source.read_metrics import ReadMetrics
from holdfast.spark.source.stream import StreamReader
from holdfast.spark.source.tasks import ReadTask, run_task
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UsageError
from holdfast.vocabulary.random import SystemRandom
from pyspark_holdfast import DefaultSource

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with MotoServer(tmp_path_factory.mktemp("moto")).running() as server:
        yield s3_url(server.port, "grants").replace("secret_access_key=any", "secret_access_key=planted-objects")


async def test_objects_behind_signed_urls_are_read_and_nothing_else(s3: str) -> None:
    body = bytes(range(256)) * 8
    async with open_objects(s3, clock=RealClock(), random=SystemRandom()) as objects:
        await objects.put("a/one", [body])
        await objects.put("a/two", [b"two"])
        await objects.put("a/empty", [b""])
    signed = SignedObjects(sign_reads(s3, ["a/one", "a/empty", "a/gone"], lifetime_s=600))
    assert await signed.get("a/one") == body
    assert await signed.get("a/one", start=10, end=300) == body[10:300]
    assert await signed.get("a/one", start=2_000) == body[2_000:]
    assert await signed.get("a/one", start=5_000, end=5_010) == b""
    assert await signed.get_tail("a/one", 100) == body[-100:]
    assert await signed.get_tail("a/one", 10_000) == body
    assert await signed.get("a/empty") == b""
    assert await signed.get("a/two") == Missing("a/two"), "no URL was signed for it"
    assert await signed.get("a/gone", end=3) == Missing("a/gone")
    with pytest.raises(UsageError, match="may only read"):
        await signed.put("a/three", [b"3"])
    with pytest.raises(UsageError, match="may only read"):
        await signed.delete(["a/one"])


def test_only_s3_is_signed() -> None:
    assert [can_sign(url) for url in ("s3://b/x", "file:///x", "gs://b", "memory:")] == [True, False, False, False]


@pytest.fixture(scope="module")
def cluster(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, ClusterAddress]]:
    folder = tmp_path_factory.mktemp("broker")
    store = f"sqlite:///{folder}/planted-store.db"
    options = ("--roles", "api,agent", "--store", store, "--objects", s3)
    with serving(folder, *options) as broker:
        yield broker, ClusterAddress(bootstrap=broker.bootstrap, store=store, objects=s3)
        close_loop()


def reader_options(address: ClusterAddress, topic: str, streaming: bool, **more: str) -> Any:
    given = {**address_options(address), "topics": topic, "startingOffsets": "earliest"}
    return parse_source_options({**given, **more}, streaming=streaming)


def filled(broker: Broker, address: ClusterAddress) -> str:
    topic = broker.create_topic("granted", 2, {"segment.ms": "100", "retention.ms": "-1"})
    send(broker, topic, numbered(400, 2))
    published = Planner(replace(address, bootstrap=""))
    until(lambda: sum(published.topic_offsets(topic).ends) == 400, what=f"{topic} is published")
    return topic


def test_a_source_keeps_its_options_from_the_tasks_of_its_readers() -> None:
    address = ClusterAddress(bootstrap="b:1", store="sqlite:////planted.db", objects="s3://b?secret_access_key=planted")
    source = DefaultSource({**address_options(address), "topics": "t"})
    planning = pickle.loads(pickle.dumps(source))
    assert planning.options == source.options
    for reader in (planning.reader, planning.streamReader):
        sent: bytes = cloudpickle.dumps((planning, reader(planning.schema())))  # type: ignore[no-untyped-call]
        assert b"planted" not in sent
        assert pickle.loads(sent)[0].name() == "holdfast"


def read_by_executor(reader: Any, tasks: Any) -> list[int]:
    """What a task makes of it, from the bytes that Spark sends."""
    sent: bytes = cloudpickle.dumps(reader)  # type: ignore[no-untyped-call]
    shipped = sent, [pickle.dumps(task) for task in tasks]
    for each in (shipped[0], *shipped[1]):
        assert b"planted" not in each, "a secret or the store's URL travels to executors"
    reader = pickle.loads(shipped[0])
    batches = (batch for task in shipped[1] for batch in reader.read(pickle.loads(task)))
    return sorted(int(value.as_py()) for batch in batches for value in batch.column("value"))


@pytest.mark.parametrize("streaming", [False, True])
def test_executors_get_urls_of_their_segments_and_no_credentials(
    cluster: tuple[Broker, ClusterAddress], streaming: bool, tmp_path: Path
) -> None:
    broker, address = cluster
    topic, metrics = filled(broker, address), ReadMetrics(tmp_path / "metrics")
    options = reader_options(address, topic, streaming, **metrics.options)
    if streaming:
        stream = StreamReader(options)
        start = stream.initialOffset()
        found = read_by_executor(stream, stream.partitions(start, stream.latestOffset(start, ReadAllAvailable())))
    else:
        batch = BatchReader(options)
        found = read_by_executor(batch, batch.partitions())
    assert found == list(range(400))
    assert metrics.read().bytes_objects > 0
    assert metrics.read().bytes_agents == 0


def test_what_a_grant_does_not_cover_any_more_is_read_through_brokers(
    cluster: tuple[Broker, ClusterAddress], tmp_path: Path
) -> None:
    broker, address = cluster
    topic, metrics = filled(broker, address), ReadMetrics(tmp_path / "metrics")
    tasks = BatchReader(reader_options(address, topic, False, **metrics.options)).partitions()
    expired = []
    for task in tasks:
        assert isinstance(task, ReadTask)
        grants = [replace(each, urls={}) for each in task.grants if each is not None]
        expired.append(ReadTask(task.ranges, task.options, grants))
    rows = [value.as_py() for task in expired for batch in run_task(task) for value in batch.column("value")]
    assert sorted(map(int, rows)) == list(range(400))
    assert metrics.read().bytes_objects == 0
    assert metrics.read().bytes_agents > 0


def test_tasks_of_pipelines_get_grants_too(cluster: tuple[Broker, ClusterAddress]) -> None:
    broker, address = cluster
    topic = filled(broker, address)
    revision = Revision(
        version=1, source=KafkaConfig(topic=topic), sink=ParquetConfig(url="/x"), mapping=Mapping(COLUMNS)
    )
    target = SinkTarget(pipeline_id="p", generation=1, revision=revision, columns=COLUMNS)
    fenced = [FencedRange(partition=number, start=0, end=200, epoch=1) for number in range(2)]
    sent = pickle.dumps(without_credentials(range_job(target, address, fenced)))
    assert b"planted" not in sent
    job, counters = pickle.loads(sent), ReadCounters()
    tables = [read_fenced_range(job, each, counters) for each in job.fenced_ranges]
    assert sorted(int(value.as_py()) for table in tables for value in table.column("value")) == list(range(400))
    assert counters.bytes_objects > 0
    assert counters.bytes_agents == 0
