"""Another topic as the sink: staged by tasks, published once, refusals beside it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.broker import Broker, serving
from tests.support.sink_values import again, fenced_range, put, target_of, write

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import close as close_loop
from holdfast.pipeline.model.definition import TopicSinkConfig
from holdfast.pipeline.sinks.contract import BlockedError, SinkTarget
from holdfast.pipeline.sinks.topic import TopicSink
from holdfast.spark.clusters import discover_urls
from holdfast.vocabulary.errors import InvalidError

pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with serving(tmp_path_factory.mktemp("broker"), "--roles", "api,agent") as running:
        yield running
        close_loop()


@pytest.fixture
def target(broker: Broker) -> SinkTarget:
    topic = broker.create_topic("sink", 2)
    broker.admin.create_topics([_new(f"{topic}.dlq")])[f"{topic}.dlq"].result(20)
    broker.await_leaders(f"{topic}.dlq")
    cluster_address = discover_urls(ClusterAddress(bootstrap=broker.bootstrap), contact_ms=None)
    return target_of(
        TopicSinkConfig(topic=topic, key_column="name"), cluster_address=cluster_address, pipeline_id=topic
    )


def _new(topic: str) -> Any:
    from confluent_kafka.cimpl import NewTopic

    return NewTopic(topic, 1, 1)


def records(broker: Broker, topic: str, partitions: int) -> list[Any]:
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.auto.commit": False})
    found = []
    for number in range(partitions):
        low, high = reader.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
        reader.assign([TopicPartition(topic, number, low)])
        while low is not None and low < high:
            message = reader.poll(20)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(message)
            low = (message.offset() or 0) + 1
    reader.close()
    return found


def topic_of(target: SinkTarget) -> str:
    assert isinstance(target.revision.sink, TopicSinkConfig)
    return target.revision.sink.topic


def test_a_range_is_published_once_by_any_publisher(broker: Broker, target: SinkTarget) -> None:
    zombie, successor = TopicSink(target), TopicSink(target)
    assert zombie.prepare() == ()
    staged = write(zombie, target, fenced_range(0, 50), bad=(7,))
    put(successor, target, again(fenced_range(0, 50)), bad=(7,))
    put(successor, target, fenced_range(50, 60, epoch=2))
    zombie.commit([staged])
    found = records(broker, topic_of(target), 2)
    values = [json.loads(message.value()) for message in found]
    assert sorted(value["_offset"] for value in values) == [n for n in range(60) if n != 7]
    assert all(message.key().decode() == value["name"] for message, value in zip(found, values, strict=True))
    (letter,) = records(broker, f"{topic_of(target)}.dlq", 1)
    assert letter.value() == b"\xffbad"
    headers = dict(letter.headers())
    assert headers["holdfast.offset"] == b"7"
    assert headers["holdfast.reason"].startswith(b"not JSON")


def test_staged_records_are_invisible_before_the_commit(broker: Broker, target: SinkTarget) -> None:
    sink = TopicSink(target)
    write(sink, target, fenced_range(0, 50))
    assert records(broker, topic_of(target), 2) == []
    put(sink, target, again(fenced_range(0, 50)))
    assert len(records(broker, topic_of(target), 2)) == 50


def test_a_missing_topic_blocks(broker: Broker, target: SinkTarget) -> None:
    missing = target_of(TopicSinkConfig(topic="nowhere"), cluster_address=target.cluster_address)
    with pytest.raises(BlockedError, match="nowhere"):
        TopicSink(missing).prepare()
    with pytest.raises(InvalidError, match="a cluster"):
        TopicSink(target_of(TopicSinkConfig(topic="nowhere")))
