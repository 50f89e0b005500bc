"""The offsets of another Kafka, as its client answers."""

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.pipeline.driver.sources import KAFKA_TIMEOUT_S, KafkaSource
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary.clock import FakeClock

NO_LEADER = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))


class Client:
    """Partition 1 has no leader, that of partition 3 has just gone."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        partitions = {number: SimpleNamespace(leader=-1 if number == 1 else 7) for number in range(4)}
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=partitions)})

    def get_watermark_offsets(self, asked: TopicPartition, timeout: float) -> tuple[int, int]:
        assert asked.partition != 1
        if asked.partition == 3:
            raise NO_LEADER
        return 5, 10 + asked.partition

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, -1) for each in asked]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> KafkaSource:
    made = KafkaSource(KafkaConfig(topic="orders", brokers=("elsewhere:9092",)))
    monkeypatch.setattr(made, "_connected", Client)
    monkeypatch.setattr(made, "_ids", SimpleNamespace(of=lambda topic: "id-1"))
    return made


def test_a_partition_without_a_leader_holds_up_no_other(source: KafkaSource) -> None:
    found = source.bounds()
    assert (found.starts, found.ends, found.topic_id) == ((5, 0, 5, 0), (10, 0, 12, 0), "id-1")
    assert list(found.unknown) == [1, 3]
    assert found.unknown[1] == "partition 1 of topic orders: it has no leader"
    assert found.unknown[3].startswith("partition 3 of topic orders: KafkaError")
    assert source.offset_at(2, 1_000) == 12
    with pytest.raises(BlockedError, match="partition 1 of topic orders"):
        source.offset_at(1, 1_000)


class PartlyDeadClient(Client):
    """Of three brokers one does not respond. It is given up once the others have responded."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._responded, self._others_responded = clock, 0, Event()

    def list_topics(self, topic: str, timeout: float) -> Any:
        partitions = {number: SimpleNamespace(leader=number // 10) for number in range(30)}
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=partitions)})

    def get_watermark_offsets(self, asked: TopicPartition, timeout: float) -> tuple[int, int]:
        if asked.partition >= 10:
            self._responded += 1
            if self._responded == 20:
                self._others_responded.set()
            return 5, 10
        assert self._others_responded.wait(2), "the other brokers are not asked meanwhile"
        self._clock.advance_ms(round(timeout * 1_000))
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_broker_that_does_not_respond_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    client = PartlyDeadClient(clock)
    source = KafkaSource(KafkaConfig(topic="orders", brokers=("elsewhere:9092",)), clock=clock)
    monkeypatch.setattr(source, "_connected", lambda: client)
    monkeypatch.setattr(source, "_ids", SimpleNamespace(of=lambda topic: "id-1"))
    found = source.bounds()
    assert (found.starts[10:], found.ends[10:]) == ((5,) * 20, (10,) * 20)
    assert list(found.unknown) == list(range(10))
    assert all("_TIMED_OUT" in reason for reason in found.unknown.values())
    assert clock.boot_ms() == KAFKA_TIMEOUT_S * 1_000
