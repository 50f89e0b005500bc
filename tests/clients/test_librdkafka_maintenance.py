"""confluent-kafka: retention and compaction happen, and readers see nothing of them but what is meant to be gone."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from tests.support.broker import CHOICE, Broker, serving
from tests.support.librdkafka_client import CLOCK, consuming, producer, put, read_all, send, send_values, values
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


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("keyless", [{40}, {0, 40, 99}], ids=["one", "three"])
def test_of_a_batch_only_the_records_without_a_key_are_to_blame(
    busy: Broker, idempotent: bool, keyless: set[int]
) -> None:
    if busy.kind != "holdfast" and len(keyless) == 1:
        pytest.skip("librdkafka blames all of the batch for the one record that Apache Kafka names once")
    topic = busy.create_topic("blamed", 1, {"cleanup.policy": "compact"})
    done: list[Message] = []
    # One batch: until the flush none is sent, however long the producing takes.
    config = {"linger.ms": 20_000, "compression.type": "lz4", "enable.idempotence": idempotent}
    client = producer(busy, config)
    for n in range(100):
        put(client, topic, Shape(name="", key=None if n in keyless else b"%d" % n, value=b"%d" % n), done, partition=0)
    assert client.flush(30) == 0
    codes = {message.value(): error.code() for message in done if (error := message.error()) is not None}
    assert {codes.pop(b"%d" % n) for n in keyless} == {KafkaError.INVALID_RECORD}
    # the others were refused with it, as by Apache Kafka, and the application may send them again
    assert set(codes.values()) == {KafkaError._INVALID_DIFFERENT_RECORD}
    assert len(codes) == 100 - len(keyless)
    again = [Shape(name="", key=value, value=value) for value in codes]
    assert len(send(busy, topic, again, {"enable.idempotence": idempotent})) == len(codes)
    assert len(read_all(busy, topic)) == len(codes)
