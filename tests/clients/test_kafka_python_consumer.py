"""kafka-python: seeking, pausing, offsets by time, positions out of range, long polls, small bites, older protocols."""

import threading

import pytest
from tests.support.broker import Broker
from tests.support.kafka_python_client import TIMEOUT_S, administering, consuming, producing, read, send, take
from tests.support.kafka_python_import import TopicPartition, errors
from tests.support.record_shapes import KEEP
from tests.support.waiting import until


def numbered(broker: Broker, name: str, count: int, partitions: int = 1) -> str:
    """A topic whose every partition holds the numbers below `count`."""
    topic = broker.create_topic(name, partitions)
    with producing(broker) as producer:
        for partition in range(partitions):
            send(producer, topic, [b"%d" % number for number in range(count)], partition)
    return topic


def test_a_consumer_seeks_anywhere(broker: Broker) -> None:
    topic = numbered(broker, "seek", 30)
    place = TopicPartition(topic, 0)
    with consuming(broker) as consumer:
        consumer.assign([place])
        for offset in (17, 3, 29, 0):
            consumer.seek(place, offset)
            (record,) = take(consumer, 1)
            assert (record.offset, record.value) == (offset, b"%d" % offset)
            assert consumer.position(place) == offset + 1
        consumer.seek_to_end(place)
        assert consumer.position(place) == 30
        consumer.seek_to_beginning(place)
        assert [record.offset for record in take(consumer, 30)] == list(range(30))
        assert consumer.highwater(place) == 30


def test_a_paused_partition_is_silent_until_it_is_resumed(broker: Broker) -> None:
    topic = numbered(broker, "pause", 10, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consuming(broker) as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        assert {record.partition for record in take(consumer, 10)} == {1}
        assert consumer.poll(timeout_ms=200) == {}
        consumer.resume(first)
        assert [record.offset for record in take(consumer, 10)] == list(range(10))


@pytest.mark.parametrize("sessions", [True, False], ids=["sessions", "no-sessions"])
def test_fetch_sessions_forget_and_learn_partitions(broker: Broker, sessions: bool) -> None:
    topic = numbered(broker, "sessions", 10, partitions=4)
    places = [TopicPartition(topic, number) for number in range(4)]
    with consuming(broker, enable_incremental_fetch_sessions=sessions) as consumer, producing(broker) as producer:
        consumer.assign(places[:2])
        assert {record.partition for record in take(consumer, 20)} == {0, 1}
        consumer.assign(places[1:])
        assert {record.partition for record in take(consumer, 20)} == {2, 3}
        for turn in range(5):
            send(producer, topic, [b"more"], partition=1 + turn % 3)
            assert [record.partition for record in take(consumer, 1)] == [1 + turn % 3]
        assert send(producer, topic, [b"unheard"], partition=0)
        assert consumer.poll(timeout_ms=200) == {}


def test_beginnings_and_ends(broker: Broker) -> None:
    topic = numbered(broker, "ends", 12, partitions=2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with consuming(broker) as consumer, administering(broker) as admin:
        assert consumer.beginning_offsets(places) == dict.fromkeys(places, 0)
        assert consumer.end_offsets(places) == dict.fromkeys(places, 12)
        admin.delete_records({places[0]: 5})
        assert consumer.beginning_offsets(places) == {places[0]: 5, places[1]: 0}


@pytest.mark.parametrize("version", [None, (0, 11), (1, 0), (2, 0)], ids=str)
def test_offsets_by_time(broker: Broker, version: tuple[int, ...] | None) -> None:
    topic = broker.create_topic("times", config=KEEP)
    place = TopicPartition(topic, 0)
    with producing(broker) as producer:
        for at_ms in (1_000, 2_000, 2_000, 5_000):
            producer.send(topic, b"x", timestamp_ms=at_ms).get(TIMEOUT_S)
    wanted = {0: (0, 1_000), 1_000: (0, 1_000), 1_001: (1, 2_000), 2_000: (1, 2_000), 4_000: (3, 5_000), 5_001: None}
    with consuming(broker, api_version=version) as consumer:
        for asked_ms, found in wanted.items():
            answer = consumer.offsets_for_times({place: asked_ms})[place]
            assert (answer if answer is None else (answer.offset, answer.timestamp)) == found


def test_an_unknown_partition_has_no_end(broker: Broker) -> None:
    topic = broker.create_topic("known")
    with consuming(broker) as consumer, pytest.raises(errors.KafkaTimeoutError):
        consumer.end_offsets([TopicPartition(topic, 7)], timeout_ms=500)


@pytest.mark.parametrize("version", [None, (0, 11)], ids=str)
def test_a_position_out_of_range_is_an_error_where_no_reset_is_wanted(
    broker: Broker, version: tuple[int, ...] | None
) -> None:
    topic = numbered(broker, "range", 30)
    place = TopicPartition(topic, 0)
    with consuming(broker, auto_offset_reset="none", api_version=version) as consumer:
        consumer.assign([place])
        consumer.seek(place, 1_000)
        with pytest.raises(errors.OffsetOutOfRangeError):
            take(consumer, 1)
        consumer.seek(place, 29)
        assert [record.offset for record in take(consumer, 1)] == [29]


def test_a_position_out_of_range_is_reset(broker: Broker) -> None:
    topic = numbered(broker, "reset", 30)
    place = TopicPartition(topic, 0)
    with administering(broker) as admin:
        admin.delete_records({place: 10})
    with consuming(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        for offset in (3, 99):
            consumer.seek(place, offset)
            assert take(consumer, 1)[0].offset == 10
    with consuming(broker, auto_offset_reset="latest") as consumer, producing(broker) as producer:
        consumer.assign([place])
        consumer.seek(place, 99)
        until(lambda: consumer.poll(timeout_ms=50) == {} and consumer.position(place) == 30, what="it is reset")
        send(producer, topic, [b"new"])
        assert [(record.offset, record.value) for record in take(consumer, 1)] == [(30, b"new")]


def test_a_long_poll_is_woken_by_a_record(broker: Broker) -> None:
    topic = broker.create_topic("poll")
    patient = {"fetch_max_wait_ms": 200_000, "request_timeout_ms": 250_000}  # far longer than `take` waits
    with producing(broker) as producer, consuming(broker, **patient) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        send(producer, topic, [b"first"])
        take(consumer, 1)
        for number in range(3):
            consumer.poll(timeout_ms=100)  # a fetch is under way and finds nothing
            sending = threading.Timer(0.1, lambda: producer.send(topic, b"late"))
            sending.start()
            assert [record.offset for record in take(consumer, 1)] == [number + 1]
            sending.join()


def test_a_slow_consumer_takes_small_bites_and_misses_nothing(broker: Broker) -> None:
    topic = broker.create_topic("bites", 3)
    with producing(broker, batch_size=2_000) as producer:
        for partition in range(3):
            send(producer, topic, [b"%03d" % number + b"." * 300 for number in range(60)], partition)
    small = {"max_partition_fetch_bytes": 500, "fetch_max_bytes": 700, "max_poll_records": 7}
    records = read(broker, topic, 180, partitions=3, **small)
    for partition in range(3):
        values = [record.value[:3] for record in records if record.partition == partition]
        assert values == [b"%03d" % number for number in range(60)]


def test_a_batch_larger_than_the_bite_still_comes(broker: Broker) -> None:
    topic = broker.create_topic("large")
    with producing(broker) as producer:
        send(producer, topic, [b"x" * 500_000])
        send(producer, topic, [b"small"])
    records = read(broker, topic, 2, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000)
    assert [len(record.value) for record in records] == [500_000, 5]


def test_iterating_ends_when_nothing_comes(broker: Broker) -> None:
    topic = numbered(broker, "iterated", 25)
    with consuming(broker, topic, group_id=broker.unique("iterates"), consumer_timeout_ms=1_500) as consumer:
        (first,) = take(consumer, 1)  # it has joined its group, and fetched the rest
        assert [first.offset, *(record.offset for record in consumer)] == list(range(25))
