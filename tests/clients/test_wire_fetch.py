"""By hand: readers that ask ahead, wait long, go away, or do not take what they asked for."""

import threading

import pytest
from tests.support.broker import Broker
from tests.support.kafka_raw_requests import Wire, batch, fetch, produce
from tests.support.librdkafka_client import CLOCK, send_values
from tests.support.record_shapes import pseudo_random
from tests.support.waiting import until

from holdfast.kafka.error_codes import ErrorCode

PATIENCE_MS = 200_000  # how long a fetch may wait: far longer than `Wire` waits for an answer


@pytest.fixture(scope="module")
def filled(broker: Broker) -> str:
    """Forty records of half a megabyte, each in a batch of its own."""
    topic = broker.create_topic("filled")
    send_values(broker, topic, [pseudo_random(500_000, seed=seed) for seed in range(40)], {"batch.num.messages": 1})
    return topic


def test_a_pipelining_reader_that_does_not_read_delays_no_other_client(broker: Broker, filled: str) -> None:
    other = broker.create_topic("others")
    with Wire(broker.bootstrap) as lazy:
        lazy.send(*(fetch(number, filled, number % 40) for number in range(200)))  # two hundred megabytes
        send_values(broker, other, [b"x"] * 100)
        with Wire(broker.bootstrap) as quick:
            quick.send(fetch(1, other, 0))
            assert len(quick.fetched().records) > 100
        for number in range(200):  # and what it asked for is there when it reads at last
            answer = lazy.fetched()
            assert (answer.number, answer.error) == (number, 0)
            assert int.from_bytes(answer.records[:8], "big") == number % 40


def test_readers_that_go_away_while_they_wait_leave_nothing_behind(broker: Broker) -> None:
    topic = broker.create_topic("gone")
    send_values(broker, topic, [b"first"])
    for _ in range(50):
        with Wire(broker.bootstrap) as wire:
            wire.send(fetch(1, topic, 1, wait_ms=60_000))
    with Wire(broker.bootstrap) as stays:
        stays.send(fetch(1, topic, 1, wait_ms=60_000))
        send_values(broker, topic, [b"x"])
        answer = stays.fetched()
    assert (answer.error, answer.high_watermark) == (0, 2)
    assert answer.records


def test_a_wait_ends_with_nothing_where_nothing_comes(broker: Broker) -> None:
    topic = broker.create_topic("quiet")
    send_values(broker, topic, [b"x"])
    with Wire(broker.bootstrap) as wire:
        began_ms = CLOCK.boot_ms()
        wire.send(fetch(1, topic, 1, wait_ms=700))
        answer = wire.fetched()
        assert CLOCK.boot_ms() - began_ms >= 650
    assert (answer.error, answer.high_watermark, answer.records) == (0, 1, b"")


def test_a_waiting_fetch_does_not_hold_up_what_other_connections_write(broker: Broker) -> None:
    topic = broker.create_topic("waiting")
    with Wire(broker.bootstrap) as reader, Wire(broker.bootstrap) as writer:
        writer.send(produce(0, topic, batch(b"first")))
        assert writer.produced().base_offset == 0
        for turn in range(1, 20):
            reader.send(fetch(turn, topic, turn, wait_ms=30_000))
            writer.send(produce(turn, topic, batch(b"%d" % turn)))
            assert writer.produced().base_offset == turn
            answer = reader.fetched()
            assert int.from_bytes(answer.records[:8], "big") == turn


def test_an_offset_outside_the_log_gets_its_code_at_once(broker: Broker) -> None:
    topic = broker.create_topic("outside")
    send_values(broker, topic, [b"x"] * 3)
    with Wire(broker.bootstrap) as wire:
        for offset in (-1, 4, 2**62):
            wire.send(fetch(1, topic, offset, wait_ms=PATIENCE_MS))
            assert wire.fetched().error == ErrorCode.OFFSET_OUT_OF_RANGE
        wire.send(fetch(1, topic, 0, partition=5, wait_ms=PATIENCE_MS))
        assert wire.fetched().error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wire.send(fetch(1, broker.unique("never"), 0, wait_ms=PATIENCE_MS))
        assert wire.fetched().error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_deleted_answers_those_who_wait(broker: Broker) -> None:
    topic = broker.create_topic("deleted")
    send_values(broker, topic, [b"x"])
    with Wire(broker.bootstrap) as wire:
        wire.send(fetch(1, topic, 1, wait_ms=PATIENCE_MS))
        broker.admin.delete_topics([topic])[topic].result(20)
        assert wire.fetched().error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_many_writers_and_readers_agree_on_one_order(broker: Broker) -> None:
    topic, writers, each = broker.create_topic("crowd"), 8, 50
    seen: list[list[bytes]] = [[] for _ in range(4)]

    def write(name: int) -> None:
        with Wire(broker.bootstrap) as wire:
            for turn in range(each):
                wire.send(produce(turn, topic, batch(b"%d:%d" % (name, turn))))
                assert wire.produced().error == ErrorCode.NONE

    def read(mine: list[bytes]) -> None:
        with Wire(broker.bootstrap) as wire:
            while len(mine) < writers * each:
                wire.send(fetch(1, topic, len(mine), wait_ms=1_000))
                records = wire.fetched().records
                while len(records) > 12:
                    size = 12 + int.from_bytes(records[8:12], "big")
                    mine.append(records[8:size])  # all but its offset, which is its place in the list
                    assert int.from_bytes(records[:8], "big") == len(mine) - 1
                    records = records[size:]

    threads = [threading.Thread(target=write, args=(name,)) for name in range(writers)]
    threads += [threading.Thread(target=read, args=(mine,), daemon=True) for mine in seen]
    for thread in threads:
        thread.start()
    until(lambda: all(len(mine) == writers * each for mine in seen), within_s=60, what="everybody has read everything")
    for thread in threads:
        thread.join()
    assert all(mine == seen[0] for mine in seen)
