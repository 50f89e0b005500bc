"""What is done for many messages at once is what is done for each of them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.heap import dedup
from holdfast.heap.canonical_state import encode_state
from holdfast.heap.decisions import known_enqueue
from holdfast.heap.lease_token import LeaseToken, encode_tokens, parse_token, parse_tokens
from holdfast.heap.message_id import OFFSET_MAX, message_id, message_ids, plain_message_ids
from holdfast.heap.offset_bitmap import OffsetBitmap
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import (
    Ack,
    Enqueue,
    Extend,
    Grant,
    Op,
    ProducerSequence,
    Purge,
    Retry,
    enqueue_key,
    enqueue_keys,
)
from holdfast.vocabulary.errors import InvalidError

producers = st.builds(ProducerSequence, st.sampled_from(["a", "b", "~moves"]), st.integers(0, 2), st.integers(0, 9))
enqueues = st.builds(
    Enqueue,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.binary(max_size=3),
    st.sampled_from([0, 0, 0, 5_000]),
    st.sampled_from([-1, -1, -1, 2]),
    st.none() | producers,
)


@given(st.sampled_from(["min", "max"]), st.lists(st.lists(enqueues, max_size=9), max_size=4))
def test_messages_that_are_applied_together_give_the_same_state(mode: str, calls: list[list[Enqueue]]) -> None:
    together, one_by_one = HeapState(mode), HeapState(mode)
    for messages in calls:
        together.apply_enqueues(together.next_offset, 1_000, messages)
        for message in messages:
            one_by_one.apply(one_by_one.next_offset, 1_000, message)
    assert encode_state(together) == encode_state(one_by_one)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 9_000)), max_size=5))
def test_runs_of_offsets_are_a_set_of_them(runs: list[tuple[int, int]]) -> None:
    bits, expected = OffsetBitmap(), set[int]()
    for first, length in runs:
        bits.add_run(first, first + length)
        expected.update(range(first, first + length))
    assert (len(bits), list(bits)) == (len(expected), sorted(expected))


@given(
    st.binary(min_size=16, max_size=16), st.lists(st.tuples(st.integers(0, OFFSET_MAX), st.integers(0, (1 << 48) - 1)))
)
def test_ids_of_many_are_those_of_each(topic: bytes, places: list[tuple[int, int]]) -> None:
    expected = [message_id(topic, 7, *place) for place in places]
    offsets, times = [offset for offset, _ in places], [time_ms for _, time_ms in places]
    assert message_ids(topic, 7, offsets, times) == plain_message_ids(topic, 7, offsets, times) == expected


def test_tokens_of_a_grant_are_those_of_each_message() -> None:
    tokens = [LeaseToken(3, 5, offset, 99, 7) for offset in (1, 2)]
    assert encode_tokens(3, 5, 99, (1, 2), 7) == [token.encode() for token in tokens]
    encoded = [token.encode() for token in tokens]
    assert parse_tokens(encoded) == [parse_token(token) for token in encoded] == tokens
    assert all(type(token) is LeaseToken for token in parse_tokens(encoded))
    most = LeaseToken((1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1, (1 << 64) - 1, (1 << 32) - 1)
    assert parse_tokens((most.encode(),)) == [most]
    assert parse_tokens([]) == []


@pytest.mark.parametrize("wrong", [b"", b"\x01", b"\x02" + bytes(26), bytes(28)])
def test_one_wrong_token_among_many_is_refused(wrong: bytes) -> None:
    with pytest.raises(InvalidError, match="lease_token"):
        parse_tokens([LeaseToken(3, 5, 1, 99, 7).encode(), wrong])


@given(st.lists(enqueues, min_size=1, max_size=9))
def test_keys_of_many_are_those_of_each(messages: list[Enqueue]) -> None:
    messages = [each._replace(partition_key=None, origin=None) for each in messages]
    one_producer = [each._replace(producer=ProducerSequence("ann", 1, at)) for at, each in enumerate(messages)]
    with_a_key = [messages[0]._replace(partition_key="k"), *messages]
    for several in (messages, one_producer, with_a_key, [each._replace(producer=None) for each in messages]):
        assert enqueue_keys(several) == [enqueue_key(each) for each in several]


@pytest.mark.parametrize(
    "odd",
    [
        Enqueue(1, b"", max_retries=1 << 40),
        Enqueue(1 << 70, b""),
        Enqueue(1, b"", producer=ProducerSequence("n" * 70_000, 0, 1)),
        Enqueue(1, b"", producer=ProducerSequence("n", 0, 1 << 70)),
    ],
)
def test_what_has_no_place_in_a_key_is_refused(odd: Enqueue) -> None:
    with pytest.raises((struct.error, InvalidError, OverflowError)):
        enqueue_keys([Enqueue(1, b""), odd])


@given(st.lists(st.none() | producers, max_size=6), st.integers(0, 5))
def test_a_run_of_a_producer_is_the_same_in_c_and_python(keys: list[ProducerSequence | None], more: int) -> None:
    grows = [ProducerSequence("a", 1, 7 * at - 3) for at in range(more)]
    for several in (keys, grows, [*keys, *grows], tuple(grows)):
        with pytest.MonkeyPatch.context() as patch:
            found = dedup._run_of(several)
            patch.setattr(dedup, "native", None)
            assert dedup._run_of(several) == found
    assert (dedup._run_of(grows) is None) == (not grows)


@given(st.lists(producers, max_size=12), producers)
def test_a_key_that_is_called_next_is_not_known(before: list[ProducerSequence], key: ProducerSequence) -> None:
    state = HeapState("min")
    for each in before:
        state.apply(state.next_offset, 1_000, Enqueue(0, b"", producer=each))
    if state.dedup.is_next(key):
        assert known_enqueue(state, key, 60_000, 2_000) is None


def test_the_key_of_a_message_with_a_producer_has_its_name() -> None:
    assert b"\x00\x03ann" in enqueue_key(Enqueue(1, b"", producer=ProducerSequence("ann", 0, 1)))


def leased(*deadlines_ms: int) -> HeapState:
    """Two messages under each deadline."""
    state = HeapState("min")
    for number, deadline_ms in enumerate(deadlines_ms):
        at = state.next_offset
        state.apply_enqueues(at, 1_000, [Enqueue(number, b""), Enqueue(number, b"")])
        state.apply(at + 2, 1_000, Grant(1, deadline_ms, "c", ((at, number), (at + 1, number))))
    return state


def test_leases_of_a_grant_are_overdue_together_until_they_end() -> None:
    state = leased(5_000, 4_000)
    assert (state.next_deadline_ms(), state.overdue(3_999, 10)) == (4_000, ())
    assert state.overdue(4_500, 1) == (3,)
    assert state.overdue(4_500, 10) == (3, 4)  # nothing was done to them: they still are
    state.apply(state.next_offset, 4_500, Retry(Op.EXPIRE, ((3, 0), (4, 0))))
    assert (state.next_deadline_ms(), state.overdue(9_000, 10)) == (5_000, (0, 1))
    state.apply(state.next_offset, 4_600, Ack((0,)))
    assert state.overdue(9_000, 10) == (1,)


def test_an_extended_lease_leaves_those_of_its_grant_behind() -> None:
    state = leased(4_000)
    for deadline_ms in (6_000, 6_000, 4_000, 6_000):
        state.apply(state.next_offset, 2_000, Extend(((1, deadline_ms),)))
    assert (state.overdue(4_000, 10), state.overdue(6_000, 10)) == ((0,), (0, 1))
    state.apply(state.next_offset, 2_000, Purge(state.next_offset))
    assert state.next_deadline_ms() is None
