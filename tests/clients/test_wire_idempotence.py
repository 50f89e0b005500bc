"""By hand: sequences of idempotent producers, in turn and out of turn, before and after the broker was killed."""

import pytest
from tests.support.broker import Broker
from tests.support.kafka_raw_requests import Produced, Wire, produce
from tests.support.librdkafka_client import CLOCK, read_all, values
from tests.support.waiting import until

from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.batches.records import Record, encode


class Writer:
    """An idempotent producer that numbers its batches as it is told."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self._wire, self._topic = wire, topic
        self.producer_id, self.epoch = wire.producer_id()

    def move_to(self, wire: Wire) -> None:
        self._wire = wire

    def frame(self, sequence: int, *records: bytes, epoch: int | None = None) -> bytes:
        made = [Record(index, CLOCK.now_ms(), None, value) for index, value in enumerate(records)]
        batch = encode(
            made,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        return produce(sequence, self._topic, batch)

    def put(self, sequence: int, *records: bytes, epoch: int | None = None) -> tuple[int, int]:
        self._wire.send(self.frame(sequence, *records, epoch=epoch))
        return told(self._wire.produced())


def told(answer: Produced) -> tuple[int, int]:
    return answer.error, answer.base_offset


def test_producer_ids_are_never_given_twice(broker: Broker) -> None:
    with Wire(broker.bootstrap) as wire:
        given = [wire.producer_id() for _ in range(20)]
    assert len({producer_id for producer_id, _ in given}) == 20
    assert {epoch for _, epoch in given} == {0}


def test_a_batch_sent_again_is_acknowledged_with_its_first_offset(broker: Broker) -> None:
    topic = broker.create_topic("again")
    with Wire(broker.bootstrap) as wire:
        writer = Writer(wire, topic)
        assert writer.put(0, b"a", b"b") == (ErrorCode.NONE, 0)
        assert writer.put(2, b"c") == (ErrorCode.NONE, 2)
        assert writer.put(0, b"a", b"b") == (ErrorCode.NONE, 0)
        assert writer.put(2, b"c") == (ErrorCode.NONE, 2)
        assert writer.put(3, b"d") == (ErrorCode.NONE, 3)
    assert values(read_all(broker, topic)) == [b"a", b"b", b"c", b"d"]


def test_any_of_the_last_five_batches_may_come_again(broker: Broker) -> None:
    topic = broker.create_topic("five")
    with Wire(broker.bootstrap) as wire:
        writer = Writer(wire, topic)
        wire.send(*(writer.frame(sequence, b"%d" % sequence) for sequence in range(8)))
        assert [told(wire.produced()) for _ in range(8)] == [(ErrorCode.NONE, offset) for offset in range(8)]
        for sequence in range(3, 8):
            assert writer.put(sequence, b"%d" % sequence) == (ErrorCode.NONE, sequence)
        assert writer.put(0, b"0")[0] in (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        )  # too long ago to know its offset
    assert values(read_all(broker, topic)) == [b"%d" % sequence for sequence in range(8)]


def test_a_gap_is_refused_until_it_is_filled(broker: Broker) -> None:
    topic = broker.create_topic("gap")
    with Wire(broker.bootstrap) as wire:
        writer = Writer(wire, topic)
        assert writer.put(0, b"a") == (ErrorCode.NONE, 0)
        assert writer.put(2, b"c") == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert writer.put(1, b"b") == (ErrorCode.NONE, 1)
        assert writer.put(2, b"c") == (ErrorCode.NONE, 2)
    assert values(read_all(broker, topic)) == [b"a", b"b", b"c"]


def test_the_failure_of_one_batch_fails_those_sent_behind_it(broker: Broker) -> None:
    topic = broker.create_topic("behind")
    with Wire(broker.bootstrap) as wire:
        writer = Writer(wire, topic)
        good = [writer.frame(sequence, b"%d" % sequence) for sequence in range(4)]
        damaged = good[1][:-1] + bytes([good[1][-1] ^ 1])
        wire.send(good[0], damaged, good[2], good[3])
        assert [wire.produced().error for _ in range(4)] == [
            ErrorCode.NONE,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ]
        wire.send(*good[1:])
        assert [told(wire.produced()) for _ in range(3)] == [
            (ErrorCode.NONE, 1),
            (ErrorCode.NONE, 2),
            (ErrorCode.NONE, 3),
        ]
    assert values(read_all(broker, topic)) == [b"0", b"1", b"2", b"3"]


def test_an_older_epoch_is_fenced_by_a_newer(broker: Broker) -> None:
    topic = broker.create_topic("fenced")
    with Wire(broker.bootstrap) as wire:
        writer = Writer(wire, topic)
        assert writer.put(0, b"a") == (ErrorCode.NONE, 0)
        assert writer.put(0, b"b", epoch=1) == (ErrorCode.NONE, 1)
        assert writer.put(1, b"late", epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert writer.put(1, b"c", epoch=1) == (ErrorCode.NONE, 2)
        assert writer.put(5, b"odd", epoch=2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)  # a new epoch begins at 0
    assert values(read_all(broker, topic)) == [b"a", b"b", b"c"]


def test_producers_do_not_disturb_each_other(broker: Broker) -> None:
    topic = broker.create_topic("several")
    with Wire(broker.bootstrap) as wire:
        writers = [Writer(wire, topic) for _ in range(3)]
        for sequence in range(5):
            for writer in writers:
                assert writer.put(sequence, b"x")[0] == ErrorCode.NONE
    assert len(read_all(broker, topic)) == 15


@pytest.mark.parametrize("gracefully", [False, True], ids=["killed", "stopped"])
def test_a_batch_sent_again_after_a_restart_is_known(own_broker: Broker, gracefully: bool) -> None:
    topic = own_broker.create_topic("remembered")
    with Wire(own_broker.bootstrap) as wire:
        writer = Writer(wire, topic)
        for sequence in range(7):
            assert writer.put(sequence, b"%d" % sequence) == (ErrorCode.NONE, sequence)
    if gracefully:
        own_broker.terminate()
    else:
        own_broker.kill()
    own_broker.start()
    with Wire(own_broker.bootstrap) as wire:
        newcomer = Writer(wire, topic)
        assert newcomer.producer_id != writer.producer_id
        writer.move_to(wire)
        until(lambda: writer.put(6, b"6") != (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), what="the partition is led again")
        assert writer.put(6, b"6") == (ErrorCode.NONE, 6)
        if own_broker.kind == "holdfast":  # Apache Kafka remembers the last batch alone when it starts again
            assert writer.put(4, b"4") == (ErrorCode.NONE, 4)
        # Holdfast asks to come again where it has just turned away a batch that belongs before.
        assert writer.put(8, b"8") in (
            (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        )
        assert writer.put(7, b"7") == (ErrorCode.NONE, 7)
    assert values(read_all(own_broker, topic)) == [b"%d" % sequence for sequence in range(8)]
