"""Records of another Kafka, through Spark's own connector with explicit offsets; Holdfast's Kafka face is that other Kafka here."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.support.apache_kafka import ApacheKafka
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.failpoints import FailpointError, fail_at
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.waiting import until

from holdfast.client.loop_thread import run
from holdfast.pipeline.driver.dataframes import connector_options
from holdfast.pipeline.driver.slot_revisions import FOREIGN_SOURCE
from holdfast.pipeline.driver.sources import KafkaSource
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.definition import KafkaConfig, Security
from holdfast.pipeline.sinks.contract import FencedRange
from holdfast.registry.growth import ensure_partitions
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import UnavailableError

pytestmark = pytest.mark.spark


WITH_SQL = pytest.param("select id, name from rows where id >= 0", marks=pytest.mark.long)


@pytest.mark.parametrize("text", ["", WITH_SQL])
@pytest.mark.usefixtures("connector")
def test_another_kafka_is_read_exactly_once(
    text: str, world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(2)
    for number in (0, 1):
        world.produce(topic, [*map(event, range(250)), b"bad"], partition=number)
    source = {"topic": topic, "brokers": [world.broker.bootstrap], "groupId": f"group-{topic}"}
    pipeline = world.pipeline(topic, sink_of(clickhouse, batchSize=150), source=source, sql={"sql": text})
    registry = world.registry(pipeline, 2)
    claims = world.claim(registry, "ann", [0, 1])
    with failpoints.installed(fail_at("pipeline.job-done")), pytest.raises(FailpointError):
        drain(world.work(jobs, pipeline, "ann"), claims, {0: 251, 1: 251})
    work = world.work(jobs, pipeline, "bob")
    drain(work, world.claim(registry, "bob", [0, 1]), {0: 251, 1: 251})
    work.close()
    assert totals(clickhouse) == (500, 500, 2 * sum(range(250)))
    assert totals(clickhouse, "orders_dlq", "recipe")[:2] == (2, 2)
    assert FOREIGN_SOURCE in work.progress().warnings
    reader = Consumer({"bootstrap.servers": world.broker.bootstrap, "group.id": f"group-{topic}"})
    asked = [TopicPartition(topic, number) for number in (0, 1)]
    until(lambda: [each.offset for each in reader.committed(asked, timeout=10)] == [251, 251], what="mirrored")
    reader.close()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A Kafka with transactions."""
    kafka = ApacheKafka(tmp_path_factory.mktemp("apache"))
    try:
        kafka.argv()
    except UnavailableError as missing:
        pytest.skip(str(missing))
    with kafka.running():
        yield kafka


class Transactions:
    """A transactional producer of one topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer, self._topic = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic}), topic
        self._producer.init_transactions(30)

    def begin(self, numbers: range) -> None:
        self._producer.begin_transaction()
        for number in numbers:
            self._producer.produce(self._topic, event(number), partition=0)
        assert self._producer.flush(30) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(30)

    def abort(self) -> None:
        self._producer.abort_transaction(30)


def ids(folder: Path) -> list[int]:
    files = folder.glob("generation=*/**/*.parquet")
    return sorted(number for path in files for number in pq.ParquetFile(path).read()["id"].to_pylist())


@pytest.mark.long  # what the connector is told, its isolation too, is below; another Kafka is read in the short form
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("connector")
def test_only_what_was_committed_is_read_and_added_partitions_are_noticed(
    apache: ApacheKafka, world: DriverCluster, jobs: SparkJobs, tmp_path: Path
) -> None:
    topic, admin = world.broker.unique("committed"), AdminClient({"bootstrap.servers": apache.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Transactions(apache.bootstrap, topic)
    for numbers, end in ((range(100), producer.commit), (range(1_000, 1_050), producer.abort)):
        producer.begin(numbers)
        end()
    producer.begin(range(100, 150))  # open: nothing of it, or behind it, may be read yet
    source = {"topic": topic, "brokers": [apache.bootstrap]}
    sink = {"kind": "parquet", "url": str(tmp_path / "rows"), "batchSize": 40, "batchFlushIntervalMs": 100}
    pipeline = world.pipeline(topic, sink, source=source)
    registry = world.registry(pipeline, 1)
    claims, work = world.claim(registry, "ann", [0]), world.work(jobs, pipeline, "ann")
    drain(work, claims, {0: 152})  # 100 records, 50 aborted ones, a mark for each transaction
    assert ids(tmp_path / "rows") == list(range(100))
    producer.commit()
    drain(work, claims, {0: 203})
    assert ids(tmp_path / "rows") == list(range(150))
    assert work.progress().source_partitions == 1
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    until(lambda: len(KafkaSource(KafkaConfig(topic=topic, brokers=(apache.bootstrap,))).bounds().ends) == 2, what="2")
    plain = Producer({"bootstrap.servers": apache.bootstrap})
    for number in range(500, 520):
        plain.produce(topic, event(number), partition=1)
    assert plain.flush(30) == 0
    drain(work, claims, {0: 203})
    until(lambda: (work.turn(claims), work.progress().source_partitions)[1] == 2, what="the driver sees the second")
    run(ensure_partitions(world.store, registry.settings.namespace, 2, clock=world.clock, random=world.random))
    drain(work, {**claims, **world.claim(registry, "ann", [1])}, {0: 203, 1: 20})
    assert ids(tmp_path / "rows") == [*range(150), *range(500, 520)]


def test_the_connector_gets_exact_offsets_and_credentials() -> None:
    config = KafkaConfig(
        topic="t",
        brokers=("a:1", "b:2"),
        security=Security(
            protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username="ann", password='p"w\\', ca_file="/ca"
        ),
    )
    options = connector_options(config, [FencedRange(partition=3, start=5, end=9, epoch=1)])
    assert options["startingOffsets"] == '{"t": {"3": 5}}'
    assert options["endingOffsets"] == '{"t": {"3": 9}}'
    assert options["kafka.sasl.jaas.config"].endswith('ScramLoginModule required username="ann" password="p\\"w\\\\";')
    assert options["kafka.ssl.truststore.location"] == "/ca"
    assert options["kafka.isolation.level"] == "read_committed"
