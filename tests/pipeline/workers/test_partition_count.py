"""How many partitions a source has: here, at another Kafka (a real Holdfast broker), and where nobody answers."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker import Broker, serving

from holdfast.log.topics import Topics, UnknownTopicError
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.pipeline.model.secret_references import SecretReferences
from holdfast.pipeline.workers.partition_count import count_partitions
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SystemRandom

CLOCK, CHANCE = RealClock(), SystemRandom()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with serving(tmp_path_factory.mktemp("elsewhere")) as made:
        yield made


async def count(source: KafkaConfig) -> int:
    async with MemoryStore.open(clock=CLOCK, random=CHANCE) as store:
        topics = Topics(store, clock=CLOCK, random=CHANCE)
        await topics.create("orders", 6)
        return await count_partitions(source, topics, clock=CLOCK, secrets=SecretReferences())


async def test_a_topic_of_this_cluster_is_counted_in_the_store() -> None:
    assert await count(KafkaConfig(topic="orders")) == 6
    with pytest.raises(UnknownTopicError):
        await count(KafkaConfig(topic="nothing"))


async def test_a_topic_elsewhere_is_counted_by_its_brokers(broker: Broker) -> None:
    topic = broker.create_topic("clicks", 3)
    assert await count(KafkaConfig(topic=topic, brokers=(broker.bootstrap,))) == 3
    with pytest.raises(InvalidError, match="a topic that exists"):
        await count(KafkaConfig(topic="nothing-there", brokers=(broker.bootstrap,)))


async def test_brokers_that_do_not_answer_are_unavailable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(UnavailableError, match="Kafka at"):
        await count(KafkaConfig(topic="clicks", brokers=(nobody,)))
