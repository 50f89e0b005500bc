"""kafka-python: a broker that is killed or stopped and started again loses nothing it acknowledged, repeats nothing."""

import pytest
from confluent_kafka import Producer
from tests.support.broker import Broker
from tests.support.clients.group_members import await_committed, await_shared, members, verdict
from tests.support.kafka_python_client import administering, consuming, producing, read, send
from tests.support.kafka_python_import import OffsetAndMetadata, TopicPartition, errors
from tests.support.waiting import until
from tests.support.workload import judge, keyed


def test_an_idempotent_producer_survives_killed_brokers_without_gap_or_duplicate(own_broker: Broker) -> None:
    topic = own_broker.create_topic("killed", 3)
    told = {"topic": topic, "count": 6_000, "keys": 60, "batch_size": 400}
    with members(own_broker.bootstrap, "kafka_python_producer.py", **told) as start:
        producer = start("producer")
        until(lambda: producer.events_of("begun"), what="the first are acknowledged")
        own_broker.restart()
        until(
            lambda: producer.events_of("done") or producer.events_of("failed"),
            within_s=90,
            what="all are acknowledged",
        )
        assert producer.events_of("done"), producer.events
    values = [record.value for record in read(own_broker, topic, 6_000, partitions=3)]
    places = [TopicPartition(topic, number) for number in range(3)]
    with consuming(own_broker) as consumer:
        assert sum(consumer.end_offsets(places).values()) == 6_000
    judged = judge([item.value for item in keyed(6_000, keys=60)], values)
    assert judged.clean, judged


@pytest.mark.long  # as librdkafka, Java and aiokafka
def test_members_of_a_group_carry_on_when_the_broker_comes_back(own_broker: Broker) -> None:
    topic, group = own_broker.create_topic("carried", 2), own_broker.unique("group")
    sent = [item.value for item in keyed(400)]
    foreign = Producer({"bootstrap.servers": own_broker.bootstrap, "reconnect.backoff.max.ms": 200})
    with members(own_broker.bootstrap, "kafka_python_member.py", topic=topic, group=group) as start:
        ann = start("ann")
        await_shared([ann], 2)
        for item in keyed(200):
            foreign.produce(topic, item.value, item.key)
        assert foreign.flush(30) == 0
        await_committed([ann], sent[:200])
        own_broker.restart()
        for item in keyed(200, start=200):
            foreign.produce(topic, item.value, item.key)
        assert foreign.flush(60) == 0
        await_committed([ann], sent, timeout_s=60)
        ann.leave()
        judged = verdict([ann], sent)
        assert judged.clean, judged


def test_a_polite_stop_keeps_topics_records_settings_and_offsets(own_broker: Broker) -> None:
    topic, group = own_broker.create_topic("kept", 2, {"retention.ms": "7200000"}), own_broker.unique("group")
    place = TopicPartition(topic, 1)
    with producing(own_broker) as producer, consuming(own_broker, group_id=group) as consumer:
        send(producer, topic, [b"%d" % number for number in range(10)], 1)
        consumer.assign([place])
        consumer.commit({place: OffsetAndMetadata(7, "seven", -1)})
    with administering(own_broker) as admin:
        admin.delete_records({place: 2})
        (before,) = admin.describe_topics([topic])
    own_broker.terminate()
    own_broker.start()
    with administering(own_broker) as admin:
        (after,) = admin.describe_topics([topic])
        assert after["topic_id"] == before["topic_id"]

        def kept() -> bool:
            try:
                return bool(admin.list_group_offsets(group)[group][place].offset == 7)
            except errors.RetriableError:  # its coordinator is not there yet
                return False

        until(kept, what="the offset is there")
    assert [record.offset for record in read(own_broker, topic, 8, partitions=2)] == list(range(2, 10))
