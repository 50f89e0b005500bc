"""confluent-kafka: administration of groups and their offsets."""

from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from tests.support.broker import ADMIN_TIMEOUT_S, Broker
from tests.support.librdkafka_client import consuming, send_values, take, values
from tests.support.waiting import until


@pytest.fixture
def topic(broker: Broker) -> str:
    topic = broker.create_topic("groups", 2)
    for partition in range(2):
        send_values(broker, topic, [b"%d" % index for index in range(20)], partition=partition)
    return topic


@pytest.fixture
def group(broker: Broker, topic: str) -> str:
    """A group without members that has committed."""
    group = broker.unique("groups")
    with consuming(broker, {"group.id": group}) as client:
        offsets = [TopicPartition(topic, 0, 5, metadata="note"), TopicPartition(topic, 1, 7)]
        client.commit(offsets=offsets, asynchronous=False)
    return group


def code(future: Any) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(ADMIN_TIMEOUT_S)
    return int(refused.value.args[0].code())


def listed(broker: Broker, **options: Any) -> dict[str, Any]:
    answer = broker.admin.list_consumer_groups(**options).result(ADMIN_TIMEOUT_S)
    assert not answer.errors
    return {each.group_id: each for each in answer.valid}


def described(broker: Broker, group: str) -> Any:
    return broker.admin.describe_consumer_groups([group])[group].result(ADMIN_TIMEOUT_S)


def offsets(broker: Broker, group: str, asked: list[TopicPartition] | None = None) -> dict[int, int]:
    request = [ConsumerGroupTopicPartitions(group, asked)]
    answer = broker.admin.list_consumer_group_offsets(request)[group].result(ADMIN_TIMEOUT_S)
    return {each.partition: each.offset for each in answer.topic_partitions}


def alter(broker: Broker, group: str, to: list[TopicPartition]) -> Any:
    return broker.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, to)])[group]


def test_groups_are_listed_by_state(broker: Broker, topic: str, group: str) -> None:
    living = broker.unique("living")
    with consuming(broker, {"group.id": living}) as client:
        client.subscribe([topic])
        take(client, 1)
        everyone = listed(broker)
        assert everyone[group].state == ConsumerGroupState.EMPTY
        assert everyone[living].state == ConsumerGroupState.STABLE
        assert group in listed(broker, states={ConsumerGroupState.EMPTY})
        assert living not in listed(broker, states={ConsumerGroupState.EMPTY})
        assert living in listed(broker, states={ConsumerGroupState.STABLE})


def test_a_group_describes_its_members(broker: Broker, topic: str) -> None:
    group = broker.unique("described")
    with consuming(broker, {"group.id": group, "client.id": "ann", "group.instance.id": "one"}) as client:
        client.subscribe([topic])
        take(client, 1)
        told = described(broker, group)
        assert told.state == ConsumerGroupState.STABLE
        assert told.partition_assignor == "range"
        assert not told.is_simple_consumer_group
        assert told.coordinator.port == int(broker.bootstrap.rpartition(":")[2])
        (member,) = told.members
        assert member.client_id == "ann"
        assert member.group_instance_id == "one"
        assert member.member_id == client.memberid()
        assert member.host.strip("/").startswith("127.0.0.1")
        assigned = [(each.topic, each.partition) for each in member.assignment.topic_partitions]
        assert sorted(assigned) == [(topic, 0), (topic, 1)]


def test_a_group_without_members_describes_itself_as_empty(broker: Broker, group: str) -> None:
    told = described(broker, group)
    assert told.state == ConsumerGroupState.EMPTY
    assert told.members == []


def test_an_unknown_group_is_dead(broker: Broker) -> None:
    never = broker.unique("never")
    assert described(broker, never).state == ConsumerGroupState.DEAD
    assert never not in listed(broker)


def test_offsets_are_listed(broker: Broker, topic: str, group: str) -> None:
    assert offsets(broker, group) == {0: 5, 1: 7}
    assert offsets(broker, group, [TopicPartition(topic, 1)]) == {1: 7}


def test_offsets_of_an_unknown_group_are_none(broker: Broker, topic: str) -> None:
    assert offsets(broker, broker.unique("never")) == {}
    assert offsets(broker, broker.unique("never"), [TopicPartition(topic, 0)]) == {0: -1001}


def test_offsets_are_altered_and_the_group_goes_on_there(broker: Broker, topic: str, group: str) -> None:
    alter(broker, group, [TopicPartition(topic, 0, 19), TopicPartition(topic, 1, 18)]).result(ADMIN_TIMEOUT_S)
    assert offsets(broker, group) == {0: 19, 1: 18}
    with consuming(broker, {"group.id": group}) as client:
        client.subscribe([topic])
        assert sorted(values(take(client, 3))) == [b"18", b"19", b"19"]


def test_altering_offsets_makes_a_group(broker: Broker, topic: str) -> None:
    group = broker.unique("made")
    alter(broker, group, [TopicPartition(topic, 0, 3)]).result(ADMIN_TIMEOUT_S)
    assert offsets(broker, group) == {0: 3}
    assert group in listed(broker)


def test_offsets_of_a_living_group_are_not_altered(broker: Broker, topic: str) -> None:
    group = broker.unique("living")
    with consuming(broker, {"group.id": group}) as client:
        client.subscribe([topic])
        take(client, 1)
        (answer,) = alter(broker, group, [TopicPartition(topic, 0, 3)]).result(ADMIN_TIMEOUT_S).topic_partitions
        assert answer.error.code() == KafkaError.UNKNOWN_MEMBER_ID


def test_a_group_is_deleted_with_its_offsets(broker: Broker, topic: str, group: str) -> None:
    broker.admin.delete_consumer_groups([group])[group].result(ADMIN_TIMEOUT_S)
    assert group not in listed(broker)
    assert offsets(broker, group, [TopicPartition(topic, 0)]) == {0: -1001}


def test_a_living_group_is_not_deleted(broker: Broker, topic: str) -> None:
    group = broker.unique("living")
    with consuming(broker, {"group.id": group}) as client:
        client.subscribe([topic])
        take(client, 1)
        assert code(broker.admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
    until(lambda: described(broker, group).state == ConsumerGroupState.EMPTY, what="the member has left")
    broker.admin.delete_consumer_groups([group])[group].result(ADMIN_TIMEOUT_S)


def test_an_unknown_group_is_not_deleted(broker: Broker) -> None:
    never = broker.unique("never")
    assert code(broker.admin.delete_consumer_groups([never])[never]) == KafkaError.GROUP_ID_NOT_FOUND
