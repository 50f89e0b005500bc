"""kafka-python: what is sent is what is read, whatever its shape, its compression and the acknowledgement asked for."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support.broker import Broker
from tests.support.kafka_python_client import (
    CLOCK,
    TIMEOUT_S,
    administering,
    consuming,
    producing,
    read,
    send,
    send_shape,
    sendable,
    take,
)
from tests.support.kafka_python_import import KafkaProducer, TopicPartition, errors, has_codec
from tests.support.record_shapes import COMPRESSIONS, KEEP, SHAPES, Shape
from tests.support.workload import judge, keyed

CREATE_TIME, APPEND_TIME = 0, 1
SENDABLE = [shape for shape in SHAPES if sendable(shape)]
WITHOUT = "kafka-python takes this codec from another package, which is not installed"
CODECS = [pytest.param(name, marks=pytest.mark.skipif(not has_codec(name), reason=WITHOUT)) for name in COMPRESSIONS]
OLDER = [(0, 11), (1, 0), (2, 0), (2, 4), (2, 8), (3, 0), (3, 9)]


def assert_as_sent(records: Sequence[Any], shapes: Iterable[Shape]) -> None:
    wanted = list(shapes)
    assert [record.offset for record in records] == list(range(len(wanted)))
    for record, shape in zip(records, wanted, strict=True):
        assert (record.key, record.value, tuple(record.headers)) == (shape.key, shape.value, shape.headers), shape.name
        assert record.timestamp_type == CREATE_TIME
        if shape.timestamp_ms is not None:
            assert record.timestamp == shape.timestamp_ms, shape.name


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
def test_every_shape_comes_back(broker: Broker, compression: str, together: bool) -> None:
    topic = broker.create_topic("shapes", config=KEEP)
    told: dict[str, Any] = {"compression_type": None if compression == "none" else compression}
    if together:
        told |= {"linger_ms": 50, "batch_size": 900_000}
    with producing(broker, max_request_size=1_048_576, **told) as producer:
        if together:
            futures = [send_shape(producer, topic, shape) for shape in SENDABLE]
            assert [future.get(TIMEOUT_S).offset for future in futures] == list(range(len(SENDABLE)))
        else:
            for shape in SENDABLE:
                send_shape(producer, topic, shape).get(TIMEOUT_S)
    assert_as_sent(read(broker, topic, len(SENDABLE)), SENDABLE)


@pytest.mark.parametrize("compression", CODECS)
def test_what_librdkafka_wrote_is_read(broker: Broker, compression: str) -> None:
    topic = broker.create_topic("foreign", config=KEEP)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": compression, "linger.ms": 20})
    timed = [shape for shape in SHAPES if shape.timestamp_ms != 0]  # librdkafka takes a zero for "now"
    for shape in timed:
        at_ms = shape.timestamp_ms or 0
        producer.produce(topic, shape.value, shape.key, 0, headers=list(shape.headers), timestamp=at_ms)
    assert producer.flush(30) == 0
    assert_as_sent(read(broker, topic, len(timed)), timed)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(broker: Broker, acks: int | str) -> None:
    topic = broker.create_topic("acks", 2)
    values = [b"%d" % number for number in range(50)]
    with producing(broker, acks=acks, enable_idempotence=False) as producer:
        for partition in (0, 1):
            answers = send(producer, topic, values, partition)
            if acks != 0:
                assert [answer.offset for answer in answers] == list(range(50))
                assert {(answer.topic, answer.partition) for answer in answers} == {(topic, partition)}
        assert producer.partitions_for(topic) == {0, 1}
    records = read(broker, topic, 100, partitions=2)
    for partition in (0, 1):
        assert [record.value for record in records if record.partition == partition] == values


@pytest.mark.parametrize("version", OLDER, ids=lambda version: ".".join(map(str, version)))
def test_older_protocols_carry_the_same_records(broker: Broker, version: tuple[int, ...]) -> None:
    topic = broker.create_topic("older", config=KEEP)
    few = [shape for shape in SENDABLE if len(shape.value or b"") < 10_000]
    with producing(broker, api_version=version, compression_type="gzip", linger_ms=20) as producer:
        futures = [send_shape(producer, topic, shape) for shape in few]
        assert [future.get(TIMEOUT_S).offset for future in futures] == list(range(len(few)))
    assert_as_sent(read(broker, topic, len(few), api_version=version), few)


def test_create_time_is_the_producers(broker: Broker) -> None:
    topic = broker.create_topic("create", config=KEEP)
    with producing(broker) as producer:
        answer = producer.send(topic, b"then", timestamp_ms=1_234_567_890_123).get(TIMEOUT_S)
    assert answer.timestamp == 1_234_567_890_123
    (record,) = read(broker, topic, 1)
    assert (record.timestamp, record.timestamp_type) == (1_234_567_890_123, CREATE_TIME)


def test_append_time_is_the_brokers(broker: Broker) -> None:
    topic = broker.create_topic("append", config={**KEEP, "message.timestamp.type": "LogAppendTime"})
    before_ms = CLOCK.now_ms()
    with producing(broker) as producer:
        futures = [producer.send(topic, b"now", timestamp_ms=1_000 + number) for number in range(3)]
        answers = [future.get(TIMEOUT_S) for future in futures]
    after_ms = CLOCK.now_ms()
    for answer, record in zip(answers, read(broker, topic, 3), strict=True):
        assert record.timestamp_type == APPEND_TIME
        assert before_ms <= record.timestamp <= after_ms
        assert answer.timestamp == record.timestamp


def test_an_acknowledged_record_is_visible_at_once(broker: Broker) -> None:
    topic = broker.create_topic("visible")
    place = TopicPartition(topic, 0)
    with producing(broker) as producer, consuming(broker) as consumer:
        consumer.assign([place])
        for number in range(10):
            producer.send(topic, b"%d" % number).get(TIMEOUT_S)
            assert consumer.end_offsets([place]) == {place: number + 1}
            assert [record.value for record in take(consumer, 1)] == [b"%d" % number]


@pytest.mark.parametrize("in_flight", [1, 5])
def test_an_idempotent_producer_repeats_nothing(broker: Broker, in_flight: int) -> None:
    topic = broker.create_topic("idempotent", 3)
    items = list(keyed(2_000, keys=50))
    told = {"enable_idempotence": True, "batch_size": 500, "max_in_flight_requests_per_connection": in_flight}
    with producing(broker, **told) as producer:
        for future in [producer.send(topic, item.value, item.key) for item in items]:
            future.get(TIMEOUT_S)
    read_back = [record.value for record in read(broker, topic, len(items), partitions=3)]
    judged = judge([item.value for item in items], read_back)
    assert judged.clean, judged


def test_keys_go_where_every_client_sends_them(broker: Broker) -> None:
    topic = broker.create_topic("hashed", 7)
    keys = [b"key-%d" % number for number in range(40)]
    foreign = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        foreign.produce(topic, b"foreign", key)
    assert foreign.flush(30) == 0
    with producing(broker) as producer:
        for future in [producer.send(topic, b"own", key) for key in keys]:
            future.get(TIMEOUT_S)
    homes: dict[bytes, set[int]] = {}
    for record in read(broker, topic, 80, partitions=7):
        homes.setdefault(record.key, set()).add(record.partition)
    assert {len(partitions) for partitions in homes.values()} == {1}


def test_an_oversized_message_is_refused_and_the_next_is_taken(broker: Broker) -> None:
    topic = broker.create_topic("oversized", config={"max.message.bytes": "20000"})
    with producing(broker, enable_idempotence=False) as producer:
        assert producer.send(topic, b"small").get(TIMEOUT_S).offset == 0
        with pytest.raises(errors.MessageSizeTooLargeError):
            producer.send(topic, b"x" * 30_000).get(TIMEOUT_S)
        assert producer.send(topic, b"y" * 15_000).get(TIMEOUT_S).offset == 1
    # An idempotent producer is refused likewise, and this client gives it up for good.
    with producing(broker) as idempotent, pytest.raises(errors.MessageSizeTooLargeError):
        idempotent.send(topic, b"x" * 30_000).get(TIMEOUT_S)
    assert [len(record.value) for record in read(broker, topic, 2)] == [5, 15_000]


def test_a_batch_that_is_too_large_is_sent_in_parts(broker: Broker) -> None:
    topic = broker.create_topic("split", config={"max.message.bytes": "20000"})
    values = [b"%02d" % number + b"." * 5_000 for number in range(20)]
    with producing(broker, batch_size=100_000, linger_ms=100) as producer:
        send(producer, topic, values)
    assert [record.value for record in read(broker, topic, 20)] == values


def test_an_unknown_topic_is_auto_created(broker: Broker) -> None:
    with producing(broker) as producer:
        topic = broker.unique("written")
        assert producer.send(topic, b"made").get(TIMEOUT_S).offset == 0
    assert [record.value for record in read(broker, topic, 1)] == [b"made"]


def test_an_unknown_topic_is_not_made_by_who_only_looks(broker: Broker) -> None:
    topic = broker.unique("unwanted")
    with administering(broker) as admin:
        (described,) = admin.describe_topics([topic])
        assert described["error_code"] == errors.UnknownTopicOrPartitionError.errno
        assert topic not in admin.list_topics()


def test_transactions_are_refused_at_once(broker: Broker) -> None:
    if broker.kind == "apache":
        pytest.skip("Apache Kafka has transactions")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=broker.unique("transactions"))
    began_ms = CLOCK.boot_ms()
    with pytest.raises(errors.KafkaError, match="InvalidRequestError"):
        producer.init_transactions()
    assert CLOCK.boot_ms() - began_ms < 10_000
    producer.close(timeout=1)
