"""confluent-kafka: how records come. Long polls, small fetches, slow readers, many partitions."""

import threading

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.broker import Broker
from tests.support.librdkafka_client import consuming, producer, read_all, send_values, take, values
from tests.support.record_shapes import pseudo_random

PATIENCE_MS = 300_000  # how long a fetch may wait: far longer than any test waits for a record


def settled(client: Consumer, broker: Broker, topic: str) -> None:
    """The consumer has read one record and its next fetch waits at the broker."""
    send_values(broker, topic, [b"first"])
    client.assign([TopicPartition(topic, 0, 0)])
    assert len(take(client, 1)) == 1
    assert client.poll(0.3) is None


def test_a_record_wakes_a_waiting_fetch_at_once(broker: Broker) -> None:
    topic = broker.create_topic("wake")
    with consuming(broker, {"fetch.wait.max.ms": PATIENCE_MS, "fetch.min.bytes": 1}) as client:
        settled(client, broker, topic)
        writer = producer(broker)
        for turn in range(10):
            writer.produce(topic, b"%d" % turn)
            writer.flush(20)
            assert values(take(client, 1)) == [b"%d" % turn]


def test_a_record_in_any_partition_wakes_the_fetch(broker: Broker) -> None:
    topic = broker.create_topic("wake-any", 8)
    with consuming(broker, {"fetch.wait.max.ms": PATIENCE_MS}) as client:
        for partition in range(8):
            send_values(broker, topic, [b"first"], partition=partition)
        client.assign([TopicPartition(topic, partition, 0) for partition in range(8)])
        assert len(take(client, 8)) == 8
        assert client.poll(0.3) is None
        writer = producer(broker)
        for partition in (7, 0, 3):
            writer.produce(topic, b"next", partition=partition)
            writer.flush(20)
            assert [message.partition for message in take(client, 1)] == [partition]


def test_a_fetch_waits_for_its_min_bytes(broker: Broker) -> None:
    topic = broker.create_topic("min-bytes")
    with consuming(broker, {"fetch.wait.max.ms": PATIENCE_MS, "fetch.min.bytes": 100_000}) as client:
        send_values(broker, topic, [pseudo_random(150_000)])
        client.assign([TopicPartition(topic, 0, 0)])
        assert len(take(client, 1)) == 1
        send_values(broker, topic, [b"little"])
        assert client.poll(0.5) is None  # little is not enough
        send_values(broker, topic, [pseudo_random(150_000)])
        assert [message.offset for message in take(client, 2)] == [1, 2]


def test_a_fetch_that_never_gets_its_min_bytes_brings_what_there_is_when_its_wait_ends(broker: Broker) -> None:
    topic = broker.create_topic("min-bytes-ends")
    send_values(broker, topic, [b"little"])
    with consuming(broker, {"fetch.wait.max.ms": 200, "fetch.min.bytes": 100_000}) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        assert values(take(client, 1)) == [b"little"]


def test_a_batch_larger_than_the_fetch_still_comes(broker: Broker) -> None:
    topic = broker.create_topic("tiny-fetch")
    sent = [pseudo_random(30_000, seed=index) for index in range(20)]
    send_values(broker, topic, sent, {"linger.ms": 100})
    tiny = {"max.partition.fetch.bytes": 1_000, "fetch.max.bytes": 1_000, "message.max.bytes": 1_000}
    assert values(read_all(broker, topic, config=tiny)) == sent


def test_a_reader_that_takes_one_message_at_a_time(broker: Broker) -> None:
    topic = broker.create_topic("sips", 3)
    for partition in range(3):
        send_values(broker, topic, [b"%04d" % index for index in range(300)], partition=partition)
    config = {"queued.min.messages": 1, "max.partition.fetch.bytes": 300, "fetch.queue.backoff.ms": 5}
    found = read_all(broker, topic, range(3), config)
    for partition in range(3):
        mine = [message for message in found if message.partition == partition]
        assert [message.offset for message in mine] == list(range(300))


def test_a_slow_reader_loses_nothing_while_others_write(broker: Broker) -> None:
    topic = broker.create_topic("slow")
    count, pause = 1_500, threading.Event()

    def write() -> None:
        client = producer(broker, {"linger.ms": 1})
        for index in range(count):
            client.produce(topic, b"%06d" % index)
            client.poll(0)
            if index % 100 == 0:
                pause.wait(0.01)
        assert client.flush(30) == 0

    writer = threading.Thread(target=write)
    writer.start()
    slow = {"queued.min.messages": 10, "max.partition.fetch.bytes": 2_000, "fetch.queue.backoff.ms": 20}
    with consuming(broker, slow) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < count and (more := values(take(client, 50))):
            found += more
            pause.wait(0.02)
    writer.join()
    assert found == [b"%06d" % index for index in range(count)]


def test_readers_at_different_speeds_do_not_disturb_each_other(broker: Broker) -> None:
    topic = broker.create_topic("speeds")
    sent = [b"%06d" % index for index in range(2_000)]
    send_values(broker, topic, sent)
    with consuming(broker, {"max.partition.fetch.bytes": 500}) as slow, consuming(broker) as fast:
        slow.assign([TopicPartition(topic, 0, 0)])
        fast.assign([TopicPartition(topic, 0, 0)])
        first = values(take(slow, 10))
        assert values(take(fast, 2_000)) == sent
        assert first + values(take(slow, 1_990)) == sent


def test_one_consumer_reads_fifty_partitions(broker: Broker) -> None:
    topic = broker.create_topic("fifty", 50)
    client = producer(broker, {"linger.ms": 50})
    for index in range(2_000):
        client.produce(topic, b"%d" % (index // 50), partition=index % 50)
    assert client.flush(30) == 0
    with consuming(broker) as reader:
        reader.subscribe([topic])
        found = take(reader, 2_000)
    for partition in range(50):
        assert [message.value for message in found if message.partition == partition] == [
            b"%d" % index for index in range(40)
        ]


def test_one_busy_partition_does_not_starve_the_others(broker: Broker) -> None:
    topic = broker.create_topic("fair", 4)
    send_values(broker, topic, [pseudo_random(50_000, seed=index) for index in range(100)], partition=0)
    for partition in (1, 2, 3):
        send_values(broker, topic, [b"quiet"], partition=partition)
    small = {"fetch.max.bytes": 60_000, "message.max.bytes": 60_000, "queued.min.messages": 100_000}
    found = read_all(broker, topic, range(4), small)
    assert len(found) == 103
    last_quiet = max(index for index, message in enumerate(found) if message.value == b"quiet")
    assert last_quiet < 80


@pytest.mark.parametrize("check_crcs", [True, False])
def test_a_client_that_checks_crcs_agrees(broker: Broker, check_crcs: bool) -> None:
    topic = broker.create_topic("crc", 1, {"message.timestamp.type": "LogAppendTime"})
    for compression in ("none", "zstd"):
        send_values(broker, topic, [b"x" * 1_000] * 50, {"compression.type": compression})
    assert len(read_all(broker, topic, config={"check.crcs": check_crcs})) == 100
