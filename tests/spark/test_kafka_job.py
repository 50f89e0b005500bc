"""A job written for Spark's Kafka connector runs on Holdfast with one word changed (examples/spark_kafka_job.py)."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession
from tests.support.broker import Broker
from tests.support.librdkafka_client import read_all
from tests.support.spark_kafka import spark_kafka_jars
from tests.support.spark_session import ROOT
from tests.support.spark_topics import Sent, send

from holdfast.vocabulary.errors import UnavailableError

EXAMPLE = ROOT / "examples" / "spark_kafka_job.py"
ORDERS = 300


@pytest.fixture(scope="module")
def job() -> ModuleType:
    spec = spec_from_file_location("spark_kafka_job", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def connector(spark: SparkSession) -> None:
    try:
        jars = spark_kafka_jars()
    except UnavailableError as missing:
        pytest.skip(str(missing))
    for jar in jars:
        spark.sql(f"ADD JAR {jar.as_posix()}")


def order(number: int) -> dict[str, object]:
    status = ("paid", "open", "void")[number % 3]
    return {"id": number, "customer": f"c{number % 7}", "status": status, "amount": number * 1.5}


def orders_topic(broker: Broker) -> str:
    topic = broker.create_topic("orders", 2)
    send(broker, topic, [Sent(json.dumps(order(number)).encode(), number % 2) for number in range(ORDERS)])
    return topic


def run_job(
    job: ModuleType,
    spark: SparkSession,
    broker: Broker,
    source: str,
    folder: Path,
    format: str,  # noqa: A002 (Spark's word)
) -> list[tuple[int, bytes, bytes]]:
    """What the job writes, by key."""
    target = broker.create_topic("paid", 3)
    rows = job.paid_orders(spark, broker.bootstrap, source, format)
    for _ in range(2):  # the second run continues, and finds nothing new
        job.write(rows, broker.bootstrap, str(folder / format), target, format)
    return sorted((each.partition, each.key or b"", each.value or b"") for each in read_all(broker, target, range(3)))


@pytest.mark.timeout(300)
def test_the_job_runs_with_one_word_changed(
    job: ModuleType, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    assert job.FORMAT == "holdfast"
    written = run_job(job, spark, broker, orders_topic(broker), tmp_path, "holdfast")
    paid = [order(number) for number in range(0, ORDERS, 3)]
    assert sorted(json.loads(value)["id"] for _, _, value in written) == [each["id"] for each in paid]
    assert {(key.decode(), json.loads(value)["customer"]) for _, key, value in written} == {
        (each["customer"], each["customer"]) for each in paid
    }


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("connector")
def test_it_writes_what_the_connector_writes(
    job: ModuleType, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    source = orders_topic(broker)
    ours, theirs = (run_job(job, spark, broker, source, tmp_path, each) for each in ("holdfast", "kafka"))
    assert ours == theirs


@pytest.mark.usefixtures("connector")
@pytest.mark.parametrize("headers", ["true", pytest.param("false", marks=pytest.mark.long)])
def test_columns_and_rows_are_the_connectors(headers: str, spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("columns", 2)
    records = [Sent(b"v%d" % n, n % 2, b"k%d" % n, 1_700_000_000_000 + n, [("h", b"x")]) for n in range(50)]
    send(broker, topic, [*records, Sent(None, 0, b"tombstone", 1_700_000_000_100)])
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "assign": json.dumps({topic: [0, 1]}),
        "startingOffsets": json.dumps({topic: {"0": 3, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": -1, "1": 20}}),
        "includeHeaders": headers,
    }
    ours, theirs = (spark.read.format(each).options(**options).load() for each in ("holdfast", "kafka"))
    assert ours.schema == theirs.schema
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect()))


@pytest.mark.usefixtures("connector")
def test_times_by_partition_are_the_connectors(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("times", 2)
    send(broker, topic, [Sent(b"%d" % n, n % 2, None, 1_700_000_000_000 + n * 1_000) for n in range(60)])
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": 1_700_000_010_000, "1": 1_700_000_020_500}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": 1_700_000_030_000, "1": 1_700_000_090_000}}),
    }
    ours, theirs = (spark.read.format(each).options(**options).load() for each in ("holdfast", "kafka"))
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect()))


def test_all_columns_of_a_topic_may_be_written_back_as_there(spark: SparkSession, broker: Broker) -> None:
    """The connector ignores what it does not write; the time of a record is that of the write."""
    source, target = broker.create_topic("source", 2), broker.create_topic("copy", 2)
    send(broker, source, [Sent(b"%d" % n, n % 2, b"k", 1_000) for n in range(20)])
    reading = spark.read.format("holdfast").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = reading.option("subscribe", source).load().drop("topic")
    writing = rows.write.format("holdfast").option("kafka.bootstrap.servers", broker.bootstrap)
    writing.option("topic", target).mode("append").save()
    found = read_all(broker, target, range(2))
    assert sorted(int(each.value or b"") for each in found) == list(range(20))
    assert min(each.timestamp_ms for each in found) > 1_000
