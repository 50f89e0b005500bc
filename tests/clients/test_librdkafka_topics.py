"""confluent-kafka: topics that are unknown, come later, go, and come again."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.cimpl import NewTopic
from tests.support.broker import ADMIN_TIMEOUT_S, Broker
from tests.support.librdkafka_client import consuming, producer, read_all, send_values, take, take_until, values
from tests.support.waiting import until

SOON = {"topic.metadata.refresh.interval.ms": 300, "metadata.max.age.ms": 1_000}


def delete(broker: Broker, topic: str) -> None:
    broker.admin.delete_topics([topic])[topic].result(ADMIN_TIMEOUT_S)
    until(lambda: topic not in broker.admin.list_topics(timeout=10).topics, what=f"{topic} is gone")


def create(broker: Broker, topic: str, partitions: int = 1) -> None:
    broker.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(ADMIN_TIMEOUT_S)


def first_error(client: Consumer) -> int | None:
    message = client.poll(20)
    assert message is not None
    error = message.error()
    return None if error is None else error.code()


def test_a_producer_creates_the_topic_it_names(broker: Broker) -> None:
    topic = broker.unique("made-by-producer")
    send_values(broker, topic, [b"hello"], partition=-1)
    assert values(read_all(broker, topic)) == [b"hello"]


def test_a_consumer_of_an_unknown_topic_gets_an_error(broker: Broker) -> None:
    topic = broker.unique("nowhere")
    with consuming(broker, {"allow.auto.create.topics": False}) as client:
        client.subscribe([topic])
        assert first_error(client) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in broker.admin.list_topics(timeout=10).topics


def test_a_consumer_that_may_creates_the_topic(broker: Broker) -> None:
    topic = broker.unique("made-by-consumer")
    with consuming(broker, {"allow.auto.create.topics": True, **SOON}) as client:
        client.subscribe([topic])
        until(lambda: client.poll(0.1) or client.assignment(), what="the topic is made and assigned")
        send_values(broker, topic, [b"hello"])
        take_until(client, b"hello")


def test_a_metadata_request_for_one_topic_creates_it(broker: Broker) -> None:
    topic = broker.unique("asked")
    told = broker.admin.list_topics(topic, timeout=10).topics[topic].error
    # Apache's broker says at first that it is being made; ours waits until it is.
    assert told is None or told.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
    until(lambda: topic in broker.admin.list_topics(timeout=10).topics, what="the topic is made")


def test_a_name_that_no_topic_may_have_is_refused(broker: Broker) -> None:
    done: list[Message] = []
    client = producer(broker)
    client.produce("no/slashes", b"x", on_delivery=lambda _, message: done.append(message))
    assert client.flush(20) == 0
    error = done[0].error()
    assert error is not None
    assert error.code() == KafkaError.TOPIC_EXCEPTION


def test_a_partition_that_a_topic_does_not_have_is_refused(broker: Broker) -> None:
    topic = broker.create_topic("narrow", 2)
    with pytest.raises(KafkaException) as refused:
        send_values(broker, topic, [b"x"], partition=2)
    assert refused.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


def test_a_subscription_waits_for_a_topic_that_is_created_later(broker: Broker) -> None:
    topic = broker.unique("later")
    with consuming(broker, {"allow.auto.create.topics": False, **SOON}) as client:
        client.subscribe([topic])
        assert first_error(client) == KafkaError.UNKNOWN_TOPIC_OR_PART
        create(broker, topic, 2)
        send_values(broker, topic, [b"hello"], partition=1)
        take_until(client, b"hello")


def test_a_pattern_finds_topics_as_they_come(broker: Broker) -> None:
    prefix = broker.unique("pattern")
    create(broker, f"{prefix}-a")
    with consuming(broker, SOON) as client:
        client.subscribe([f"^{prefix}-.*"])
        send_values(broker, f"{prefix}-a", [b"a"])
        assert values(take(client, 1)) == [b"a"]
        create(broker, f"{prefix}-b")
        send_values(broker, f"{prefix}-b", [b"b"])
        take_until(client, b"b")  # after a rebalance, which lets it read again what it did not commit


def test_a_topic_made_again_is_empty(broker: Broker) -> None:
    topic = broker.create_topic("again")
    send_values(broker, topic, [b"old"] * 10)
    delete(broker, topic)
    create(broker, topic, 3)
    assert len(broker.admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3
    assert [message.offset for message in send_values(broker, topic, [b"new"], partition=2)] == [0]
    assert values(read_all(broker, topic, range(3))) == [b"new"]


def test_a_consumer_and_a_producer_live_through_deletion_and_return(broker: Broker) -> None:
    topic = broker.create_topic("phoenix")
    with consuming(broker, SOON) as client:
        client.subscribe([topic])
        writer = producer(broker, {**SOON, "topic.metadata.propagation.max.ms": 1_000})
        writer.produce(topic, b"before")
        assert writer.flush(20) == 0
        assert values(take(client, 1)) == [b"before"]
        broker.admin.delete_topics([topic])[topic].result(ADMIN_TIMEOUT_S)
        failed = broker.admin.create_topics([NewTopic(topic, 1, 1)])[topic].exception(ADMIN_TIMEOUT_S)
        # The producer asks for its metadata now and then, which creates the topic.
        assert failed is None or failed.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        seen: list[Message] = []

        def written_and_read() -> bool:
            writer.produce(topic, b"after")
            writer.poll(0.05)
            seen.extend(message for message in client.consume(10, 0.1) if message.error() is None)
            return any(message.value() == b"after" for message in seen)

        until(written_and_read, what="both go on with the new topic")
        writer.flush(20)


def test_a_deleted_topic_takes_its_groups_offsets_with_it(broker: Broker) -> None:
    topic, group = broker.create_topic("offsets-go"), broker.unique("group")
    send_values(broker, topic, [b"x"] * 5)
    with consuming(broker, {"group.id": group}) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        take(client, 5)
        client.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    delete(broker, topic)
    create(broker, topic)
    send_values(broker, topic, [b"new"])
    with consuming(broker, {"group.id": group}) as client:
        until(lambda: client.committed([TopicPartition(topic, 0)], timeout=10)[0].offset < 0, what="it is forgotten")
        client.subscribe([topic])
        assert values(take(client, 1)) == [b"new"]
