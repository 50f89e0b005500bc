"""confluent-kafka: where a consumer starts. Offsets by time, watermarks, resets, seeking, pausing."""

from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from tests.support.broker import Broker
from tests.support.librdkafka_client import OFFSETS, consuming, drain, got, read_all, send, send_values, take, values
from tests.support.record_shapes import KEEP, Shape

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def timed(broker: Broker) -> str:
    """Ten records, a second apart, in batches of several sizes."""
    topic = broker.create_topic("timed", 1, KEEP)
    times = [START_MS + 1_000 * index for index in range(10)]
    for part in (times[:1], times[1:4], times[4:5], times[5:]):
        send(broker, topic, [Shape(name="", timestamp_ms=time_ms) for time_ms in part], {"linger.ms": 50})
    return topic


@pytest.fixture(scope="module")
def shuffled(broker: Broker) -> str:
    """Five records whose times go up and down."""
    topic = broker.create_topic("shuffled", 1, KEEP)
    for second in (3, 9, 1, 9, 4):
        send(broker, topic, [Shape(name="", timestamp_ms=START_MS + second * 1_000)])
    return topic


@pytest.mark.parametrize(
    ("after_ms", "offset"),
    [(-500, 0), (0, 0), (1, 1), (1_000, 1), (2_500, 3), (4_000, 4), (6_500, 7), (8_999, 9), (9_000, 9)],
)
def test_the_first_offset_at_or_after_a_time(broker: Broker, timed: str, after_ms: int, offset: int) -> None:
    with consuming(broker) as client:
        (found,) = client.offsets_for_times([TopicPartition(timed, 0, START_MS + after_ms)], timeout=10)
    assert found.error is None
    assert found.offset == offset


def test_a_time_after_the_last_record_gives_the_end(broker: Broker, timed: str) -> None:
    with consuming(broker) as client:
        (found,) = client.offsets_for_times([TopicPartition(timed, 0, START_MS + 9_001)], timeout=10)
    assert found.offset == OFFSET_END


def test_times_that_go_up_and_down_still_give_the_first_offset_at_or_after(broker: Broker, shuffled: str) -> None:
    with consuming(broker) as client:
        expected = {1: 0, 3: 0, 4: 1, 9: 1}
        for second, offset in expected.items():
            (found,) = client.offsets_for_times([TopicPartition(shuffled, 0, START_MS + second * 1_000)], timeout=10)
            assert found.offset == offset


def test_timestamps_of_many_partitions_are_looked_up_at_once(broker: Broker) -> None:
    topic = broker.create_topic("timed-wide", 4, KEEP)
    for partition in range(3):  # the fourth stays empty
        shapes = [Shape(name="", timestamp_ms=START_MS + 1_000 * index) for index in range(partition + 1)]
        send(broker, topic, shapes, partition=partition)
    with consuming(broker) as client:
        asked = [TopicPartition(topic, partition, START_MS + 1_000) for partition in range(4)]
        found = client.offsets_for_times(asked, timeout=10)
    assert [each.offset for each in sorted(found, key=lambda each: each.partition)] == [OFFSET_END, 1, 1, OFFSET_END]


def test_list_offsets_finds_earliest_latest_timestamp_and_max_timestamp(broker: Broker, shuffled: str) -> None:
    partition = TopicPartition(shuffled, 0)

    def ask(spec: Any) -> tuple[int, int]:
        answer = broker.admin.list_offsets({partition: spec}, request_timeout=10)[partition].result()
        return answer.offset, answer.timestamp

    assert ask(OFFSETS.earliest()) == (0, -1)
    assert ask(OFFSETS.latest()) == (5, -1)
    assert ask(OFFSETS.for_timestamp(START_MS + 3_500)) == (1, START_MS + 9_000)
    assert ask(OFFSETS.for_timestamp(START_MS + 9_001)) == (-1, -1)
    assert ask(OFFSETS.max_timestamp()) == (1, START_MS + 9_000)


def test_list_offsets_of_an_empty_partition(broker: Broker) -> None:
    partition = TopicPartition(broker.create_topic("empty"), 0)
    for spec, offset in ((OFFSETS.earliest(), 0), (OFFSETS.latest(), 0), (OFFSETS.max_timestamp(), -1)):
        answer = broker.admin.list_offsets({partition: spec}, request_timeout=10)[partition].result()
        assert (answer.offset, answer.timestamp) == (offset, -1)


def test_list_offsets_reads_the_same_when_only_committed_records_count(broker: Broker, timed: str) -> None:
    partition = TopicPartition(timed, 0)
    answers = broker.admin.list_offsets(
        {partition: OFFSETS.latest()}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=10
    )
    assert answers[partition].result().offset == 10


def test_list_offsets_of_a_partition_that_is_not_there_is_an_error(broker: Broker, timed: str) -> None:
    partition = TopicPartition(timed, 7)
    with pytest.raises(KafkaException) as refused:
        broker.admin.list_offsets({partition: OFFSETS.latest()}, request_timeout=5)[partition].result()
    assert refused.value.args[0].code() == KafkaError._NOENT  # the client finds no leader for it


def test_watermarks_follow_the_log(broker: Broker) -> None:
    topic = broker.create_topic("watermarks")
    with consuming(broker) as client:
        assert client.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 0)
        send_values(broker, topic, [b"x"] * 25)
        assert client.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 25)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_both_isolation_levels_read_everything(broker: Broker, timed: str, isolation: str) -> None:
    assert len(read_all(broker, timed, config={"isolation.level": isolation})) == 10


@pytest.mark.parametrize(("reset", "found"), [("earliest", [b"0", b"1", b"2", b"new"]), ("latest", [b"new"])])
def test_without_a_committed_offset_the_reset_policy_decides(broker: Broker, reset: str, found: list[bytes]) -> None:
    topic = broker.create_topic("reset")
    send_values(broker, topic, [b"%d" % index for index in range(3)])
    with consuming(broker, {"auto.offset.reset": reset, "enable.partition.eof": True}) as client:
        client.subscribe([topic])
        seen = drain(client, 1)
        send_values(broker, topic, [b"new"])
        assert values([*seen, *take(client, 1)]) == found


def test_a_reset_policy_of_error_raises_without_an_offset(broker: Broker) -> None:
    topic = broker.create_topic("reset-error")
    send_values(broker, topic, [b"x"])
    with consuming(broker, {"auto.offset.reset": "error"}) as client:
        client.subscribe([topic])
        message = client.poll(20)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 10), ("latest", 0)])
def test_an_offset_beyond_the_end_is_reset(broker: Broker, timed: str, reset: str, expected: int) -> None:
    assert len(read_all(broker, timed, config={"auto.offset.reset": reset}, start=1_000)) == expected


def test_an_offset_beyond_the_end_is_an_error_where_the_client_wants_one(broker: Broker, timed: str) -> None:
    with consuming(broker, {"auto.offset.reset": "error"}) as client:
        client.assign([TopicPartition(timed, 0, 1_000)])
        message = client.poll(20)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET


@pytest.mark.parametrize(("start", "expected"), [(OFFSET_BEGINNING, 10), (OFFSET_END, 0), (4, 6), (10, 0)])
def test_a_consumer_starts_at_the_given_offset(broker: Broker, timed: str, start: int, expected: int) -> None:
    assert len(read_all(broker, timed, start=start)) == expected


def test_seeking_back_and_forth(broker: Broker) -> None:
    topic = broker.create_topic("seek")
    send_values(broker, topic, [b"%d" % index for index in range(100)])
    with consuming(broker) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        assert values(take(client, 10)) == [b"%d" % index for index in range(10)]
        for offset in (50, 0, 99, 33):
            client.seek(TopicPartition(topic, 0, offset))
            assert take(client, 1)[0].value == b"%d" % offset
            assert client.position([TopicPartition(topic, 0)])[0].offset == offset + 1


def test_a_paused_partition_is_silent_until_it_is_resumed(broker: Broker) -> None:
    topic = broker.create_topic("pause", 2)
    for partition in range(2):
        send_values(broker, topic, [b"p%d" % partition] * 50, partition=partition)
    with consuming(broker) as client:
        both = [TopicPartition(topic, partition, 0) for partition in range(2)]
        client.assign(both)
        client.pause(both[:1])
        assert set(values(take(client, 50))) == {b"p1"}
        assert client.poll(0.3) is None
        client.resume(both[:1])
        assert set(values(take(client, 50))) == {b"p0"}


def test_the_end_of_a_partition_is_reported_each_time_it_is_reached(broker: Broker) -> None:
    topic = broker.create_topic("eof")
    with consuming(broker, {"enable.partition.eof": True}) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        for turn in range(3):
            send_values(broker, topic, [b"%d" % turn])
            message = client.poll(20)
            while message is not None and message.error() is not None:  # the end of the turn before
                message = client.poll(20)
            assert message is not None
            assert got(message).offset == turn
            assert drain(client, 1) == []
