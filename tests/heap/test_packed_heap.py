"""The heap of offsets in C does what the one in Python does, step by step, and their images are the same."""

from array import array
from bisect import bisect_left
from collections import Counter
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.heap.packed_heap import HeapImage, PackedHeap
from holdfast.heap.pure_offset_heap import PureOffsetHeap, pack_heap_entries, read_heap_entries
from holdfast.vocabulary.native import native

OFFSETS = st.integers(0, 40) | st.integers(0, 5).map(lambda at: at << 13) | st.just((1 << 56) - 1)
NUMBERS = st.integers(0, 5) | st.integers(0, (1 << 128) - 1) | st.sampled_from([(1 << 64) - 1, 1 << 64, (1 << 128) - 1])
PRIORITIES = st.integers(-3, 3) | st.sampled_from([-(1 << 63), (1 << 63) - 1])
COUNTS = st.integers(0, 9)
STEPS = st.lists(
    st.tuples(st.just("add"), OFFSETS, NUMBERS, st.booleans())
    | st.tuples(st.just("add_run"), st.integers(0, 1 << 14), st.lists(PRIORITIES, max_size=6), st.booleans())
    | st.tuples(st.just("discard"), OFFSETS)
    | st.tuples(st.just("discard_pairs"), st.lists(st.tuples(OFFSETS, COUNTS), max_size=5))
    | st.tuples(st.sampled_from(["take", "peek"]), COUNTS)
    | st.tuples(st.just("first"))
    | st.tuples(st.just("offsets_from"), OFFSETS, COUNTS)
    | st.tuples(st.just("again")),
    max_size=40,
)

pytestmark = pytest.mark.skipif(native is None, reason="the C extension was not built")


def done(heap: PackedHeap | PureOffsetHeap, step: tuple[Any, ...]) -> object:
    name, *arguments = step
    if name == "add":
        heap.add(*arguments[:2], again=arguments[2])
        return None
    return getattr(heap, name)(*arguments)


@given(STEPS)
def test_the_two_heaps_are_equal_after_every_step(steps: list[tuple[Any, ...]]) -> None:
    native_heap, pure = PackedHeap(), PureOffsetHeap()
    for step in steps:
        if step == ("again",):
            native_heap = PackedHeap.restored(native_heap.image())
            continue
        assert done(native_heap, step) == done(pure, step), step
        assert len(native_heap) == len(pure)
    assert native_heap.chunks() == pure.chunks()
    assert native_heap.changed_numbers() == pure.changed_numbers()
    assert native_heap.take(1_000) == pure.take(1_000)


@given(STEPS, COUNTS, st.sampled_from([1, 2, 8]))
def test_a_bound_divides_what_comes_first_from_the_rest(steps: list[tuple[Any, ...]], count: int, parts: int) -> None:
    for heap in (PackedHeap(), PureOffsetHeap()):
        for step in steps:
            if step != ("again",):
                done(heap, step)
        bound = heap.bound(count)
        within = [heap.offsets_within(bound, part, parts) for part in range(parts)]
        everything = heap.peek(1_000)
        assert {offset for some in within for offset in some} == {
            offset for number, offset in everything if bound is None or (number, offset) <= bound
        }
        assert bound is not None or count >= heap.entry_count()


@pytest.mark.parametrize("kind", [PackedHeap, PureOffsetHeap])
def test_about_as_many_as_were_asked_for_are_within_a_bound(kind: type[PackedHeap | PureOffsetHeap]) -> None:
    heap = kind()
    heap.add_run(0, [each * 2_654_435_761 % (1 << 32) for each in range(50_000)], True)  # scattered
    for count in (5_000, 20_000, 45_000):
        assert len(heap.offsets_within(heap.bound(count), 0, 1)) == pytest.approx(count, rel=0.1)
    assert len(heap.offsets_within(heap.bound(50_000), 0, 1)) == 50_000
    each = [heap.offsets_within(heap.bound(45_000), part, 16) for part in range(16)]
    assert min(map(len, each)) > 1_000
    assert sorted(chain.from_iterable(each)) == sorted(heap.offsets_within(heap.bound(45_000), 0, 1))
    for part, parts in ((-1, 1), (1, 1), (0, 3), (0, 0)):
        with pytest.raises(ValueError, match="power of two"):
            heap.offsets_within(None, part, parts)


@given(STEPS, st.integers(1, 9), st.integers(1, 4), st.integers(1, 5), st.just(0) | st.integers(0, 1_010))
def test_buckets_divide_what_comes_first(
    steps: list[tuple[Any, ...]], count: int, buckets: int, piece: int, start: int
) -> None:
    native_heap, pure = PackedHeap(), PureOffsetHeap()
    for step in steps:
        if step != ("again",):
            done(native_heap, step)
            done(pure, step)
    places = {offset: offset + 1_000 for _, offset in pure.peek(2) if offset < 1 << 20}
    found = []
    for heap in (native_heap, pure):
        bounds = tuple(sorted(set(heap.bounds(count, buckets)))) if heap.entry_count() else ((0, 0),)
        pieces = [
            heap.words_within(bounds, places, start, first, first + piece)
            for first in range(0, heap.entry_count(), piece)
        ]
        words = sorted(set(array("Q", b"".join(pieces))))
        found.append((bounds, words))
        expected = {
            places.get(offset, offset) << 8 | bisect_left(bounds, (number, offset))
            for number, offset in heap.peek(1_000)
            if (number, offset) <= bounds[-1] and places.get(offset, offset) >= start
        }
        assert set(words) == expected
    if native_heap.entries() == pure.entries():  # a sample depends on their order
        assert found[0] == found[1]


@pytest.mark.parametrize("kind", [PackedHeap, PureOffsetHeap])
def test_buckets_have_about_the_same_size_and_the_last_one_may_have_all_the_rest(
    kind: type[PackedHeap | PureOffsetHeap],
) -> None:
    heap = kind()
    heap.add_run(0, [each * 2_654_435_761 % (1 << 32) for each in range(50_000)], True)  # scattered
    for count in (20_000, 50_000, 70_000):
        words = array("Q", heap.words_within(heap.bounds(count, 10), {}, 0, 0, 50_000))
        sizes = Counter(word & 255 for word in words)
        assert max(sizes.values()) <= count / 10 * 1.3
        assert len(sizes) == min(10, -(-50_000 * 10 // count))
        assert len(words) == pytest.approx(min(count, 50_000), rel=0.1)
    for wrong in ((0, 1), (1, 0), (1, 257)):
        with pytest.raises(ValueError, match="1 to 256"):
            heap.bounds(*wrong)
    with pytest.raises(ValueError, match="1 to 256"):
        heap.words_within((), {}, 0, 0, 1)


@given(st.lists(st.tuples(st.integers(0, 100), PRIORITIES), min_size=1), st.booleans(), st.integers(0, 30))
def test_grants_of_the_two_heaps_are_equal(messages: list[tuple[int, int]], least_first: bool, count: int) -> None:
    heap, pure = PackedHeap(), PureOffsetHeap()
    for each in (heap, pure):
        each.add_run(7, [priority for _, priority in messages], least_first)
    granted = heap.take_granted(count, least_first)
    assert granted == pure.take_granted(count, least_first)
    assert [priority for _, priority in granted] == [messages[offset - 7][1] for offset, _ in granted]


@given(st.lists(st.tuples(OFFSETS, NUMBERS), min_size=1))
def test_frames_of_entries_are_the_same_bytes(entries: list[tuple[int, int]]) -> None:
    pure = PureOffsetHeap()
    for offset, number in entries:
        pure.add(offset, number, again=False)
    rows = pure.entries()
    body = pack_heap_entries(rows, 1, 3)
    assert native.pack_heap_entries(rows, 1, 3) == body
    assert native.read_heap_entries(body) == read_heap_entries(body) == rows[24 : 4 * 24]


def test_a_heap_drops_entries_that_do_not_count_when_they_are_many() -> None:
    heap = PackedHeap()
    for number in range(20_000):
        heap.add(5, number, again=True)
    assert len(heap.entries()) // 24 <= 4_096 + 3
    for _ in range(20_000):
        heap.add(5, 3, again=True)
    assert len(heap.entries()) // 24 <= 4_096 + 3
    assert heap.take(10) == [(3, 5)]


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(ValueError, match="whole entries"):
        PackedHeap.restored(HeapImage(b"1", {}, {}))
    with pytest.raises(ValueError, match="no offsets"):
        PackedHeap.restored(HeapImage(b"", {0: bytes(1024)}, {}))
    with pytest.raises(ValueError, match="is none"):
        PackedHeap.restored(HeapImage(b"", {0: b"1"}, {}))
    with pytest.raises(ValueError, match="columns"):
        native.read_heap_entries(b"1")
    with pytest.raises(OverflowError, match="56 bits"):
        PackedHeap().add(1 << 56, 0, again=False)
