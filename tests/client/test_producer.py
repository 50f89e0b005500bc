"""Produce and the look at partitions against a real broker: what it remembers, what it does not, what it refuses."""

import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from confluent_kafka import TopicPartition
from tests.support.broker import Broker, serving
from tests.support.librdkafka_client import read_all, send_values, values

from holdfast.client.loop_thread import run
from holdfast.client.producer import (
    KafkaIdempotentProducer,
    OutOfSequenceError,
    SequencedBatch,
    TargetPartition,
    TopicRef,
)
from holdfast.log.batches import Record, encode
from holdfast.spark.sink.pieces import PieceContent
from holdfast.spark.sink.sequences import SequenceAssigner
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError

T = TypeVar("T")

CLOCK = RealClock()


class OnePartitionProducer:
    """A producer of one partition, whose batches hold one record each."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.brokers = KafkaIdempotentProducer(broker.bootstrap)
        self.topic = topic
        self.ref = TopicRef(topic, self.do(self.brokers.topic(topic)).id)
        self.target = TargetPartition(self.ref, 0)
        self.producer = self.do(self.brokers.init_producer_id())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return run(work)

    def batches(self, texts: list[bytes], *, first: int = 0) -> list[SequencedBatch]:
        made = [encode([Record(0, CLOCK.now_ms(), None, text)]) for text in texts]
        content = PieceContent(0, 0, [len(each) for each in made], [1] * len(made))
        numbering = SequenceAssigner(
            producer_id=self.producer[0], producer_epoch=self.producer[1], sequences={self.ref.id: {0: first}}
        )
        return list(numbering.assign(self.target, content, b"".join(made)))

    def send(self, batches: list[SequencedBatch], *, patience_ms: int = 30_000) -> None:
        for batch in batches:
            self.do(self.brokers.send([batch], deadline_ms=CLOCK.boot_ms() + patience_ms))

    def appended_records(self, start: int = 0, sequence: int = 0) -> int:
        return self.do(
            self.brokers.appended_records(self.target, start=start, producer=self.producer, sequence=sequence)
        )

    def close(self) -> None:
        self.do(self.brokers.close())


@pytest.fixture
def producing(broker: Broker) -> Iterator[OnePartitionProducer]:
    made = OnePartitionProducer(broker, broker.create_topic("sink"))
    yield made
    made.close()


TEXTS = [b"%d" % number for number in range(12)]


def test_a_batch_older_than_those_remembered_is_success_and_no_append(
    broker: Broker, producing: OnePartitionProducer
) -> None:
    batches = producing.batches(TEXTS)
    producing.send(batches)
    producing.send(batches)  # seven of them are further back than the five that brokers remember
    producing.send(batches[:1])
    assert values(read_all(broker, producing.topic)) == TEXTS


def test_a_batch_that_leaves_a_gap_is_refused_for_good(broker: Broker, producing: OnePartitionProducer) -> None:
    batches = producing.batches(TEXTS)
    producing.send(batches[:2])
    with pytest.raises(OutOfSequenceError):
        producing.send(batches[3:4])
    assert values(read_all(broker, producing.topic)) == TEXTS[:2]


def test_appended_records_are_found_among_those_of_other_producers(
    broker: Broker, producing: OnePartitionProducer
) -> None:
    send_values(broker, producing.topic, [b"other"] * 3)
    assert producing.appended_records(start=3) == 0
    batches = producing.batches(TEXTS)
    producing.send(batches[:4])
    send_values(broker, producing.topic, [b"other"] * 3)
    producing.send(batches[4:7])
    assert producing.appended_records(start=3) == 7
    assert producing.appended_records(start=3, sequence=5) == 2
    assert producing.do(producing.brokers.end_offsets(producing.ref, [0])) == {0: 13}


def test_records_removed_by_retention_make_the_plan_undecidable(
    broker: Broker, producing: OnePartitionProducer
) -> None:
    producing.send(producing.batches(TEXTS))
    broker.admin.delete_records([TopicPartition(producing.topic, 0, 6)])[TopicPartition(producing.topic, 0, 6)].result(
        20
    )
    with pytest.raises(CorruptError, match="starts at offset 6"):
        producing.appended_records(start=2)
    assert producing.appended_records(start=6, sequence=6) == 6


def test_a_recreated_topic_takes_nothing_meant_for_the_old_one(broker: Broker, producing: OnePartitionProducer) -> None:
    batches = producing.batches(TEXTS)
    producing.send(batches[:3])
    broker.admin.delete_topics([producing.topic])[producing.topic].result(20)
    from confluent_kafka.cimpl import NewTopic

    broker.admin.create_topics([NewTopic(producing.topic, 1, 1)])[producing.topic].result(20)
    broker.await_leaders(producing.topic)
    with pytest.raises(UnavailableError, match="may have been deleted"):
        producing.send(batches[3:4], patience_ms=2_000)
    with pytest.raises(InvalidError, match="recreated"):
        producing.do(producing.brokers.end_offsets(producing.ref, [0]))
    assert read_all(broker, producing.topic) == []


def test_a_batch_that_the_topic_refuses_is_not_retried(broker: Broker) -> None:
    producing = OnePartitionProducer(broker, broker.create_topic("small", config={"max.message.bytes": "2048"}))
    with pytest.raises(InvalidError, match="MESSAGE_TOO_LARGE"):
        producing.send(producing.batches([b"x" * 3_000]))
    producing.close()


def test_a_broker_that_is_killed_in_the_middle_gets_every_batch_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with serving(tmp_path_factory.mktemp("killed")) as own:
        topic = own.create_topic("sink")
        producing = OnePartitionProducer(own, topic)
        texts = [b"%d" % number for number in range(150)]
        batches = producing.batches(texts)
        producing.send(batches[:50])
        restarts = threading.Thread(target=own.restart)
        restarts.start()
        producing.send(batches[50:], patience_ms=60_000)
        restarts.join()
        producing.send(batches)
        assert producing.appended_records() == 150
        assert values(read_all(own, topic)) == texts
        producing.close()
