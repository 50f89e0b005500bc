"""Records of another Kafka, through Spark's own connector with explicit offsets; Holdfast's Kafka face is that other Kafka here."""

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.failpoints import FailpointError, fail_at
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.spark_kafka import spark_kafka_jars
from tests.support.waiting import until

from holdfast.pipeline.driver.dataframes import connector_options
from holdfast.pipeline.driver.slot_revisions import FOREIGN_SOURCE
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.definition import KafkaConfig, Security
from holdfast.pipeline.sinks.contract import FencedRange
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="session")
def connector(spark: "SparkSession") -> None:
    try:
        jars = spark_kafka_jars()
    except UnavailableError as missing:
        pytest.skip(str(missing))
    for jar in jars:
        spark.sql(f"ADD JAR {jar.as_posix()}")


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
