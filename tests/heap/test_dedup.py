"""Repeated enqueues are found, within the window and within bounds; nothing is guessed."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.heaps import through_a_snapshot

from holdfast.heap import dedup
from holdfast.heap.canonical_state import encode_state
from holdfast.heap.decisions import decide_forget, known_enqueue
from holdfast.heap.dedup import KnownEnqueue
from holdfast.heap.errors import ProducerFencedError, SequenceForgottenError
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import Enqueue, ProducerSequence
from holdfast.vocabulary.native import native

DAY_MS = 86_400_000
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


def enqueued(*keys: tuple[str, int, int], at_ms: int = 1_000) -> HeapState:
    state = HeapState("min")
    for key in keys:
        state.apply(state.next_offset, at_ms, Enqueue(0, b"", producer=ProducerSequence(*key)))
    return state


@given(st.lists(st.integers(0, 50), unique=True, max_size=30))
def test_every_sequence_is_found_in_whatever_order_it_came(sequences: list[int]) -> None:
    state = enqueued(*(("p", 0, each) for each in sequences))
    restored = through_a_snapshot(state)
    for known in (state, restored):
        for sequence in range(51):
            found = known_enqueue(known, ProducerSequence("p", 0, sequence), DAY_MS, 2_000)
            at = sequences.index(sequence) if sequence in sequences else None
            assert found == (None if at is None else KnownEnqueue(at, 1_000))


def test_after_the_window_the_same_sequence_is_a_new_message() -> None:
    state, key = enqueued(("p", 0, 1)), ProducerSequence("p", 0, 1)
    assert known_enqueue(state, key, DAY_MS, DAY_MS + 999) is not None
    assert known_enqueue(state, key, DAY_MS, DAY_MS + 1_001) is None
    state.apply(1, DAY_MS + 1_001, Enqueue(0, b"", producer=key))
    assert known_enqueue(state, key, DAY_MS, DAY_MS + 1_002) == KnownEnqueue(1, DAY_MS + 1_001)


def test_an_older_epoch_enqueues_nothing_new() -> None:
    state = enqueued(("p", 3, 1), ("p", 4, 1))
    assert known_enqueue(state, ProducerSequence("p", 3, 1), DAY_MS, 1_000) == KnownEnqueue(0, 1_000)
    with pytest.raises(ProducerFencedError):
        known_enqueue(state, ProducerSequence("p", 3, 2), DAY_MS, 1_000)


def test_what_is_older_than_the_window_is_forgotten() -> None:
    state = enqueued(("p", 0, 1))
    assert decide_forget(state, window_ms=1_000, count_max=10, now_ms=2_500) is None
    forget = decide_forget(state, window_ms=1_000, count_max=10, now_ms=3_001)
    assert forget is not None
    state.apply(1, 3_001, forget)
    assert state.dedup.count == 0
    assert known_enqueue(state, ProducerSequence("p", 0, 1), 1_000, 3_001) is None


def test_too_many_are_forgotten_by_half_and_then_refused_not_doubled() -> None:
    state = HeapState("min")
    for at in range(100):
        state.apply(at, 1_000 + at, Enqueue(0, b"", producer=ProducerSequence("p", 0, at)))
    forget = decide_forget(state, window_ms=DAY_MS, count_max=60, now_ms=2_000)
    assert forget is not None
    state.apply(100, 2_000, forget)
    assert 40 <= state.dedup.count <= 60
    with pytest.raises(SequenceForgottenError):
        known_enqueue(state, ProducerSequence("p", 0, 3), DAY_MS, 2_000)
    assert known_enqueue(state, ProducerSequence("p", 0, 99), DAY_MS, 2_000) == KnownEnqueue(99, 1_099)
    assert known_enqueue(state, ProducerSequence("p", 0, 100), DAY_MS, 2_000) is None
    assert encode_state(through_a_snapshot(state)) == encode_state(state)


def test_a_move_is_known_for_ever_by_its_highest_number() -> None:
    state = enqueued(("~move/x/0", 0, 7), ("~move/x/0", 0, 9))
    assert state.dedup.count == 1
    for sequence in (3, 7, 9):
        assert known_enqueue(state, ProducerSequence("~move/x/0", 0, sequence), 0, 10**15) is not None
    assert known_enqueue(state, ProducerSequence("~move/x/0", 0, 10), 0, 10**15) is None
    assert decide_forget(state, window_ms=0, count_max=1_000, now_ms=10**15) is None


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(-5, 5))), st.integers(-6, 6))
def test_rows_are_dropped_by_their_time_in_whatever_order_they_are(
    rows: list[tuple[int, int, int]], before: int
) -> None:
    kept = [row for row in rows if row[2] >= before]
    highest = max((row[0] for row in rows if row[2] < before), default=None)
    for drop in (dedup.drop_older, dedup._drop_older):
        columns = [array("q", column) for column in zip(*rows, strict=True)] if rows else [array("q") for _ in range(3)]
        assert drop(columns[0], columns[1], columns[2], before) == (len(kept), highest)
        assert list(zip(*(column[: len(kept)] for column in columns), strict=True)) == kept


@pytest.mark.skipif(native is None, reason="the C extension was not built")
def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="as many in each"):
        dedup.drop_older(array("q", [1, 2]), array("q", [1]), array("q", [1, 2]), 0)
