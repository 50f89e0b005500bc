"""What goes into a segment comes out of it, and its tail says what is in it."""

import hashlib
from functools import partial
from typing import Any, cast

import lz4.block
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.segments import NOW_MS, a_batch, a_batch_at, a_segment, batch_lists, body, some_batches
from tests.support.steps import executed_lines

from holdfast.log.batches import Buffer, Record, encode, parse_header
from holdfast.log.batches.header import set_append_time
from holdfast.log.batches.kernels import BEST, NATIVE, PURE, BatchKernel, BatchSummary
from holdfast.log.segments import (
    EpochStart,
    ProducerSection,
    ProducerSnapshot,
    SegmentSettings,
    SequenceRange,
    build_segment,
    builder,
    decode_blocks,
    read_footer,
    read_producers,
    read_tail,
    segment_meta,
)
from holdfast.log.segments import parse_header as parse_segment_header
from holdfast.log.segments.blocks import read_block, walk_blocks
from holdfast.log.segments.inspection import inspect_object
from holdfast.vocabulary.errors import InvalidError


def one_producer(producer_id: int, *, batches: int = 0) -> ProducerSection:
    ranges = (SequenceRange(0, 0, 0),) * batches
    known = ProducerSnapshot(producer_id=producer_id, producer_epoch=0, last_timestamp_ms=0, batches=ranges)
    return ProducerSection(producers=(known,))


def blocks_of(segment: bytes) -> bytes:
    index = read_tail(segment)[1]
    return segment[index.blocks[0].start : index.blocks[-1].end]


class CountingKernel:
    """The best kernel, and how often it was called to join."""

    def __init__(self) -> None:
        self.joins = 0

    def join_blocks(self, *given: Any) -> Any:
        self.joins += 1
        return BEST.join_blocks(*given)


def test_megabytes_of_small_batches_are_joined_with_one_call() -> None:
    """Each lets go of the interpreter, and the event loop has to wait until it gets it back."""
    batches, kernel = some_batches(4_000), CountingKernel()
    built = build_segment(batches, topic_id="t", partition=0, block_bytes=2_000, kernel=cast(BatchKernel, kernel))
    assert len(read_tail(body(built))[1].blocks) > 50
    assert kernel.joins == 1


@pytest.mark.parametrize("kernel", [PURE, BEST])
@pytest.mark.parametrize(("block_bytes", "taken"), [(1 << 30, 4_096), (300_000, 5_452)])
def test_no_call_takes_so_many_that_nobody_else_gets_on(kernel: BatchKernel, block_bytes: int, taken: int) -> None:
    batches: list[Buffer] = [*some_batches(10_000)]
    found = kernel.join_blocks(batches, 0, block_bytes, 1 << 30, 0, BatchSummary)
    assert len(found) == 2
    blocks, left = found
    assert max(summary.batch_count for _, summary in blocks) <= 4_096
    assert left == sum(summary.batch_count for _, summary in blocks) == taken


@pytest.mark.slow
@settings(deadline=None)
@given(batch_lists(), st.sampled_from((1, 100, 400, 2000, 1 << 20)), st.sampled_from((1, 300, 1 << 20)), st.data())
def test_both_kernels_build_the_same_segment(
    batches: list[bytes], block_bytes: int, joined_bytes: int, data: st.DataObject
) -> None:
    given: list[Buffer] = []
    while batches:  # a buffer may hold several
        count = data.draw(st.integers(1, 3))
        given.append(data.draw(st.sampled_from((bytes, bytearray, memoryview)))(b"".join(batches[:count])))
        batches = batches[count:]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(builder, "_JOINED_BYTES", joined_bytes)
        segments = [
            body(build_segment(given, topic_id="t", partition=7, block_bytes=block_bytes, kernel=kernel))
            for kernel in (PURE, BEST)
        ]
    assert segments[0] == segments[1]
    assert b"".join(decode_blocks(blocks_of(segments[0]))) == b"".join(given)


@pytest.mark.slow
@settings(deadline=None)
@given(batch_lists(), st.sampled_from((1, 100, 400, 2000, 1 << 20)), st.sampled_from(("lz4", "none")))
def test_any_batches_come_back_as_they_were(batches: list[bytes], block_bytes: int, compression: str) -> None:
    built = build_segment(batches, topic_id="t", partition=7, compression=compression, block_bytes=block_bytes)
    segment = body(built)
    assert len(segment) == built.meta.bytes
    assert decode_blocks(blocks_of(segment)) == batches
    assert b"".join(read_block(each) for each in walk_blocks(blocks_of(segment))) == b"".join(batches)
    assert segment_meta(*read_tail(segment)) == built.meta
    report = inspect_object(segment)
    assert report.ok, report.segments[0].checks


@settings(deadline=None)
@given(batch_lists())
def test_the_footer_counts_what_the_batches_say(batches: list[bytes]) -> None:
    meta = build_segment(batches, topic_id="t", partition=0).meta
    headers = [parse_header(batch) for batch in batches]
    assert (meta.base_offset, meta.end_offset) == (headers[0].base_offset, headers[-1].last_offset + 1)
    assert (meta.batch_count, meta.record_count) == (len(batches), sum(header.count for header in headers))
    firsts = [header.base_timestamp for header in headers if header.base_timestamp >= 0]
    assert meta.min_timestamp_ms == min(firsts, default=-1)
    assert meta.max_timestamp_ms == max(header.max_timestamp for header in headers)


def test_a_buffer_may_hold_several_batches() -> None:
    batches = some_batches(6)
    joined: list[Buffer] = [b"".join(batches[:4]), memoryview(bytearray(b"".join(batches[4:])))]
    assert build_segment(joined, topic_id="t", partition=0).meta.batch_count == 6
    assert body(build_segment(joined, topic_id="t", partition=0)) == body(
        build_segment(batches, topic_id="t", partition=0)
    )


def test_whose_it_is_stands_at_both_ends() -> None:
    segment = a_segment(some_batches(2, base_offset=30))
    header, (footer, index) = parse_segment_header(segment), read_tail(segment)
    assert (header.topic_id, header.partition, header.base_offset) == ("t1", 3, 30)
    assert (index.topic_id, footer.partition, footer.base_offset) == ("t1", 3, 30)


@pytest.mark.parametrize("delta", [{}, {"since": 3, "gone": (4, 2**40)}])
def test_epochs_and_producers_come_back(delta: dict[str, Any]) -> None:
    producers = (
        ProducerSnapshot(
            producer_id=2**60,
            producer_epoch=7,
            last_timestamp_ms=NOW_MS,
            batches=(SequenceRange(2**31 - 2, 1, 0), SequenceRange(2, 2, 4)),
            transaction_offset=4,
            coordinator_epoch=9,
        ),
        ProducerSnapshot(producer_id=1, producer_epoch=0, last_timestamp_ms=-1),
    )
    section = ProducerSection(producers=producers, **delta)
    built = build_segment(
        some_batches(3, base_offset=10), topic_id="t", partition=0, epochs=[(2, 0), (5, 12)], producers=section
    )
    assert built.meta.epochs == (EpochStart(2, 0), EpochStart(5, 12))
    segment = body(built)
    footer = read_footer(segment)
    assert footer.minor == len(delta) // 2
    found = segment[footer.producers_at : footer.producers_at + footer.producers_bytes]
    assert read_producers(found, footer) == section


def test_blocks_are_packed_unless_their_producers_packed_them() -> None:
    plain = [a_batch(n * 3) for n in range(4)]
    packed = [a_batch(12 + n * 3, compression="gzip", records=3, value=b"w" * 900) for n in range(4)]
    size_bytes = sum(map(len, plain))
    segment = body(build_segment([*plain, *packed], topic_id="t", partition=0, block_bytes=size_bytes))
    codecs = [block.header.codec for block in walk_blocks(blocks_of(segment))]
    assert codecs[0] == 1
    assert set(codecs[1:]) == {0}
    stored = body(build_segment(plain, topic_id="t", partition=0, compression="none"))
    assert [block.header.codec for block in walk_blocks(blocks_of(stored))] == [0]


def test_what_lz4_cannot_shrink_is_stored() -> None:
    noise = hashlib.shake_256(b"seed").digest(4000)
    (block,) = walk_blocks(blocks_of(a_segment([encode([Record(0, NOW_MS, None, noise)])])))
    assert block.header.codec == 0


def test_lz4_is_hardly_tried_where_it_does_not_help_and_soon_again_where_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []
    pack = lz4.block.compress

    def compress(raw: bytes, **how: bool) -> bytes:
        tried.append(len(raw))
        packed: bytes = pack(raw, **how)
        return packed

    monkeypatch.setattr(lz4.block, "compress", compress)
    noise = [hashlib.shake_256(bytes([n])).digest(1_000) for n in range(60)]
    batches = [a_batch(n, records=1, value=value) for n, value in enumerate([*noise, *[bytes(1_000)] * 20])]
    built = build_segment(batches, topic_id="ab", partition=0, block_bytes=1_000)
    assert len(tried) < 30
    stored = [block.header.codec for block in walk_blocks(blocks_of(body(built)))]
    assert stored[:60] == [0] * 60
    assert stored[-4:] == [1] * 4


def test_of_a_large_block_that_will_not_shrink_only_the_beginning_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    pack = lz4.block.compress

    def compress(raw: bytes, **how: bool) -> bytes:
        tried.append(len(raw))
        packed: bytes = pack(raw, **how)
        return packed

    monkeypatch.setattr(lz4.block, "compress", compress)
    noise = a_batch(0, records=1, value=hashlib.shake_256(b"x").digest(900_000))
    assert body(build_segment([noise], topic_id="ab", partition=0)).count(noise[100:1_000]) == 1
    assert tried == [64 * 1024]
    built = build_segment([a_batch(0, records=1, value=bytes(900_000))], topic_id="ab", partition=0)
    assert len(body(built)) < 100_000


def test_a_block_ends_before_it_would_grow_too_large() -> None:
    batches = some_batches(20)
    segment = a_segment(batches, block_bytes=3 * len(batches[0]))
    index = read_tail(segment)[1]
    assert [block.raw_bytes for block in index.blocks] == [3 * len(batches[0])] * 6 + [2 * len(batches[0])]
    alone = read_tail(a_segment(batches, block_bytes=1))[1]
    assert len(alone.blocks) == 20


def test_compaction_keeps_the_offsets_a_segment_covered() -> None:
    built = build_segment(
        [a_batch(50), a_batch(90)], topic_id="t", partition=0, base_offset=10, end_offset=200, block_bytes=1
    )
    footer, index = read_tail(body(built))
    assert (footer.base_offset, footer.end_offset) == (10, 200)
    assert [index.locate(offset) for offset in (10, 52, 53, 92)] == [
        index.blocks[0],
        index.blocks[0],
        index.blocks[1],
        index.blocks[1],
    ]
    assert index.locate(93) is None


def test_append_time_counts_for_every_record() -> None:
    batch = bytearray(a_batch_at(0, 100, 200))
    set_append_time(batch, timestamp_ms=5000)
    meta = build_segment([batch], topic_id="t", partition=0).meta
    assert (meta.min_timestamp_ms, meta.max_timestamp_ms) == (5000, 5000)


def test_the_index_is_small() -> None:
    batches = [a_batch(n * 15, records=15, value=b"x" * 1000) for n in range(500)]
    footer, index = read_tail(a_segment(batches, block_bytes=128 << 10))
    assert len(index.blocks) > 50
    assert footer.index_bytes < 12 * len(index.blocks) + 16


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"topic_id": "a/b"}, "topic id"),
        ({"topic_id": ""}, "topic id"),
        ({"topic_id": "x" * 65}, "topic id"),
        ({"partition": -1}, "partition"),
        ({"partition": 2**31}, "partition"),
        ({"compression": "zip"}, "compression"),
        ({"block_bytes": 0}, "block_bytes"),
        ({"base_offset": 1}, "base offset"),
        ({"end_offset": 5}, "end offset"),
        ({"base_offset": -1}, "base"),
        ({"epochs": [(2, 0), (2, 1)]}, "epochs"),
        ({"epochs": [(1, 5), (2, 1)]}, "epochs"),
        ({"epochs": [(1, 1000)]}, "epochs"),
        ({"epochs": [(-1, 0)]}, "epochs"),
        ({"batches": []}, "number of batches"),
        ({"batches": [b""]}, "bytes of a batch"),
        ({"batches": [b"short"]}, "bytes left"),
        ({"batches": [a_batch(0)[:-1]]}, "bytes left"),
        ({"batches": [a_batch(5), a_batch(7)]}, "in order"),
        ({"batches": [a_batch(5), a_batch(0)], "block_bytes": 1}, "in order"),
        ({"producers": one_producer(2**63)}, "producer"),
        ({"producers": one_producer(1, batches=6)}, "batches of a producer"),
    ],
)
def test_wrong_input_is_refused_with_its_reason(change: dict[str, object], says: str) -> None:
    call: dict[str, object] = {"batches": some_batches(2), "topic_id": "t", "partition": 0} | change
    with pytest.raises(InvalidError, match=says):
        build_segment(**call)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"roll_bytes_max": 101 << 20}, {"roll_age_max_ms": 0}, {"compression": "brotli"}, {"tail_bytes": 1}]
)
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    assert SegmentSettings().roll_bytes_max == 8 << 20
    with pytest.raises(InvalidError):
        SegmentSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(NATIVE is None, reason="without the C extension every header is a step")
def test_building_and_reading_whole_take_no_step_per_batch() -> None:
    few, many = (some_batches(count, records=1) for count in (10, 300))
    runs = [[b"".join(each)] for each in (few, many)]
    built = [executed_lines(partial(build_segment, run, topic_id="t", partition=0)) for run in runs]
    assert abs(built[0] - built[1]) < 30  # the index's numbers take a byte more or less
    blocks = [next(walk_blocks(blocks_of(a_segment(run)))) for run in runs]
    read = [executed_lines(partial(read_block, block)) for block in blocks]
    assert read[0] == read[1]
