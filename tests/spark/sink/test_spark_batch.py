"""`df.write.format("holdfast")`: columns to records, once, whatever dies."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.broker import Broker
from tests.support.dying_sink import DyingSource
from tests.support.fake_brokers import FAILPOINTS
from tests.support.librdkafka_client import Got, read_all

from holdfast.vocabulary.hashing import kafka_partition


def write(frame: DataFrame, broker: Broker, **options: str) -> None:
    frame.write.format("holdfast").options(bootstrap=broker.bootstrap, **options).mode("append").save()


def everything(broker: Broker, topic: str, partitions: int) -> list[Got]:
    return read_all(broker, topic, range(partitions))


def test_every_column_is_written(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("columns", 4)
    frame = spark.sql(
        """
        SELECT encode('k', 'utf-8') AS key, 'text' AS value, 2 AS partition, timestamp_millis(1700000000123) AS timestamp,
               array(named_struct('key', 'h', 'value', encode('v', 'utf-8'))) AS headers
        """
    )
    write(frame, broker, topic=topic)
    (found,) = everything(broker, topic, 4)
    assert (found.key, found.value, found.partition) == (b"k", b"text", 2)
    assert found.timestamp_ms == 1700000000123
    assert found.headers == (("h", b"v"),)


def test_values_of_any_type_are_written_as_json(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("json")
    frame = spark.sql(
        """
        SELECT id AS key, named_struct(
            'i', id, 'd', CAST(1.50 AS DECIMAL(10, 2)), 'x', 0.5D, 'day', DATE'2026-11-15',
            'at', TIMESTAMP'2026-01-02 03:04:05.000006', 'local', TIMESTAMP_NTZ'2026-01-02 03:04:05',
            'list', array(1, NULL), 'map', map('a', named_struct('b', true)), 'raw', X'01', 'none', CAST(NULL AS STRING),
            'span', INTERVAL '1 02:00:00' DAY TO SECOND
        ) AS value FROM range(1)
        """
    )
    write(frame, broker, topic=topic)
    (found,) = everything(broker, topic, 1)
    assert found.key == b"0"
    assert found.value == (
        b'{"i":0,"d":1.50,"x":0.5,"day":"2026-11-15","at":"2026-01-02T03:04:05.000006Z","local":"2026-01-02T03:04:05",'
        b'"list":[1,null],"map":{"a":{"b":true}},"raw":"AQ==","none":null,"span":"P1DT7200S"}'
    )


def test_keys_go_where_kafka_puts_them_and_rows_keep_their_order(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("keys", 5)
    frame = spark.range(0, 10_000, 1, 4).selectExpr("cast(id % 100 as string) key", "cast(id as string) value")
    write(frame, broker, topic=topic, batchBytes="4096")
    found = everything(broker, topic, 5)
    assert sorted(int(each.value or b"") for each in found) == list(range(10_000))
    assert all(each.partition == kafka_partition(each.key or b"", 5) for each in found)
    by_key: dict[bytes | None, list[int]] = {}
    for each in found:
        by_key.setdefault(each.key, []).append(int(each.value or b""))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_rows_go_to_the_topic_in_their_column(spark: SparkSession, broker: Broker) -> None:
    one, two = broker.create_topic("one"), broker.create_topic("two", 2)
    frame = spark.range(100).selectExpr(
        f"CASE id % 3 WHEN 0 THEN '{one}' WHEN 1 THEN '{two}' END AS topic", "cast(id as string) value"
    )
    write(frame, broker, topic=one)
    assert {int(each.value or b"") % 3 for each in everything(broker, one, 1)} == {0, 2}
    assert sorted(int(each.value or b"") for each in everything(broker, two, 2)) == list(range(1, 100, 3))


@pytest.mark.parametrize(
    ("select", "options", "message"),
    [
        ("id AS number", {"topic": "x"}, "invalid columns 'number'"),
        ("id AS value", {}, "invalid option topic ''"),
        ("id AS value", {"topic": "x", "topics": "y"}, "invalid option 'topics'"),
        ("id AS value; 7 AS partition", {"topic": ""}, "invalid column partition 7: must be 0 to 0"),
        ("array(named_struct('v', parse_json('1'))) AS value", {"topic": "x"}, "free of variants"),
        ("INTERVAL '1' MONTH AS value", {"topic": "x"}, "invalid columns 'struct<value:interval month>'"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_reason(
    spark: SparkSession, broker: Broker, select: str, options: dict[str, str], message: str
) -> None:
    topic = broker.create_topic("refused")
    given = {name: value or topic for name, value in options.items()}
    with pytest.raises(Exception, match=message):
        write(spark.range(1).selectExpr(*select.split("; ")), broker, **given)
    assert everything(broker, topic, 1) == []


def test_overwriting_a_topic_is_refused(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("over")
    frame = spark.range(1).selectExpr("id AS value")
    with pytest.raises(Exception, match="records of a topic are never replaced"):
        frame.write.format("holdfast").options(bootstrap=broker.bootstrap, topic=topic).mode("overwrite").save()


# The other steps of the short form are in test_spark_stream.py; every pair of steps, without Spark, in test_publisher.py.
@pytest.mark.parametrize(
    "step",
    [
        each if each in ("spark-sink.planned", "spark-sink.sent") else pytest.param(each, marks=pytest.mark.long)
        for each in FAILPOINTS
    ],
)
def test_a_named_write_whose_commit_dies_at_any_step_takes_effect_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, step: str
) -> None:
    spark.dataSource.register(DyingSource)
    topic = broker.create_topic("named", 3)
    frame = spark.range(2_000).selectExpr("cast(id as string) key", "cast(id as string) value")
    options = {
        "bootstrap": broker.bootstrap,
        "topic": topic,
        "writeId": topic,
        "batchBytes": "2048",
        "inlineBytes": "0",
    }
    dying = frame.write.format("dying").options(step=step, mark=str(tmp_path / "mark"), **options).mode("append")
    with pytest.raises(Exception, match=r"(?s).") as died:
        dying.save()
    assert (tmp_path / "mark").exists(), died.value
    for _ in range(2):
        dying.save()
    found = everything(broker, topic, 3)
    assert sorted(int(each.value or b"") for each in found) == list(range(2_000))


def test_a_series_of_writes_under_one_name_takes_each_number_once(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("series")
    for number in (0, 1, 1, 0, 2):
        frame = spark.range(3).selectExpr(f"cast({number} as string) value")
        write(frame, broker, topic=topic, writeId=topic, writeNumber=str(number))
    found = [each.value for each in everything(broker, topic, 1)]
    assert sorted(found, key=str) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3
