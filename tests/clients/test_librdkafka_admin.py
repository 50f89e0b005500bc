"""confluent-kafka: administration of topics, settings and records, with the answers that tools rely on."""

import itertools
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.support.broker import ADMIN_TIMEOUT_S, Broker
from tests.support.librdkafka_client import OFFSETS, consuming, producer, read_all, send_values, take, values
from tests.support.waiting import until


def code(future: Any) -> int:
    """The error that a call ends with."""
    with pytest.raises(KafkaException) as refused:
        future.result(ADMIN_TIMEOUT_S)
    return int(refused.value.args[0].code())


def create(broker: Broker, topic: NewTopic, **options: Any) -> Any:
    return broker.admin.create_topics([topic], **options)[topic.topic]


def known(broker: Broker) -> set[str]:
    return set(broker.admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics)


def settings(broker: Broker, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource("topic", topic)
    answer: dict[str, ConfigEntry] = broker.admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_S)
    return answer


def change(broker: Broker, topic: str, *changes: tuple[str, str | None, AlterConfigOpType]) -> Any:
    entries = [ConfigEntry(name, value, incremental_operation=operation) for name, value, operation in changes]
    resource = ConfigResource("topic", topic, incremental_configs=entries)
    return broker.admin.incremental_alter_configs([resource])[resource]


def await_setting(broker: Broker, topic: str, name: str, *values: str) -> None:
    """Return once the setting has one of `values`: brokers learn of a change a little later than its author."""
    until(lambda: settings(broker, topic)[name].value in values, within_s=10, what=f"{name} is {values}")


def test_a_created_topic_is_listed_with_its_partitions(broker: Broker) -> None:
    topic = broker.create_topic("listed", 5)
    found = broker.admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics[topic]
    assert sorted(found.partitions) == [0, 1, 2, 3, 4]
    for partition in found.partitions.values():
        assert partition.error is None
        assert partition.leader in partition.replicas
        assert partition.leader in partition.isrs


def test_several_topics_are_created_at_once_and_judged_one_by_one(broker: Broker) -> None:
    there = broker.create_topic("there")
    first, second = broker.unique("several"), broker.unique("several")
    asked = [NewTopic(first, 1, 1), NewTopic(there, 1, 1), NewTopic("bad name!", 1, 1), NewTopic(second, 2, 1)]
    answers = broker.admin.create_topics(asked)
    answers[first].result(ADMIN_TIMEOUT_S)
    answers[second].result(ADMIN_TIMEOUT_S)
    assert code(answers[there]) == KafkaError.TOPIC_ALREADY_EXISTS
    assert code(answers["bad name!"]) == KafkaError.TOPIC_EXCEPTION
    assert {first, second} <= known(broker)


def test_a_topic_that_exists_is_not_created_again(broker: Broker) -> None:
    topic = broker.create_topic("once", 3)
    assert code(create(broker, NewTopic(topic, 1, 1))) == KafkaError.TOPIC_ALREADY_EXISTS
    assert len(broker.admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3


@pytest.mark.parametrize("name", ["a/b", ".", "..", "with space", "x" * 250, "naïve", "semi;colon"])
def test_a_name_outside_the_rules_is_refused(broker: Broker, name: str) -> None:
    assert code(create(broker, NewTopic(name, 1, 1))) == KafkaError.TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["x" * 249, "UPPER.lower_0-9", "..."])
def test_every_name_within_the_rules_is_allowed(broker: Broker, name: str) -> None:
    create(broker, NewTopic(name, 1, 1), validate_only=True).result(ADMIN_TIMEOUT_S)


def test_the_broker_decides_the_number_of_partitions_where_it_is_left_open(broker: Broker) -> None:
    topic = broker.unique("open")
    create(broker, NewTopic(topic, -1, -1)).result(ADMIN_TIMEOUT_S)
    assert len(broker.admin.list_topics(topic, timeout=10).topics[topic].partitions) >= 1


@pytest.mark.parametrize(
    "config",
    [
        {"no.such.setting": "1"},
        {"retention.ms": "soon"},
        {"cleanup.policy": "burn"},
        {"max.message.bytes": "-5"},
        {"message.timestamp.type": "SundialTime"},
    ],
    ids=str,
)
def test_a_setting_that_means_nothing_is_refused(broker: Broker, config: dict[str, str]) -> None:
    topic = broker.unique("refused")
    assert code(create(broker, NewTopic(topic, 1, 1, config=config))) == KafkaError.INVALID_CONFIG
    assert topic not in known(broker)


def test_more_replicas_than_there_are_brokers_are_refused(broker: Broker) -> None:
    topic = broker.unique("replicas")
    assert code(create(broker, NewTopic(topic, 1, 10))) == KafkaError.INVALID_REPLICATION_FACTOR
    assert topic not in known(broker)


def test_only_validating_creates_nothing(broker: Broker) -> None:
    topic = broker.unique("validated")
    create(broker, NewTopic(topic, 2, 1), validate_only=True).result(ADMIN_TIMEOUT_S)
    assert topic not in known(broker)
    there = broker.create_topic("validated")
    assert code(create(broker, NewTopic(there, 2, 1), validate_only=True)) == KafkaError.TOPIC_ALREADY_EXISTS


def test_deleting_topics(broker: Broker) -> None:
    topic, never = broker.create_topic("deleted"), broker.unique("never")
    answers = broker.admin.delete_topics([topic, never])
    answers[topic].result(ADMIN_TIMEOUT_S)
    assert code(answers[never]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    until(lambda: topic not in known(broker), what=f"{topic} is gone")


def test_the_number_of_partitions_never_shrinks(broker: Broker) -> None:
    topic = broker.create_topic("fixed", 3)
    answer = broker.admin.create_partitions([NewPartitions(topic, 2)])[topic]
    assert code(answer) == KafkaError.INVALID_PARTITIONS
    assert len(broker.admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3


def test_partitions_are_added_and_can_be_written_at_once(broker: Broker) -> None:
    topic = broker.create_topic("grown", 1)
    checked = broker.admin.create_partitions([NewPartitions(topic, 3)], validate_only=True)[topic]
    assert checked.result(ADMIN_TIMEOUT_S) is None
    assert len(broker.admin.list_topics(topic, timeout=10).topics[topic].partitions) == 1
    assert broker.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(ADMIN_TIMEOUT_S) is None
    until(lambda: len(broker.admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3, what="it has grown")
    send_values(broker, topic, [b"x"], partition=2)
    again = broker.admin.create_partitions([NewPartitions(topic, 3)])[topic]
    assert code(again) == KafkaError.INVALID_PARTITIONS


def test_a_group_gets_the_partitions_that_are_added_and_keeps_its_offsets(broker: Broker) -> None:
    topic, group = broker.create_topic("grown-group", 1), broker.unique("grown-group")
    send_values(broker, topic, [b"a", b"b"])
    settings = {"group.id": group, "topic.metadata.refresh.interval.ms": 200, "auto.offset.reset": "earliest"}
    with consuming(broker, settings) as member:
        member.subscribe([topic])
        assert values(take(member, 2)) == [b"a", b"b"]
        member.commit(asynchronous=False)
        broker.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(ADMIN_TIMEOUT_S)
        send_values(broker, topic, [b"c"], partition=2)
        assert [(message.partition, message.value) for message in take(member, 1)] == [(2, b"c")]
        until(lambda: member.poll(0.05) or len(member.assignment()) == 3, what="all partitions are assigned")


def test_a_producer_with_keys_goes_on_while_partitions_are_added(broker: Broker) -> None:
    topic = broker.create_topic("grown-keys", 1)
    client = producer(broker, {"enable.idempotence": True, "topic.metadata.refresh.interval.ms": 100, "linger.ms": 0})
    sent: list[tuple[bytes, int, int]] = []

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        sent.append((message.value() or b"", message.partition() or 0, message.offset() or 0))

    def send_more() -> bool:
        number = next(numbers)
        client.produce(topic, b"%d" % number, key=b"key-%d" % (number % 50), on_delivery=note)
        client.poll(0.01)
        return {partition for _, partition, _ in sent} == {0, 1, 2}

    numbers = itertools.count()
    for _ in range(50):
        send_more()
    broker.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(ADMIN_TIMEOUT_S)
    until(send_more, what="keys go to the new partitions")
    assert client.flush(30) == 0
    assert len({value for value, _, _ in sent}) == len(sent) == next(numbers)
    read = read_all(broker, topic, partitions=(0, 1, 2))
    assert sorted((each.value or b"", each.partition, each.offset) for each in read) == sorted(sent)


def test_partitions_of_an_unknown_topic(broker: Broker) -> None:
    never = broker.unique("never")
    answer = broker.admin.create_partitions([NewPartitions(never, 6)])[never]
    assert code(answer) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_settings_tell_their_values_and_where_they_come_from(broker: Broker) -> None:
    topic = broker.create_topic("settings", 1, {"retention.ms": "3600000", "cleanup.policy": "compact"})
    found = settings(broker, topic)
    for name, value in {"retention.ms": "3600000", "cleanup.policy": "compact"}.items():
        assert found[name].value == value
        source: Any = found[name].source  # a number, whatever its type says
        assert source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        assert not found[name].is_default
    for name, value in {"max.message.bytes": "1048588", "message.timestamp.type": "CreateTime"}.items():
        assert found[name].value == value
        assert found[name].is_default
    assert not any(entry.is_sensitive for entry in found.values())
    assert not any(found[name].is_read_only for name in ("retention.ms", "cleanup.policy", "max.message.bytes"))


def test_settings_of_an_unknown_topic(broker: Broker) -> None:
    resource = ConfigResource("topic", broker.unique("never"))
    assert code(broker.admin.describe_configs([resource])[resource]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_settings_of_the_broker(broker: Broker) -> None:
    (node, *_) = broker.admin.describe_cluster().result(ADMIN_TIMEOUT_S).nodes
    resource = ConfigResource("broker", str(node.id))
    assert broker.admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_S)


def test_settings_are_changed_one_by_one(broker: Broker) -> None:
    topic = broker.create_topic("changed", 1, {"retention.ms": "3600000", "max.message.bytes": "50000"})
    one = ("retention.ms", "7200000", AlterConfigOpType.SET)
    two = ("max.message.bytes", None, AlterConfigOpType.DELETE)
    change(broker, topic, one, two).result(ADMIN_TIMEOUT_S)
    await_setting(broker, topic, "retention.ms", "7200000")
    found = settings(broker, topic)
    assert found["max.message.bytes"].value == "1048588"
    assert found["max.message.bytes"].is_default


def test_a_list_is_added_to_and_taken_from(broker: Broker) -> None:
    topic = broker.create_topic("policy", 1, {"cleanup.policy": "delete"})
    change(broker, topic, ("cleanup.policy", "compact", AlterConfigOpType.APPEND)).result(ADMIN_TIMEOUT_S)
    await_setting(broker, topic, "cleanup.policy", "compact,delete", "delete,compact")
    change(broker, topic, ("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)).result(ADMIN_TIMEOUT_S)
    await_setting(broker, topic, "cleanup.policy", "compact")


def test_a_change_that_means_nothing_is_refused_and_changes_nothing(broker: Broker) -> None:
    topic = broker.create_topic("unchanged", 1, {"retention.ms": "3600000"})
    good = ("retention.ms", "1", AlterConfigOpType.SET)
    for bad in (("max.message.bytes", "much"), ("no.such.setting", "1")):
        assert code(change(broker, topic, good, (*bad, AlterConfigOpType.SET))) == KafkaError.INVALID_CONFIG
    assert settings(broker, topic)["retention.ms"].value == "3600000"


def test_settings_of_an_unknown_topic_are_not_changed(broker: Broker) -> None:
    answer = change(broker, broker.unique("never"), ("retention.ms", "1", AlterConfigOpType.SET))
    assert code(answer) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_replacing_all_settings_forgets_the_others(broker: Broker) -> None:
    topic = broker.create_topic("replaced", 1, {"retention.ms": "3600000"})
    resource = ConfigResource("topic", topic, set_config={"max.message.bytes": "50000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        broker.admin.alter_configs([resource])[resource].result(ADMIN_TIMEOUT_S)
    await_setting(broker, topic, "max.message.bytes", "50000")
    assert settings(broker, topic)["retention.ms"].is_default


def test_a_changed_limit_holds(broker: Broker) -> None:
    topic = broker.create_topic("limit-changed")
    send_values(broker, topic, [b"x" * 20_000])
    change(broker, topic, ("max.message.bytes", "10000", AlterConfigOpType.SET)).result(ADMIN_TIMEOUT_S)

    def refused() -> int:
        try:
            send_values(broker, topic, [b"x" * 20_000])
        except KafkaException as error:
            return int(error.args[0].code())
        return 0

    assert until(refused, what="the leader has learnt of it") == KafkaError.MSG_SIZE_TOO_LARGE


def test_deleted_records_are_gone_for_every_reader(broker: Broker) -> None:
    topic = broker.create_topic("shortened", 2)
    send_values(broker, topic, [b"%d" % index for index in range(10)], {"batch.num.messages": 3})
    partition = TopicPartition(topic, 0, 5)
    answer = broker.admin.delete_records([partition])[partition].result(ADMIN_TIMEOUT_S)
    assert answer.low_watermark == 5
    assert values(read_all(broker, topic)) == [b"%d" % index for index in range(5, 10)]
    earliest = broker.admin.list_offsets({TopicPartition(topic, 0): OFFSETS.earliest()})
    assert earliest[TopicPartition(topic, 0)].result(ADMIN_TIMEOUT_S).offset == 5
    with consuming(broker) as client:
        assert client.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (5, 10)
    assert values(read_all(broker, topic, start=2)) == [
        b"%d" % index for index in range(5, 10)
    ]  # reset to the earliest


def test_deleting_all_records_keeps_the_end(broker: Broker) -> None:
    topic = broker.create_topic("emptied")
    send_values(broker, topic, [b"x"] * 10)
    partition = TopicPartition(topic, 0, -1)
    assert broker.admin.delete_records([partition])[partition].result(ADMIN_TIMEOUT_S).low_watermark == 10
    assert read_all(broker, topic) == []
    assert send_values(broker, topic, [b"next"])[0].offset == 10
    assert values(read_all(broker, topic)) == [b"next"]


def test_deleting_records_beyond_the_end_is_refused(broker: Broker) -> None:
    topic = broker.create_topic("not-so-long")
    send_values(broker, topic, [b"x"] * 3)
    partition = TopicPartition(topic, 0, 4)
    assert code(broker.admin.delete_records([partition])[partition]) == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_cluster_describes_itself(broker: Broker) -> None:
    cluster = broker.admin.describe_cluster().result(ADMIN_TIMEOUT_S)
    assert cluster.cluster_id
    assert cluster.controller.id in [node.id for node in cluster.nodes]
    assert f"{cluster.nodes[0].host}:{cluster.nodes[0].port}" == broker.bootstrap
    metadata = broker.admin.list_topics(timeout=ADMIN_TIMEOUT_S)
    assert metadata.cluster_id == cluster.cluster_id
    assert metadata.controller_id == cluster.controller.id
    assert set(metadata.brokers) == {node.id for node in cluster.nodes}


def test_topics_describe_themselves(broker: Broker) -> None:
    first, second = broker.create_topic("described", 3), broker.create_topic("described")
    never = broker.unique("never")
    answers = broker.admin.describe_topics(TopicCollection([first, second, never]))
    one, two = answers[first].result(ADMIN_TIMEOUT_S), answers[second].result(ADMIN_TIMEOUT_S)
    assert [partition.id for partition in one.partitions] == [0, 1, 2]
    assert not one.is_internal
    assert str(one.topic_id) != str(two.topic_id)
    for partition in one.partitions:
        assert partition.leader.id in [node.id for node in partition.replicas]
        assert partition.leader.id in [node.id for node in partition.isr]
    assert code(answers[never]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_made_again_has_another_id(broker: Broker) -> None:
    topic = broker.create_topic("identity")

    def identity() -> str:
        answer = broker.admin.describe_topics(TopicCollection([topic]))[topic].result(ADMIN_TIMEOUT_S)
        return str(answer.topic_id)

    before = identity()
    broker.admin.delete_topics([topic])[topic].result(ADMIN_TIMEOUT_S)
    create(broker, NewTopic(topic, 1, 1)).result(ADMIN_TIMEOUT_S)
    until(lambda: topic in known(broker), what="it is there again")
    assert identity() != before
