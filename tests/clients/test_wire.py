"""By hand: what no client sends on purpose. Damaged, doubled, pipelined, unknown; others never notice."""

import struct

import pytest
from tests.support.broker import Broker
from tests.support.kafka_raw_requests import Wire, batch, produce, request
from tests.support.librdkafka_client import read_all, send_values, values
from tests.support.record_shapes import COMPRESSIONS

from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode

TRANSACTIONS = {24, 25, 26, 27, 28}  # AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit
NEWER_GROUPS = {69, 76, 77, 78, 79}  # KIP-848, but for the heartbeat, which is there to be refused; share groups


def test_only_implemented_apis_are_advertised(broker: Broker) -> None:
    if broker.kind != "holdfast":
        pytest.skip("Apache Kafka offers all of it")
    with Wire(broker.bootstrap) as wire:
        advertised = wire.versions()
    assert not advertised.keys() & (TRANSACTIONS | NEWER_GROUPS)
    assert advertised.keys() == set(ApiKey) - {ApiKey.HEAP, ApiKey.HEAP_POP}, "but for those that are our own"
    assert all(0 <= lowest <= highest for lowest, highest in advertised.values())


def test_a_newer_api_versions_request_gets_the_list_of_versions(broker: Broker) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.send(request(ApiKey.API_VERSIONS, 99, 7, bytes(1)))  # an end of tagged fields
        answer = wire.answer()
    number, error = struct.unpack_from(">ih", answer)
    assert (number, error) == (7, ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_damaged_batch_is_refused_and_the_next_is_not(broker: Broker, compression: str) -> None:
    topic = broker.create_topic("damaged")
    good = batch(b"good" * 20, compression=compression)
    bad = good[:-1] + bytes([good[-1] ^ 1])
    with Wire(broker.bootstrap) as wire:
        wire.send(produce(1, topic, bad), produce(2, topic, good))
        first, second = wire.produced(), wire.produced()
    assert (first.number, first.error, first.base_offset) == (1, ErrorCode.CORRUPT_MESSAGE, -1)
    assert (second.number, second.error, second.base_offset) == (2, 0, 0)
    assert values(read_all(broker, topic)) == [b"good" * 20]


def test_every_batch_of_a_partition_counts(broker: Broker) -> None:
    topic = broker.create_topic("doubled")
    with Wire(broker.bootstrap) as wire:
        wire.send(produce(1, topic, batch(b"a", b"b") + batch(b"c") + batch(b"d", b"e", compression="lz4")))
        answer = wire.produced()
    if broker.kind == "apache":  # which wants one batch per partition and says so
        assert (answer.error, read_all(broker, topic)) == (ErrorCode.INVALID_RECORD, [])
        return
    assert (answer.error, answer.base_offset) == (0, 0)
    found = read_all(broker, topic)
    assert values(found) == [b"a", b"b", b"c", b"d", b"e"]
    assert [message.offset for message in found] == [0, 1, 2, 3, 4]


def test_requests_sent_ahead_are_answered_in_their_order(broker: Broker) -> None:
    topic = broker.create_topic("ahead")
    frames = [produce(number, topic, batch(b"%d" % number)) for number in range(50)]
    with Wire(broker.bootstrap) as wire:
        wire.send(*frames)
        answers = [wire.produced() for _ in frames]
    assert [(answer.number, answer.error, answer.base_offset) for answer in answers] == [
        (number, 0, number) for number in range(50)
    ]


def test_acks_0_is_not_answered_and_the_next_request_is(broker: Broker) -> None:
    topic = broker.create_topic("silent")
    with Wire(broker.bootstrap) as wire:
        wire.send(produce(1, topic, batch(b"a"), acks=0), produce(2, topic, batch(b"b"), acks=1))
        answer = wire.produced()
    assert (answer.number, answer.error, answer.base_offset) == (2, 0, 1)


def test_acks_that_mean_nothing_are_refused(broker: Broker) -> None:
    topic = broker.create_topic("odd-acks")
    with Wire(broker.bootstrap) as wire:
        wire.send(produce(1, topic, batch(b"a"), acks=2))
        assert wire.produced().error == ErrorCode.INVALID_REQUIRED_ACKS
    assert read_all(broker, topic) == []


def test_an_unknown_topic_and_partition_get_their_code(broker: Broker) -> None:
    topic = broker.create_topic("known")
    with Wire(broker.bootstrap) as wire:
        wire.send(produce(1, broker.unique("never"), batch(b"a")), produce(2, topic, batch(b"a"), partition=9))
        assert [wire.produced().error for _ in range(2)] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


GARBAGE = {
    "negative size": b"\xff\xff\xff\xff" + bytes(100),
    "enormous size": b"\x7f\xff\xff\xff" + bytes(100),
    "unknown api": request(9_999, 0, 1, b""),
    "unknown version": request(3, 999, 1, b""),
    "nonsense in a request": request(0, 7, 1, b"\x7f" * 40),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_closes_its_own_connection_only(broker: Broker, kind: str) -> None:
    topic = broker.create_topic("bystander")
    with Wire(broker.bootstrap) as bystander, Wire(broker.bootstrap) as wire:
        bystander.send(produce(1, topic, batch(b"a")))
        assert bystander.produced().error == ErrorCode.NONE
        wire.send(GARBAGE[kind])
        assert wire.answer() == b""
        bystander.send(produce(2, topic, batch(b"b")))
        assert bystander.produced().error == ErrorCode.NONE
    send_values(broker, topic, [b"c"])
    assert values(read_all(broker, topic)) == [b"a", b"b", b"c"]


def test_a_frame_that_never_ends_delays_no_other_client(broker: Broker) -> None:
    topic = broker.create_topic("unfinished")
    whole = produce(1, topic, batch(b"late"))
    with Wire(broker.bootstrap) as wire:
        wire.send(whole[:20])
        send_values(broker, topic, [b"a"])
        wire.send(whole[20:])
        assert wire.produced().base_offset == 1
    assert values(read_all(broker, topic)) == [b"a", b"late"]
