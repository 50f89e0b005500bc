"""A topic that does not exist is created where the server allows it; where it does not, the error says so."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.support.broker import Broker
from tests.support.broker_fixtures import NewBroker, new_broker  # noqa: F401 (a fixture)
from tests.support.librdkafka_client import read_all


def test_it_is_created_with_the_servers_number_of_partitions(spark: SparkSession, broker: Broker) -> None:
    topic = broker.unique("created")
    rows = spark.range(100).selectExpr("cast(id as string) value")
    rows.write.format("holdfast").options(bootstrap=broker.bootstrap, topic=topic).mode("append").save()
    assert sorted(int(each.value or b"") for each in read_all(broker, topic, [0])) == list(range(100))


def test_so_is_one_that_only_a_row_names(spark: SparkSession, broker: Broker) -> None:
    even, odd = broker.unique("even"), broker.unique("odd")
    rows = spark.range(100).selectExpr(
        "cast(id as string) value", f"CASE WHEN id % 2 = 0 THEN '{even}' ELSE '{odd}' END AS topic"
    )
    rows.write.format("holdfast").option("bootstrap", broker.bootstrap).mode("append").save()
    assert sorted(int(each.value or b"") for each in read_all(broker, even, [0])) == list(range(0, 100, 2))
    assert sorted(int(each.value or b"") for each in read_all(broker, odd, [0])) == list(range(1, 100, 2))


def test_a_server_that_creates_none_is_named(spark: SparkSession, new_broker: NewBroker) -> None:  # noqa: F811
    strict = new_broker("--set", "kafka.auto_create_topics=false")
    rows = spark.range(3).selectExpr("cast(id as string) value")
    writing = rows.write.format("holdfast").options(bootstrap=strict.bootstrap, topic="absent").mode("append")
    with pytest.raises(PySparkException, match=r"topic 'absent' does not exist, and the server creates none"):
        writing.save()
    assert "absent" not in strict.admin.list_topics(timeout=20).topics
