"""confluent-kafka: records come back as they were sent, whatever their shape, compression and acknowledgement."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from tests.support.broker import Broker
from tests.support.librdkafka_client import (
    CLOCK,
    TIMEOUT_S,
    Got,
    consuming,
    got,
    producer,
    put,
    read_all,
    send,
    send_values,
    take,
    values,
)
from tests.support.record_shapes import COMPRESSIONS, FAR_FUTURE_MS, KEEP, SHAPES, Shape
from tests.support.waiting import until
from tests.support.workload import judge, keyed

SENT = [shape for shape in SHAPES if shape.timestamp_ms != 0]  # to this client time 0 means now


@dataclass(frozen=True)
class Way:
    """A topic with clients that stay connected, since so many tests use them."""

    topic: str
    producer: Producer
    consumer: Consumer


@pytest.fixture(scope="module")
def ways(broker: Broker) -> Iterator[dict[str, Way]]:
    with ExitStack() as opened:
        yield {
            compression: Way(
                broker.create_topic(f"shapes-{compression}", 1, KEEP),
                producer(broker, {"compression.type": compression, "enable.idempotence": True}),
                opened.enter_context(consuming(broker, {"fetch.wait.max.ms": 10})),
            )
            for compression in COMPRESSIONS
        }


def check(message: Got, shape: Shape) -> None:
    assert message.key == shape.key
    assert message.value == shape.value
    assert message.headers == shape.headers
    assert message.timestamp_type == TIMESTAMP_CREATE_TIME
    if shape.timestamp_ms is not None:
        assert message.timestamp_ms == shape.timestamp_ms


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("shape", SENT, ids=str)
def test_a_record_is_read_as_it_was_sent(ways: dict[str, Way], shape: Shape, compression: str) -> None:
    way = ways[compression]
    done: list[Message] = []
    put(way.producer, way.topic, shape, done)
    assert way.producer.flush(TIMEOUT_S) == 0
    way.consumer.assign([TopicPartition(way.topic, 0, got(done[0]).offset)])
    (message,) = take(way.consumer, 1)
    check(message, shape)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_all_shapes_in_few_batches_are_read_as_they_were_sent(broker: Broker, compression: str) -> None:
    topic = broker.create_topic("mixed", 1, KEEP)
    sent = send(broker, topic, SENT, {"compression.type": compression, "linger.ms": 200, "batch.size": 8_000_000})
    assert [message.offset for message in sent] == list(range(len(SENT)))
    messages = read_all(broker, topic)
    assert len(messages) == len(SENT)
    for message, shape in zip(messages, SENT, strict=True):
        check(message, shape)


def test_batches_of_different_compressions_share_a_partition(broker: Broker) -> None:
    topic = broker.create_topic("compressions", 1)
    expected = []
    for turn in range(3):
        for compression in COMPRESSIONS:
            batch = [f"{compression}-{turn}-{index}".encode() * 20 for index in range(50)]
            send_values(broker, topic, batch, {"compression.type": compression})
            expected += batch
    messages = read_all(broker, topic)
    assert values(messages) == expected
    assert [message.offset for message in messages] == list(range(len(expected)))


def test_one_request_carries_batches_of_many_partitions(broker: Broker) -> None:
    topic = broker.create_topic("wide", 12)
    items = list(keyed(6_000, keys=60, size=100))
    shapes = [Shape(name="", key=item.key, value=item.value) for item in items]
    sent = send(broker, topic, shapes, {"linger.ms": 100, "enable.idempotence": True})
    assert len({message.partition for message in sent}) > 6  # keys spread
    verdict = judge([item.value for item in items], values(read_all(broker, topic, range(12))))
    assert verdict.clean, verdict


def test_many_small_batches_keep_their_order(broker: Broker) -> None:
    topic = broker.create_topic("small-batches")
    expected = [b"%06d" % index for index in range(1_500)]
    sent = send_values(broker, topic, expected, {"batch.num.messages": 7, "linger.ms": 0, "enable.idempotence": True})
    assert [message.offset for message in sent] == list(range(1_500))
    assert values(read_all(broker, topic)) == expected


@pytest.mark.parametrize("acks", ["1", "all"])
def test_an_acknowledged_record_has_its_offset_and_is_there(broker: Broker, acks: str) -> None:
    topic = broker.create_topic("acks")
    sent = [send_values(broker, topic, [b"%d" % turn], {"acks": acks})[0] for turn in range(3)]
    assert [message.offset for message in sent] == [0, 1, 2]
    assert values(read_all(broker, topic)) == [b"0", b"1", b"2"]


def test_records_without_acknowledgement_arrive_too(broker: Broker) -> None:
    topic = broker.create_topic("acks-0")
    sent = send_values(broker, topic, [b"%d" % index for index in range(500)], {"acks": "0", "linger.ms": 20})
    assert len(sent) == 500
    until(lambda: len(read_all(broker, topic)) == 500, what="they have arrived: nobody says when")
    assert values(read_all(broker, topic)) == [b"%d" % index for index in range(500)]


def test_acks_0_1_and_all_on_one_topic(broker: Broker) -> None:
    topic = broker.create_topic("acks-mixed")
    for acks in ("all", "1", "all"):
        send_values(broker, topic, [acks.encode()] * 100, {"acks": acks})
    assert values(read_all(broker, topic)) == [b"all"] * 100 + [b"1"] * 100 + [b"all"] * 100


def test_create_time_is_the_producers(broker: Broker) -> None:
    topic = broker.create_topic("create-time", 1, {**KEEP, "message.timestamp.type": "CreateTime"})
    times = [1_000, 500, 946_684_800_000, FAR_FUTURE_MS, 1_700_000_000_000]
    shapes = [Shape(name="", timestamp_ms=time_ms) for time_ms in times]
    send(broker, topic, shapes, {"linger.ms": 100})
    messages = read_all(broker, topic)
    assert [message.timestamp_ms for message in messages] == times
    assert {message.timestamp_type for message in messages} == {TIMESTAMP_CREATE_TIME}


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_append_time_is_the_brokers(broker: Broker, compression: str) -> None:
    topic = broker.create_topic("append-time", 1, {"message.timestamp.type": "LogAppendTime"})
    before_ms = CLOCK.now_ms()
    shapes = [Shape(name="", timestamp_ms=time_ms) for time_ms in (1_000, 946_684_800_000, FAR_FUTURE_MS)]
    acknowledged = send(broker, topic, shapes, {"compression.type": compression})
    messages = read_all(broker, topic)
    assert len(messages) == 3
    for message in messages:
        assert message.timestamp_type == TIMESTAMP_LOG_APPEND_TIME
        assert before_ms <= message.timestamp_ms <= CLOCK.now_ms()
    # Produce answers with the time of the append, and the client shows it in the delivery report.
    assert [message.timestamp_ms for message in acknowledged] == [message.timestamp_ms for message in messages]


def test_a_message_too_large_for_the_topic_is_refused_and_the_broker_goes_on(broker: Broker) -> None:
    topic = broker.create_topic("strict", 1, {"max.message.bytes": "10000"})
    for _ in range(3):
        with pytest.raises(KafkaException) as refused:
            send_values(broker, topic, [b"x" * 20_000])
        assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
        send_values(broker, topic, [b"x" * 5_000])
    assert [message.offset for message in read_all(broker, topic)] == [0, 1, 2]


def test_a_message_beyond_the_default_limit_is_refused_and_the_connection_goes_on(broker: Broker) -> None:
    topic = broker.create_topic("limit")
    client = producer(broker, {"message.max.bytes": 40_000_000})
    done: list[Message] = []
    put(client, topic, Shape(name="", value=b"x" * 3_000_000), done)
    assert client.flush(30) == 0
    error = done[0].error()
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    put(client, topic, Shape(name="", value=b"fits"), done)
    assert client.flush(30) == 0
    assert done[1].error() is None
    assert values(read_all(broker, topic)) == [b"fits"]


def test_a_topic_that_allows_it_takes_a_message_of_eight_megabytes(broker: Broker) -> None:
    topic = broker.create_topic("large", 1, {"max.message.bytes": "9000000"})
    value = bytes(range(256)) * (8_000_000 // 256)
    send_values(broker, topic, [value, b"after"], {"message.max.bytes": 9_000_000})
    assert values(read_all(broker, topic)) == [value, b"after"]
