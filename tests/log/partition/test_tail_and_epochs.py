"""The tail, leader epochs, and watermarks: pure parts of a partition."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.partitions import batch, records
from tests.support.steps import executed_lines

from holdfast.log.batches import RecordBatchLimits, patch, split_batches
from holdfast.log.leader_epochs import end_of_epoch, epoch_at, with_epoch, without_epochs_before
from holdfast.log.partition.tail import Tail, TailBatch, TailRun
from holdfast.log.partition.watermark import Watermark
from holdfast.log.segments import EpochStart
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import ClosedError


def put(tail: Tail, at: int, *values: str, at_ms: int = 1_000) -> TailBatch:
    data = bytearray(batch(*values, at_ms=at_ms))
    patch(data, base_offset=at, leader_epoch=1)
    ((header, view),) = split_batches(data, limits=RecordBatchLimits(), stored=True)
    added = TailBatch(at, at + len(values), view, header)
    tail.append(added)
    return added


def filled() -> Tail:
    tail = Tail(0)
    put(tail, 0, "a", "b", at_ms=10)
    put(tail, 2, "c", at_ms=30)
    put(tail, 3, "d", at_ms=20)
    return tail


def test_a_read_begins_with_the_batch_that_holds_the_offset_and_ends_below_the_watermark() -> None:
    assert records(filled().read(1, below=3, bytes_max=1 << 20)) == [(0, "a"), (1, "b"), (2, "c")]


def test_a_read_takes_whole_batches_within_the_bytes_but_at_least_one() -> None:
    tail = filled()
    assert records(tail.read(0, below=4, bytes_max=1)) == [(0, "a"), (1, "b")]
    two = len(tail.between(0, 2)[0].data) + len(tail.between(2, 3)[0].data)
    assert len(tail.read(0, below=4, bytes_max=two)) == 2
    assert len(tail.read(0, below=4, bytes_max=two - 1)) == 1


def test_a_read_never_shows_a_batch_that_is_only_partly_visible() -> None:
    assert filled().read(0, below=1, bytes_max=1 << 20) == []


def test_a_read_in_a_gap_begins_behind_it() -> None:
    tail = filled()
    put(tail, 10, "e")
    assert records(tail.read(7, below=20, bytes_max=1 << 20)) == [(10, "e")]


def test_forgetting_frees_the_bytes_and_keeps_the_order() -> None:
    tail = filled()
    tail.forget_until(2)
    assert (tail.start, tail.end) == (2, 4)
    assert records(tail.read(2, below=4, bytes_max=1 << 20)) == [(2, "c"), (3, "d")]
    tail.forget_until(4)
    assert tail.size_bytes == 0
    assert tail.read(4, below=9, bytes_max=1 << 20) == []


def test_what_is_published_no_longer_counts_and_can_still_be_read() -> None:
    tail = filled()
    last = len(tail.between(3, 4)[0].data)
    freed = tail.size_bytes - last
    assert tail.mark_published(3) == freed
    assert tail.size_bytes == last
    assert tail.start == 0
    assert records(tail.read(0, below=4, bytes_max=1 << 20)) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert tail.mark_published(3) == 0
    tail.forget_until(2)
    assert (tail.start, tail.size_bytes) == (2, last)
    tail.forget_until(4)
    assert (tail.start, tail.size_bytes) == (4, 0)


def test_forgetting_many_batches_compacts_the_list() -> None:
    tail = Tail(0)
    for at in range(5_000):
        put(tail, at, "x")
    tail.forget_until(4_000)
    assert len(tail._entries) < 2_500
    assert records(tail.read(4_321, below=5_000, bytes_max=1)) == [(4_321, "x")]
    assert tail.mark_published(4_500) == 500 * len(tail.between(4_321, 4_322)[0].data)


def test_cutting_takes_back_what_was_appended_last() -> None:
    tail = filled()
    before = tail.size_bytes
    put(tail, 4, "e", "f")
    tail.cut_from(4)
    assert (tail.end, tail.size_bytes) == (4, before)
    put(tail, 4, "g")
    assert records(tail.read(4, below=9, bytes_max=1)) == [(4, "g")]


def test_an_epoch_that_wrote_nothing_leaves_no_trace() -> None:
    assert with_epoch(with_epoch((), 1, 0), 2, 0) == (EpochStart(2, 0),)
    assert with_epoch(with_epoch((), 1, 0), 2, 5) == (EpochStart(1, 0), EpochStart(2, 5))


def test_the_epoch_of_the_first_kept_offset_stays() -> None:
    history = (EpochStart(1, 0), EpochStart(3, 5), EpochStart(4, 9))
    assert without_epochs_before(history, 7) == (EpochStart(3, 5), EpochStart(4, 9))
    assert without_epochs_before(history, 9) == (EpochStart(4, 9),)
    assert without_epochs_before(history, 0) == history


def test_which_epoch_was_leading_and_where_it_ended() -> None:
    history = (EpochStart(1, 0), EpochStart(3, 5), EpochStart(4, 9))
    assert [epoch_at(history, offset) for offset in (0, 4, 5, 8, 9, 100)] == [1, 1, 3, 3, 4, 4]
    assert epoch_at((), 0) == -1
    assert end_of_epoch(history, 1, 12) == (1, 5)
    assert end_of_epoch(history, 2, 12) == (1, 5)
    assert end_of_epoch(history, 4, 12) == (4, 12)
    assert end_of_epoch(history, 5, 12) == (-1, -1)
    assert end_of_epoch(history, -1, 12) == (-1, -1)
    assert end_of_epoch((), 0, 12) == (-1, -1)


def test_an_epoch_of_which_nothing_is_left_has_ended_where_the_history_begins() -> None:
    history = without_epochs_before(with_epoch(with_epoch((), 2, 0), 5, 10), 10)
    assert end_of_epoch(history, 2, 30) == (2, 10)
    assert end_of_epoch(history, 4, 30) == (4, 10)


async def test_a_watermark_wakes_exactly_those_it_has_reached() -> None:
    mark = Watermark(0)
    waiting = {value: asyncio.ensure_future(mark.reaches(value)) for value in (3, 1, 2)}
    await RealClock().sleep_ms(0)
    mark.set(2)
    await asyncio.gather(waiting[1], waiting[2])
    assert not waiting[3].done()
    mark.fail_above(2, ClosedError("partition"))
    with pytest.raises(ClosedError):
        await waiting[3]


async def test_waits_that_end_without_news_leave_nothing_behind() -> None:
    mark, clock = Watermark(0), RealClock()
    for _ in range(10):
        answers = await asyncio.gather(*(mark.reaches_within(1, clock, 1) for _ in range(100)))
        assert not any(answers)
    assert len(mark._waiters) < 200


async def test_a_cancelled_wait_is_cancelled_and_a_watermark_never_falls() -> None:
    mark = Watermark(5)
    waiting = asyncio.ensure_future(mark.reaches_within(9, FakeClock(), 1_000))
    await RealClock().sleep_ms(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    mark.set(3)
    assert mark.value == 5


# ── runs ──


def put_run(tail: Tail, at: int, *batches: Sequence[str], at_ms: int = 1_000) -> TailRun:
    data, base = bytearray(), at
    for values in batches:
        each = bytearray(batch(*values, at_ms=at_ms))
        patch(each, base_offset=at, leader_epoch=1)
        data, at = data + each, at + len(values)
    added = TailRun(base, at, data, at_ms)
    tail.append(added)
    return added


def test_a_read_from_inside_a_run_takes_no_step_for_each_batch_it_does_not_return() -> None:
    pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")

    def lines(count: int) -> int:
        tail = Tail(0)
        put_run(tail, 0, *["x"] * count)
        return executed_lines(lambda: tail.read(count - 2, below=count, bytes_max=1))

    assert lines(10) == lines(1_000)


@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), max_size=6),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(1, 1_000),
)
def test_runs_are_read_as_their_batches_would_be(
    runs: list[list[int]], offset: int, below: int, bytes_max: int
) -> None:
    together, alone = Tail(0), Tail(0)
    for number, run in enumerate(runs):
        if number % 3 == 2:
            put(together, together.end, *"x" * sum(run))
            put(alone, alone.end, *"x" * sum(run))
            continue
        put_run(together, together.end, *("x" * count for count in run))
        for count in run:
            put(alone, alone.end, *"x" * count)
    assert (together.end, together.size_bytes) == (alone.end, alone.size_bytes)
    expected = alone.read(offset, below=below, bytes_max=bytes_max)
    assert together.read(offset, below=below, bytes_max=bytes_max) == expected
    assert together.between(offset, below) == alone.between(offset, below)


def test_a_run_is_published_forgotten_and_cut_as_a_whole() -> None:
    tail = filled()
    run = put_run(tail, 4, "e", "fg", at_ms=40)
    assert tail.mark_published(5) == sum(len(each.data) for each in tail.entries(0, 4))
    assert tail.size_bytes == len(run.data)
    tail.forget_until(5)
    assert tail.size_bytes == len(run.data)
    assert records(tail.read(5, below=7, bytes_max=1 << 20)) == [(5, "f"), (6, "g")]
    assert [each.max_timestamp_ms for each in tail.entries(4, 7)] == [40]
    (piece,) = tail.pieces(4, 7, 1, most=8)
    assert (piece.entries, piece.size_bytes, piece.end_offset) == ([run], len(run.data), 7)
    tail.cut_from(4)
    assert (tail.end, tail.size_bytes) == (4, 0)


# ── many batches ──


def sized(base: int, count: int, size: int) -> TailBatch:
    return TailBatch(base, base + count, bytes(size), _HEADER)


_HEADER = split_batches(batch("x"), limits=RecordBatchLimits(), stored=True)[0].header

operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 4), st.integers(1, 50)),
        st.tuples(st.sampled_from(["published", "forget"]), st.integers(0, 60)),
        st.tuples(st.just("cut"), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(operations, st.integers(0, 60), st.integers(0, 60), st.integers(1, 60), st.integers(1, 5))
def test_a_tail_does_what_going_over_its_batches_would(
    steps: list[tuple[str, ...]], start: int, end: int, piece_bytes: int, most: int
) -> None:
    tail, kept, published = Tail(0), list[TailBatch](), 0
    for name, *given_ in steps:
        if name == "append":
            gap, count, size = (int(each) for each in given_)
            kept.append(sized(tail.end + gap, count, size))
            tail.append(kept[-1])
        elif name == "cut":
            at = max(published, tail.end - int(given_[0]), tail.start)
            at = min([each.base_offset for each in kept if each.base_offset >= at], default=tail.end)
            tail.cut_from(at)
            kept = [each for each in kept if each.base_offset < at]
        else:
            offset = int(given_[0])
            unpublished = sum(len(each.data) for each in kept if published < each.end_offset <= offset)
            if name == "published":
                assert tail.mark_published(offset) == unpublished
            else:
                tail.forget_until(offset)
                kept = [each for each in kept if each.end_offset > offset]
            published = max(published, min(offset, tail.end))
        assert tail.size_bytes == sum(len(each.data) for each in kept if each.end_offset > published)
    within = [each for each in kept if start <= each.base_offset and each.end_offset <= end]
    assert tail.between(start, end) == within
    pieces = tail.pieces(start, end, piece_bytes, most=most)
    assert [each for piece in pieces for each in piece.entries] == within
    assert all(piece.entries and piece.size_bytes == sum(len(each.data) for each in piece.entries) for piece in pieces)
    assert len(pieces) <= most


def test_publishing_and_forgetting_take_no_step_for_each_batch() -> None:
    def lines(batches: int) -> int:
        tail = Tail(0)
        for at in range(batches):
            tail.append(sized(at, 1, 100))

        def publish() -> None:
            tail.pieces(0, batches, 1 << 30, most=8)
            tail.mark_published(batches)
            tail.forget_until(batches - 1)

        return executed_lines(publish)

    assert lines(20_000) == lines(20)
