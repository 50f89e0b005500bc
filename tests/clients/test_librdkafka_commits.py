"""confluent-kafka: what a group has committed is where it goes on, and only its current members commit."""

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from tests.support.broker import Broker
from tests.support.librdkafka_client import consuming, send_values, take, values
from tests.support.waiting import until


@pytest.fixture
def topic(broker: Broker) -> str:
    """Two partitions of a hundred records."""
    topic = broker.create_topic("commits", 2)
    for partition in range(2):
        send_values(broker, topic, [b"%d" % index for index in range(100)], partition=partition)
    return topic


@pytest.fixture
def group(broker: Broker) -> str:
    return broker.unique("commits")


def committed(broker: Broker, group: str, topic: str) -> list[int]:
    with consuming(broker, {"group.id": group}) as client:
        asked = [TopicPartition(topic, partition) for partition in range(2)]
        return [each.offset for each in client.committed(asked, timeout=10)]


def test_a_group_that_never_committed_has_no_offsets(broker: Broker, topic: str, group: str) -> None:
    assert committed(broker, group, topic) == [OFFSET_INVALID, OFFSET_INVALID]


def test_a_group_goes_on_where_it_committed(broker: Broker, topic: str, group: str) -> None:
    with consuming(broker, {"group.id": group}) as client:
        client.subscribe([topic])
        take(client, 50)
        client.commit(asynchronous=False)
        before = {each.partition: each.offset for each in client.position(client.assignment())}
    with consuming(broker, {"group.id": group}) as client:
        client.subscribe([topic])
        rest = take(client, 150)
    assert len(rest) == 150
    for partition, offset in before.items():
        mine = [message.offset for message in rest if message.partition == partition]
        assert mine == list(range(max(offset, 0), 100))


def test_records_read_but_not_committed_are_read_again(broker: Broker, topic: str, group: str) -> None:
    for _ in range(2):
        with consuming(broker, {"group.id": group}) as client:
            client.subscribe([topic])
            assert len(take(client, 200)) == 200


def test_offsets_are_committed_one_by_one(broker: Broker, topic: str, group: str) -> None:
    with consuming(broker, {"group.id": group}) as client:
        answers = client.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
        assert [(each.partition, each.offset, each.error) for each in answers] == [(0, 7, None)]
        client.commit(offsets=[TopicPartition(topic, 1, 9)], asynchronous=False)
        client.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)  # going back is allowed
    assert committed(broker, group, topic) == [3, 9]


def test_an_asynchronous_commit_calls_back_when_it_is_done(broker: Broker, topic: str, group: str) -> None:
    told: list[tuple[KafkaError | None, list[int]]] = []

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        told.append((error, [each.offset for each in partitions]))

    with consuming(broker, {"group.id": group, "on_commit": on_commit}) as client:
        client.subscribe([topic])
        (message, *_) = take(client, 1)
        client.commit(offsets=[TopicPartition(topic, message.partition, 42)], asynchronous=True)
        until(lambda: client.poll(0.05) and told, what="the commit is told")
    assert told == [(None, [42])]


def test_a_commit_carries_a_note(broker: Broker, topic: str, group: str) -> None:
    notes = ["", "plain", "värde – 値 – 🪨", "x" * 4_000]
    with consuming(broker, {"group.id": group}) as client:
        for note in notes:
            client.commit(offsets=[TopicPartition(topic, 0, 5, metadata=note)], asynchronous=False)
            (found,) = client.committed([TopicPartition(topic, 0)], timeout=10)
            assert found.offset == 5
            assert (found.metadata or "") == note


def test_a_note_that_is_too_long_is_refused(broker: Broker, topic: str, group: str) -> None:
    with consuming(broker, {"group.id": group}) as client:
        with pytest.raises(KafkaException) as refused:
            client.commit(offsets=[TopicPartition(topic, 0, 5, metadata="x" * 5_000)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert committed(broker, group, topic) == [OFFSET_INVALID, OFFSET_INVALID]


def test_a_commit_for_an_unknown_topic_is_refused(broker: Broker, group: str) -> None:
    with consuming(broker, {"group.id": group}) as client, pytest.raises(KafkaException) as refused:
        client.commit(offsets=[TopicPartition(broker.unique("never"), 0, 5)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_commits_by_the_clock_of_the_client(broker: Broker, topic: str, group: str) -> None:
    config = {"group.id": group, "enable.auto.commit": True, "auto.commit.interval.ms": 100}
    with consuming(broker, config) as client:
        client.subscribe([topic])
        assert len(take(client, 200)) == 200
        until(lambda: client.poll(0.05) or committed(broker, group, topic) == [100, 100], what="it commits by itself")


def test_closing_commits_what_was_read(broker: Broker, topic: str, group: str) -> None:
    with consuming(broker, {"group.id": group, "enable.auto.commit": True}) as client:
        client.subscribe([topic])
        assert len(take(client, 200)) == 200
    assert committed(broker, group, topic) == [100, 100]


def test_a_committed_offset_beyond_the_end_is_reset(broker: Broker, topic: str, group: str) -> None:
    with consuming(broker, {"group.id": group}) as client:
        asked = [TopicPartition(topic, 0, 5_000), TopicPartition(topic, 1, 99)]
        client.commit(offsets=asked, asynchronous=False)
    with consuming(broker, {"group.id": group}) as client:
        client.subscribe([topic])
        found = take(client, 101)
    assert sorted(message.offset for message in found if message.partition == 0) == list(range(100))
    assert values(message for message in found if message.partition == 1) == [b"99"]


def test_groups_do_not_share_offsets(broker: Broker, topic: str) -> None:
    groups = [broker.unique("commits") for _ in range(3)]
    for index, group in enumerate(groups):
        with consuming(broker, {"group.id": group}) as client:
            client.commit(offsets=[TopicPartition(topic, 0, index)], asynchronous=False)
    for index, group in enumerate(groups):
        assert committed(broker, group, topic) == [index, OFFSET_INVALID]


def test_an_outsider_cannot_commit_for_a_living_group(broker: Broker, topic: str, group: str) -> None:
    with consuming(broker, {"group.id": group}) as member, consuming(broker, {"group.id": group}) as outsider:
        member.subscribe([topic])
        take(member, 1)
        with pytest.raises(KafkaException) as refused:
            outsider.commit(offsets=[TopicPartition(topic, 0, 50)], asynchronous=False)
        assert refused.value.args[0].code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
    assert committed(broker, group, topic) == [OFFSET_INVALID, OFFSET_INVALID]


def test_many_commits_in_a_row(broker: Broker, topic: str, group: str) -> None:
    with consuming(broker, {"group.id": group}) as client:
        for offset in range(100):
            partition = TopicPartition(topic, offset % 2, offset)
            client.commit(offsets=[partition], asynchronous=True)
        client.commit(offsets=[TopicPartition(topic, 0, 100), TopicPartition(topic, 1, 100)], asynchronous=False)
    assert committed(broker, group, topic) == [100, 100]
