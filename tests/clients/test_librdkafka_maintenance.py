"""confluent-kafka: retention and compaction happen, and readers see nothing of them but what is meant to be gone."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.support.broker import CHOICE, Broker, serving
from tests.support.librdkafka_client import CLOCK, consuming, read_all, send, send_values, values
from tests.support.record_shapes import Shape, pseudo_random
from tests.support.waiting import until

OFTEN = ("--set", "upkeep.retention_interval_ms=300", "--set", "upkeep.compaction_interval_ms=300")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with maintenance several times a second."""
    if CHOICE != "holdfast":
        pytest.skip(f"flags of `holdfast serve` mean nothing to {CHOICE}")
    with serving(tmp_path_factory.mktemp("busy"), *OFTEN) as running:
        yield running


def low(broker: Broker, topic: str) -> int:
    with consuming(broker) as client:
        return int(client.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[0])


def test_records_older_than_the_retention_go(busy: Broker) -> None:
    topic = busy.create_topic("old", 1, {"retention.ms": "60000", "segment.ms": "100"})
    long_ago_ms, now_ms = CLOCK.now_ms() - 3_600_000, CLOCK.now_ms()
    send(busy, topic, [Shape(name="", value=b"old", timestamp_ms=long_ago_ms) for _ in range(10)])
    until(lambda: low(busy, topic) == 10, what="the old records are gone")
    send(busy, topic, [Shape(name="", value=b"new", timestamp_ms=now_ms) for _ in range(5)])
    assert values(read_all(busy, topic)) == [b"new"] * 5
    assert [message.offset for message in read_all(busy, topic, start=3)] == list(range(10, 15))  # reset


def test_records_beyond_the_size_go(busy: Broker) -> None:
    topic = busy.create_topic("big", 1, {"retention.bytes": "3000000", "segment.bytes": "1048576"})
    for turn in range(12):
        send_values(busy, topic, [pseudo_random(700_000, seed=turn)])
    until(lambda: low(busy, topic) > 0, what="the first records are gone")
    found = read_all(busy, topic)
    assert found[-1].offset == 11
    assert [message.offset for message in found] == list(range(found[0].offset, 12))


def test_compaction_leaves_the_last_of_each_key(busy: Broker) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    topic = busy.create_topic("compacted", 1, config)
    for turn in range(5):
        send(busy, topic, [Shape(name="", key=b"%d" % key, value=b"%d-%d" % (key, turn)) for key in range(20)])
    until(lambda: len(read_all(busy, topic)) < 100, what="something was compacted")

    def settled() -> bool:
        return len(read_all(busy, topic)) <= 40

    until(settled, what="most was compacted")
    found = read_all(busy, topic)
    assert {message.key: message.value for message in found} == {b"%d" % key: b"%d-4" % key for key in range(20)}
    offsets = [message.offset for message in found]
    assert offsets == sorted(offsets)
    assert offsets[-1] == 99  # what is left keeps its offset
    assert send(busy, topic, [Shape(name="", key=b"next")])[0].offset == 100


def test_a_compacted_topic_refuses_records_without_a_key(busy: Broker) -> None:
    topic = busy.create_topic("keyed", 1, {"cleanup.policy": "compact"})
    with pytest.raises(KafkaException) as refused:
        send_values(busy, topic, [b"keyless"])
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD
