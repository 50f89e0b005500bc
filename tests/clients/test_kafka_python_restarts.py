"""kafka-python: a broker that is killed or stopped and started again loses nothing it acknowledged, repeats nothing."""

import gc
import threading
from collections.abc import Iterator

import pytest
from tests.clients.broker import Broker
from tests.clients.kp_client import OffsetAndMetadata, TopicPartition
from tests.clients.kp_steps import TIMEOUT_S, administering, consuming, joined, producing, read, send, take
from tests.clients.workload import judge, keyed

# The client forgets to close the socket of each connection that is refused.
pytestmark = pytest.mark.filterwarnings("ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    """The forgotten sockets are collected here, not in the midst of another test."""
    yield
    gc.collect()


def test_an_idempotent_producer_survives_a_killed_broker_without_gap_or_duplicate(own_broker: Broker) -> None:
    topic = own_broker.create_topic("killed", 3)
    items = list(keyed(8_000, keys=60))
    told = {"batch_size": 500, "request_timeout_ms": 5_000, "retry_backoff_ms": 50, "reconnect_backoff_max_ms": 200}
    with producing(own_broker, enable_idempotence=True, max_block_ms=60_000, **told) as producer:
        killing = threading.Timer(0.3, own_broker.restart)
        killing.start()
        futures = [producer.send(topic, item.value, item.key) for item in items]
        for future in futures:
            future.get(TIMEOUT_S * 2)
        killing.join()
    values = [record.value for record in read(own_broker, topic, len(items), partitions=3)]
    places = [TopicPartition(topic, number) for number in range(3)]
    with consuming(own_broker) as consumer:
        assert sum(consumer.end_offsets(places).values()) == len(items)
    judged = judge([item.value for item in items], values)
    assert judged.clean, judged


def test_members_of_a_group_carry_on_when_the_broker_comes_back(own_broker: Broker) -> None:
    topic, group = own_broker.create_topic("carried", 2), own_broker.unique("group")
    place = TopicPartition(topic, 0)
    patient = {"reconnect_backoff_max_ms": 200, "request_timeout_ms": 5_000}
    with (
        producing(own_broker, **patient) as producer,
        consuming(own_broker, topic, group_id=group, **patient) as consumer,
    ):
        joined(consumer)
        send(producer, topic, [b"before"] * 5)
        take(consumer, 5)
        consumer.commit({place: OffsetAndMetadata(5, "five", -1)})
        own_broker.restart()
        send(producer, topic, [b"after"] * 5)
        assert [record.value for record in take(consumer, 5)] == [b"after"] * 5
        assert consumer.committed(place, metadata=True).metadata == "five"
        consumer.commit()
        assert consumer.committed(place) == 10


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
        assert admin.list_group_offsets(group)[group][place].offset == 7
    assert [record.offset for record in read(own_broker, topic, 8, partitions=2)] == list(range(2, 10))
