"""Operations as Kafka records: what is written is what is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.heap.batch.model import Forgotten, Prepared, Resolved
from holdfast.heap.fairness.rules import FairRules
from holdfast.heap.lease_token import LeaseToken, parse_token
from holdfast.heap.message_id import OFFSET_MAX, MessagePlace, message_id, parse_message_id
from holdfast.heap.records import (
    Ack,
    Cancel,
    Enqueue,
    Extend,
    Forget,
    Grant,
    Move,
    Moved,
    Op,
    Operation,
    Origin,
    PartitionCount,
    ProducerSequence,
    Purge,
    Ready,
    Reprioritise,
    Reserve,
    Retry,
    decode_operation,
    encode_operation,
)
from holdfast.log.batches import Record, decode, encode
from holdfast.vocabulary.errors import CorruptError, InvalidError

longs = st.integers(-(1 << 63), (1 << 63) - 1)
times = st.integers(0, 1 << 48)
offsets = st.integers(0, OFFSET_MAX)
texts = st.text(max_size=20)
places = st.lists(offsets, min_size=1, max_size=5).map(tuple)
pairs = st.lists(st.tuples(offsets, longs), min_size=1, max_size=5).map(tuple)
numbers = st.integers(0, (1 << 32) - 1)

ENQUEUES = st.builds(
    Enqueue,
    longs,
    st.binary(max_size=50),
    times,
    st.integers(-1, 1_000),
    st.none() | st.builds(ProducerSequence, texts, longs, longs),
    st.none() | texts,
    st.none() | st.builds(Origin, texts, numbers, st.binary(min_size=16, max_size=16), numbers, texts),
    st.lists(st.tuples(texts, st.none() | st.binary(max_size=9)), max_size=2).map(tuple),
    st.none() | texts,
)
OPERATIONS = st.one_of(
    ENQUEUES,
    st.builds(
        FairRules,
        st.booleans(),
        *(numbers, times, numbers, times, numbers, numbers),
        st.lists(st.tuples(texts, st.integers(1, 1_000)), max_size=3).map(tuple),
    ),
    st.builds(Grant, numbers, times, texts, pairs),
    st.builds(Ack, places),
    st.builds(Retry, st.sampled_from([Op.NACK, Op.EXPIRE, Op.RELEASE]), pairs, texts),
    st.builds(Extend, pairs),
    st.builds(Ready, pairs),
    st.builds(Move, offsets, longs, texts, numbers, numbers, texts),
    st.builds(Moved, places),
    st.builds(Cancel, places),
    st.builds(Reprioritise, pairs),
    st.builds(Purge, offsets),
    st.builds(PartitionCount, numbers),
    st.builds(Forget, longs, st.booleans()),
    st.builds(Reserve, texts, ENQUEUES),
    st.builds(Prepared, texts, numbers, numbers, numbers, st.lists(numbers, min_size=1, max_size=5).map(tuple)),
    st.builds(Resolved, texts, st.booleans()),
    st.builds(Forgotten, texts),
)


@given(st.lists(OPERATIONS, min_size=1, max_size=5))
def test_operations_survive_the_way_through_a_batch(operations: list[Operation]) -> None:
    records = [Record(at, 5, *encode_operation(operation)) for at, operation in enumerate(operations)]
    read = [decode_operation(each.key, each.value, each.headers) for each in decode(encode(records))]
    assert read == operations


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\x01", b""),
        (b"\x02\x01", b""),  # a version that is not known
        (b"\x01\x63", b""),  # an operation that is not known
        (b"\x01\x01\x00", b"payload"),
        (b"\x01\x03", b"seven b"),
        (b"\x01\x02", b"\x00"),
    ],
)
def test_what_is_no_operation_is_corrupt(key: bytes | None, value: bytes) -> None:
    with pytest.raises(CorruptError):
        decode_operation(key, value)


@given(st.binary(min_size=16, max_size=16), st.integers(0, 65_535), offsets, times.filter(lambda ms: ms < 1 << 48))
def test_an_id_is_a_ulid_that_says_where_its_message_is(topic: bytes, partition: int, offset: int, at_ms: int) -> None:
    text = message_id(topic, partition, offset, at_ms)
    assert len(text) == 26
    assert parse_message_id(topic, text) == MessagePlace(partition, offset, at_ms)
    assert parse_message_id(topic, text.lower()) == MessagePlace(partition, offset, at_ms)


def test_ids_sort_by_time() -> None:
    ids = [message_id(b"t" * 16, 9 - at, 9 - at, 1_700_000_000_000 + at) for at in range(5)]
    assert sorted(ids) == ids


@pytest.mark.parametrize("text", ["", "x", "0" * 26, "ZZZZZZZZZZZZZZZZZZZZZZZZZZ", "Ü" * 26, "0" * 25 + "1"])
def test_what_no_message_is_called_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        parse_message_id(b"t" * 16, text)


def test_a_typing_error_in_an_id_is_noticed() -> None:
    right = message_id(b"t" * 16, 0, 77, 1_700_000_000_000)
    refused = 0
    for at in range(26):
        try:
            parse_message_id(b"t" * 16, right[:at] + ("1" if right[at] != "1" else "2") + right[at + 1 :])
        except InvalidError:
            refused += 1
    assert refused >= 24  # eight bits: one of 256 is missed


def test_a_token_says_which_lease() -> None:
    token = LeaseToken(7, 3, 123, 456)
    assert parse_token(token.encode()) == token
    for wrong in (b"", token.encode()[:-1], b"\x02" + token.encode()[1:]):
        with pytest.raises(InvalidError):
            parse_token(wrong)
