"""The names of Spark's Kafka connector: each means what it means there, and none is dropped silently."""

import logging

import pytest

from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.spark.kafka_options import SINK, SOURCE, from_kafka_options
from holdfast.spark.sink.options import parse_sink_options
from holdfast.spark.source.options import SourceOptions, parse_source_options
from holdfast.vocabulary.errors import InvalidError

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}


def stream(**more: str) -> SourceOptions:
    return parse_source_options({**SERVERS, **more}, streaming=True)


def batch(**more: str) -> SourceOptions:
    return parse_source_options({**SERVERS, **more}, streaming=False)


def test_brokers_topics_and_limits() -> None:
    options = stream(subscribe="a,b", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5", maxTriggerDelay="2m")
    assert options.cluster_address.bootstrap == "a:1,b:2"
    assert options.topics == ("a", "b")
    assert (options.rows_max, options.rows_min, options.trigger_delay_ms) == (10, 5, 120_000)
    assert stream(subscribePattern="a.*").pattern == "a.*"
    assert stream(subscribe="a", minOffsetsPerTrigger="5").trigger_delay_ms == 15 * 60_000


def test_spark_passes_names_in_lower_case() -> None:
    assert stream(subscribepattern="a.*", maxoffsetspertrigger="7").rows_max == 7


def test_assigned_partitions() -> None:
    options = batch(assign='{"a": [0, 2], "b": [1]}')
    assert options.topics == ("a", "b")
    chosen = [(topic, number) for topic in "ab" for number in range(3) if options.wants(topic, number)]
    assert chosen == [("a", 0), ("a", 2), ("b", 1)]


def test_offsets_and_times_by_partition() -> None:
    start = batch(subscribe="a", startingOffsets='{"a": {"0": 23, "1": -2}}', endingOffsets='{"a": {"0": 50, "1": -1}}')
    assert (start.start.of("a", 0), start.start.of("a", 1), start.end.of("a", 1)) == (23, EARLIEST, LATEST)
    timed = batch(
        subscribe="a", startingOffsetsByTimestamp='{"a": {"0": 1000}}', endingOffsetsByTimestamp='{"a": {"0": 2000}}'
    )
    assert (timed.start.time_of("a", 0), timed.start.time_of("a", 1), timed.end.time_of("a", 0)) == (1_000, None, 2_000)
    assert not timed.start.must_match
    strict = batch(subscribe="a", startingTimestamp="1000", startingOffsetsByTimestampStrategy="error")
    assert strict.start.must_match


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bootstrap": "c:3", "subscribe": "a"}, "options kafka.bootstrap.servers and bootstrap"),
        ({"subscribe": "a", "topics": "a"}, "options subscribe and topics"),
        ({"subscribe": "a", "subscribePattern": "a"}, "options subscribe and subscribePattern .*exactly one"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "options subscribe and assign"),
        ({"assign": '{"a": [0]}', "partitions": "0"}, "options assign and partitions"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "1", "maxRowsPerTrigger": "1"}, "maxOffsetsPerTrigger and maxRows"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "1", "minRows": "1"}, "minOffsetsPerTrigger and minRows"),
        (
            {"subscribe": "a", "startingOffsets": "earliest", "startingOffsetsByTimestamp": "{}"},
            "startingOffsetsByTime",
        ),
        ({"subscribe": "a", "maxTriggerDelay": "1m"}, "maxTriggerDelay.*minOffsetsPerTrigger"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "newest"}, "Strategy 'newest'"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": -2}}'}, "startingOffsetsByTimestamp"),
        ({"assign": "[1]"}, "option assign"),
        ({"subscribe": "a", "kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism ''"),
        ({"subscribe": "a", "kafka.sasl.jaas.config": "secret"}, "kafka.sasl.jaas.config '…'.*SASL_PLAINTEXT or SASL"),
        ({"subscribe": "a", "kafka.ssl.keystore.key": "secret"}, "kafka.ssl.keystore.key '…'.*absent"),
        ({"subscribe": "a", "subscribes": "a"}, "option 'subscribes'"),
    ],
)
def test_what_contradicts_itself_is_refused_with_both_names(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        stream(**given)


def test_options_without_effect_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    given = {"subscribe": "a", "groupIdPrefix": "x", "kafka.group.id": "y", "minPartitions": "9"}
    with caplog.at_level(logging.WARNING):
        options = stream(**given, **{"kafka.security.protocol": "PLAINTEXT", "kafkaConsumer.pollTimeoutMs": "1"})
    assert options.topics == ("a",)
    assert "groupIdPrefix, kafka.group.id, kafkaConsumer.pollTimeoutMs, minPartitions" in caplog.text


def test_the_sinks_options() -> None:
    given = {**SERVERS, "topic": "t", "kafka.compression.type": "lz4", "kafka.linger.ms": "5", "includeHeaders": "true"}
    options, address = parse_sink_options(given)
    assert (options.topic, options.compression, address.bootstrap) == ("t", "lz4", "a:1,b:2")
    with pytest.raises(InvalidError, match=r"options kafka.bootstrap.servers and bootstrap"):
        parse_sink_options({**given, "bootstrap": "c:3"})


def test_our_own_names_stay_as_they_are() -> None:
    ours = {"bootstrap": "a:1", "topics": "x", "figures": "/f"}
    assert from_kafka_options(ours, SOURCE) == ours
    assert from_kafka_options({"topic": "x", "assign": "y"}, SINK) == {"topic": "x", "assign": "y"}
