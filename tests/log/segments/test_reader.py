"""Reading from an object store: the right batches, with few and small gets."""

import asyncio
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.segments import (
    NOW_MS,
    MemoryObjects,
    a_batch,
    a_batch_at,
    a_segment,
    batch_lists,
    body,
    some_batches,
)

from holdfast.contracts.objects import Missing
from holdfast.log.batches import decode, parse_header
from holdfast.log.segments import (
    OffsetAndTimestamp,
    ProducerSection,
    ProducerSnapshot,
    SegmentReader,
    SegmentSettings,
    build_object,
    build_segment,
    read_directory,
    read_tail,
)
from holdfast.log.segments.inspection import inspect_object
from holdfast.vocabulary.errors import CorruptError, InvalidError

SMALL_TAIL = SegmentSettings(tail_bytes=1024)


def reader_of(segment: bytes, *, chosen: SegmentSettings = SMALL_TAIL) -> tuple[SegmentReader, MemoryObjects]:
    objects = MemoryObjects({"key": b"before" + segment + b"after"})
    return SegmentReader(objects, "key", 6, 6 + len(segment), settings=chosen), objects


async def read(reader: SegmentReader, offset: int, bytes_max: int) -> list[memoryview]:
    found = await reader.read(offset, bytes_max)
    assert not isinstance(found, Missing)
    return found


async def test_every_offset_is_read_with_one_get_that_is_no_larger_than_its_blocks() -> None:
    batches = some_batches(200)
    segment = a_segment(batches, block_bytes=1500)
    reader, objects = reader_of(segment)
    blocks = read_tail(segment)[1].blocks
    await reader.index()
    assert len(objects.gets) == 1
    for offset in range(600):
        objects.gets.clear()
        found = await read(reader, offset, 1)
        assert found == [batches[offset // 3]]
        ((_, size_bytes),) = objects.gets
        assert size_bytes <= max(block.end - block.start for block in blocks)


async def test_reading_on_fetches_no_block_twice() -> None:
    batches = some_batches(300)
    segment = a_segment(batches, block_bytes=1000)
    reader, objects = reader_of(segment)
    await reader.index()
    objects.gets.clear()
    offset, seen = 0, []
    while offset < 900:
        found = await read(reader, offset, 5000)
        assert 4000 <= sum(map(len, found)) <= 5000 or offset + 3 * len(found) == 900
        seen += found
        offset = parse_header(found[-1]).last_offset + 1
    assert seen == batches
    blocks = read_tail(segment)[1].blocks
    assert sum(size for _, size in objects.gets) == blocks[-1].end - blocks[0].start
    assert len(objects.gets) <= sum(map(len, batches)) // 4000 + 1


@settings(deadline=None)
@given(batch_lists(), st.sampled_from((1, 300, 1 << 20)), st.integers(0, 2000), st.data())
def test_a_read_starts_with_the_batch_that_holds_the_offset_or_the_next(
    batches: list[bytes], block_bytes: int, bytes_max: int, data: st.DataObject
) -> None:
    ends = [parse_header(batch).last_offset + 1 for batch in batches]
    offset = data.draw(st.integers(parse_header(batches[0]).base_offset, ends[-1] - 1))
    reader, objects = reader_of(a_segment(batches, block_bytes=block_bytes))
    found = asyncio.run(read(reader, offset, bytes_max))
    first = bisect_right(ends, offset)
    assert found == batches[first : first + len(found)]
    assert found
    assert len(found) == 1 or sum(map(len, found)) <= bytes_max
    assert len(objects.gets) <= 3


@settings(deadline=None)
@given(batch_lists(), st.sampled_from((1, 300, 1 << 20)))
def test_a_segment_is_read_whole_with_one_get(batches: list[bytes], block_bytes: int) -> None:
    reader, objects = reader_of(a_segment(batches, block_bytes=block_bytes))
    found = asyncio.run(reader.read_whole())
    assert not isinstance(found, Missing)
    assert b"".join(found) == b"".join(batches)
    assert len(objects.gets) == 1


async def test_a_small_segment_takes_one_get_in_all() -> None:
    batches = some_batches(3)
    reader, objects = reader_of(a_segment(batches), chosen=SegmentSettings())
    assert await read(reader, 4, 10_000) == batches[1:]
    assert len(objects.gets) == 1


async def test_an_index_larger_than_the_tail_takes_one_get_more() -> None:
    batches = some_batches(400)
    reader, objects = reader_of(a_segment(batches, block_bytes=1))
    assert await read(reader, 1199, 1) == batches[-1:]
    assert len(objects.gets) <= 3
    objects.gets.clear()
    assert await read(reader, 0, 1) == batches[:1]
    assert len(objects.gets) == 1


async def test_large_reads_are_unpacked_on_a_thread_with_the_same_result() -> None:
    batches = some_batches(100)
    reader, _ = reader_of(a_segment(batches), chosen=SegmentSettings(tail_bytes=1024, thread_bytes_min=0))
    assert await read(reader, 0, 1 << 20) == batches
    assert await reader.offset_for_timestamp(NOW_MS + 250) == OffsetAndTimestamp(250, NOW_MS + 250)


async def test_an_object_that_is_gone_is_an_answer() -> None:
    reader, objects = reader_of(a_segment(some_batches(200)))
    await reader.index()
    gone, objects.blobs = objects.blobs, {}
    assert await reader.read(0, 100) == Missing("key")
    assert await reader.offset_for_timestamp(0) == Missing("key")
    assert await reader.producers() == Missing("key")
    never = SegmentReader(objects, "key", 0, 100)
    assert await never.meta() == await never.index() == await never.read(0, 1) == Missing("key")
    objects.blobs = gone
    assert await read(reader, 0, 1)


async def test_a_wrong_byte_range_or_a_cut_object_is_corrupt() -> None:
    segment = a_segment()
    for start, end in ((0, len(segment) - 1), (0, len(segment) + 1), (1, len(segment)), (3, 20)):
        with pytest.raises(CorruptError):
            await SegmentReader(MemoryObjects({"key": segment}), "key", start, end).meta()
    with pytest.raises(CorruptError, match="the footer has"):
        await SegmentReader(MemoryObjects({"key": b"x" + segment}), "key", 0, len(segment) + 1).meta()


@pytest.mark.parametrize("offset", [-1, 29, 60])
async def test_an_offset_of_another_segment_is_refused(offset: int) -> None:
    reader, _ = reader_of(a_segment(some_batches(10, base_offset=30)))
    with pytest.raises(InvalidError, match="30 to 59"):
        await reader.read(offset, 100)


def test_a_byte_range_must_be_one() -> None:
    with pytest.raises(InvalidError):
        SegmentReader(MemoryObjects(), "key", 5, 5)


async def test_behind_the_last_batch_of_a_compacted_segment_there_is_nothing() -> None:
    built = build_segment([a_batch(0)], topic_id="t", partition=0, end_offset=100)
    reader, _ = reader_of(body(built))
    assert await reader.read(50, 100) == []


async def test_producers_are_read_where_a_new_owner_looks_for_them() -> None:
    producers = tuple(ProducerSnapshot(producer_id=n, producer_epoch=0, last_timestamp_ms=NOW_MS) for n in range(1000))
    section = ProducerSection(producers=producers)
    reader, objects = reader_of(body(build_segment([a_batch(0)], topic_id="t", partition=0, producers=section)))
    assert await reader.producers() == section
    assert len(objects.gets) == 2


async def test_time_finds_the_first_record_that_reaches_it_however_disordered() -> None:
    times = [(500, 900, 100), (50, 60), (700, 10, 1000), (5,), (2000, 1500), (-1, -1), (300,)]
    offset, batches, flat = 0, [], []
    for stamps in times:
        batches.append(a_batch_at(offset, *stamps))
        flat += [(offset + n, at_ms) for n, at_ms in enumerate(stamps)]
        offset += len(stamps)
    for block_bytes in (1, 200, 1 << 20):
        reader, _ = reader_of(a_segment(batches, block_bytes=block_bytes))
        for at_ms in (-1, 0, 5, 60, 61, 500, 501, 899, 900, 901, 1000, 1001, 1999, 2000, 2001):
            for start in range(offset):
                expected = next(
                    (OffsetAndTimestamp(*each) for each in flat if each[0] >= start and each[1] >= at_ms), None
                )
                assert await reader.offset_for_timestamp(at_ms, from_offset=start) == expected


async def test_time_is_found_with_one_get() -> None:
    reader, objects = reader_of(a_segment(some_batches(300), block_bytes=1000))
    await reader.index()
    objects.gets.clear()
    assert await reader.offset_for_timestamp(NOW_MS + 777) == OffsetAndTimestamp(777, NOW_MS + 777)
    assert len(objects.gets) == 1


async def test_a_shared_object_serves_each_partition_by_its_range() -> None:
    parts = {n: some_batches(5 + n, base_offset=n * 1000) for n in range(4)}
    segments = [build_segment(batches, topic_id=f"topic-{n}", partition=n) for n, batches in parts.items()]
    built = build_object(segments)
    objects = MemoryObjects()
    await objects.put("shared/one.strm", built.parts)
    whole = objects.blobs["shared/one.strm"]
    assert read_directory(whole[-1000:]) == built.ranges
    report = inspect_object(whole)
    assert report.ok
    assert report.directory == built.ranges
    for place, (number, batches) in zip(built.ranges, parts.items(), strict=True):
        reader = SegmentReader(objects, "shared/one.strm", place.start, place.end)
        meta = await reader.meta()
        assert not isinstance(meta, Missing)
        assert (meta.topic_id, meta.partition, meta.base_offset) == (f"topic-{number}", number, number * 1000)
        assert await read(reader, number * 1000, 1 << 20) == batches
        assert whole[place.start : place.end] == body(segments[number])


def test_a_shared_object_holds_at_least_one_segment() -> None:
    with pytest.raises(InvalidError):
        build_object([])


async def test_many_tasks_share_one_reader() -> None:
    batches = some_batches(100)
    reader, _ = reader_of(a_segment(batches))
    found = await asyncio.gather(*(read(reader, offset, 1) for offset in range(0, 300, 3)))
    assert [each[0] for each in found] == batches
    assert [record.offset for record in decode(found[7][0])] == [21, 22, 23]
